"""Run calls that may never return in daemon threads: bounded, named and never joined.

`concurrent.futures` joins its threads when the interpreter exits, so one hung
hypervisor call would keep the process from stopping.
"""

import collections
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

IDLE_SECONDS = 5.0

LAST_HEARTBEAT_SECONDS = 5.0
"""How long the end of a process waits for its last heartbeat."""


class Task(Generic[T]):
    """A call in a pool: wait for it, or abandon it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._started = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None

    @property
    def is_done(self) -> bool:
        """True once the call has returned or raised."""
        return self._done.is_set()

    def wait(self, budget_seconds: float) -> bool:
        """Wait until the call ends or has run for its budget.

        A call that is still queued for a thread may also be queued for one budget.
        """
        if not self._started.wait(budget_seconds):
            return False
        assert self.started_at is not None
        return self._done.wait(max(0.0, self.started_at + budget_seconds - time.monotonic()))

    def wait_until(self, moment: float) -> bool:
        """Wait until the call ends or `time.monotonic` reaches a moment."""
        return self._done.wait(max(0.0, moment - time.monotonic()))

    @property
    def seconds(self) -> float:
        """How long the call took; 0 while it is not done."""
        if self.started_at is None or self.ended_at is None:
            return 0.0
        return self.ended_at - self.started_at

    @property
    def error(self) -> BaseException | None:
        """What the call raised, once it is done."""
        return self._error

    def result(self) -> T:
        """Return what the call returned, or raise what it raised; only when it is done."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # T itself may include None

    def fail(self, error: BaseException) -> None:
        """End with an error instead of making the call."""
        self._error = error
        self.started_at = self.ended_at = time.monotonic()
        self._started.set()
        self._done.set()

    def run(self) -> None:
        """Make the call and keep its outcome; nothing escapes."""
        self.started_at = time.monotonic()
        self._started.set()
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self.ended_at = time.monotonic()
            self._done.set()


class WorkerPool:
    """Daemon threads that are started when needed and end when idle.

    Args:
        name: first part of the threads' names.
        max_threads: limit of threads that work concurrently. A thread whose call
            was abandoned does not count, so hung calls never starve the rest; the
            caller limits their number, as `HangGuard` does.
    """

    def __init__(self, name: str, max_threads: int) -> None:
        self._name = name
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queue: collections.deque[Task[object]] = collections.deque()
        self._abandoned: set[int] = set()
        self._threads = 0
        self._idle = 0
        self._serial = 0

    def submit(self, call: Callable[[], T]) -> Task[T]:
        """Run a call in a thread, now or as soon as one is free.

        The call fails with the error of starting a thread when the pool has no
        thread and none can be started.
        """
        task = Task(call)
        with self._lock:
            self._queue.append(task)  # type: ignore[arg-type]  # the queue holds tasks of any result
            if self._idle >= len(self._queue):
                self._wake.notify()
            elif self._threads < self._max_threads:
                self._start_thread()
        return task

    def abandon(self, task: Task[T]) -> bool:
        """Stop counting the thread of a call that hangs; it is counted again if it ends.

        Returns:
            Whether the call is running; a queued one is removed and never runs.
        """
        with self._lock:
            if task in self._queue:
                self._queue.remove(task)  # type: ignore[arg-type]
                return False
            if task.is_done:
                return False
            self._abandoned.add(id(task))
            self._threads -= 1
            if self._queue and not self._idle:
                self._start_thread()
            return True

    @property
    def thread_count(self) -> int:
        """Number of threads, hung ones included."""
        with self._lock:
            return self._threads + len(self._abandoned)

    def _start_thread(self) -> None:
        """Start a thread; fail the queued calls if none can be started and none works."""
        self._serial += 1
        thread = threading.Thread(
            target=self._work, name=f"{self._name}-{self._serial}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            while self._queue and not self._threads:
                self._queue.popleft().fail(error)
        else:
            self._threads += 1

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    self._idle += 1
                    woken = self._wake.wait(IDLE_SECONDS)
                    self._idle -= 1
                    if not woken and not self._queue:
                        self._threads -= 1
                        return
                task = self._queue.popleft()
            task.run()
            with self._lock:
                if id(task) in self._abandoned:
                    self._abandoned.discard(id(task))
                    if self._threads >= self._max_threads:
                        return
                    self._threads += 1


class HangGuard(Generic[K]):
    """Runs calls in threads, and starts no call under a key whose earlier calls still hang.

    A call hangs once its caller stops waiting and abandons it. Its thread is left
    behind, and its key is blocked until the call returns, so the number of hung
    threads is limited. For example, for a node::

        guard: HangGuard[str] = HangGuard("audit", max_threads=16)

        task = guard.start(nodename, read_node)
        if task is None:  # the last reading of this node has not returned yet
            return failed_snapshot(nodename, "driver", "does not answer")
        if not task.wait(budget_seconds):
            guard.abandon(nodename, task)
            return failed_snapshot(nodename, "driver", "does not answer")
        return task.result()

    Every task that is not done when its caller stops waiting must be abandoned.
    Calls under one key that end in time may run concurrently.

    Args:
        name: first part of the threads' names.
        max_threads: limit of threads that work concurrently; hung ones do not count.
        max_hung: number of hung calls that block a key.
        on_return: called with the key of each hung call that is found to have
            returned, in the thread that finds it, before its key is used again.
    """

    def __init__(
        self,
        name: str,
        max_threads: int,
        max_hung: int = 1,
        on_return: Callable[[K], None] | None = None,
    ) -> None:
        self._pool = WorkerPool(name, max_threads)
        self._max_hung = max_hung
        self._on_return = on_return
        self._lock = threading.Lock()
        self._hung: dict[K, list[Task[Any]]] = {}

    def start(self, key: K, call: Callable[[], T]) -> Task[T] | None:
        """Run a call in a thread as `WorkerPool.submit` does; return None if its key is blocked."""
        return None if self.is_blocked(key) else self._pool.submit(call)

    def abandon(self, key: K, task: Task[Any]) -> bool:
        """Leave the thread of a call that did not end in time behind.

        Returns:
            Whether the call hangs; one that was still queued is removed and blocks nothing.
        """
        hangs = self._pool.abandon(task)
        if hangs:
            with self._lock:
                self._hung.setdefault(key, []).append(task)
        return hangs

    def is_blocked(self, key: K) -> bool:
        """Return whether so many calls of a key hang that `start` would refuse another."""
        self._remove_returned((key,))
        with self._lock:
            return len(self._hung.get(key, ())) >= self._max_hung

    def hung_keys(self) -> list[K]:
        """Return the key of each call that hangs, so a key appears once per hung call."""
        with self._lock:
            keys = tuple(self._hung)
        self._remove_returned(keys)
        with self._lock:
            return [key for key, tasks in self._hung.items() for _ in tasks]

    @property
    def thread_count(self) -> int:
        """Number of threads, hung ones included."""
        return self._pool.thread_count

    def _remove_returned(self, keys: Iterable[K]) -> None:
        returned: list[K] = []
        with self._lock:
            for key in keys:
                tasks = self._hung.pop(key, [])
                hung = [task for task in tasks if not task.is_done]
                if hung:
                    self._hung[key] = hung
                returned += [key] * (len(tasks) - len(hung))
        if self._on_return is not None:
            for key in returned:
                self._on_return(key)


def start_thread(name: str, run: Callable[[], object]) -> threading.Thread | None:
    """Start a daemon thread; return None when the process can have no more of them."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def run_within(seconds: float, name: str, call: Callable[[], object]) -> None:
    """Make a call in a thread of its own, and wait for its end for some seconds at most.

    Without a thread it is not made: it may hang.
    """
    thread = start_thread(name, call)
    if thread is not None:
        thread.join(seconds)
