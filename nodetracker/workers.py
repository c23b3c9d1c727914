"""Threads for calls that may never return: bounded, named, and never joined.

`concurrent.futures` joins its threads when the interpreter exits, so one hung
hypervisor call would keep the process from stopping. These are daemon threads.
"""

import collections
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

IDLE_SECONDS = 5.0


class Task(Generic[T]):
    """One call handed to a pool: wait for it, or give it up."""

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

        A call that still waits for a free thread is given one budget for that too.
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
    """Daemon threads that come when needed and go when idle.

    Args:
        name: first part of the threads' names.
        max_threads: the most that may work at once. A thread whose call has
            been given up with `abandon` does not count, so hung calls never
            starve the rest; whoever abandons bounds their number.
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
        """Hand a call to a thread, now or as soon as one is free.

        The call fails, with what it was refused with, when there is no thread
        at all and none can be started.
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
            Whether the call is running; one that had not begun never will.
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
        """How many threads there are, hung ones included."""
        with self._lock:
            return self._threads + len(self._abandoned)

    def _start_thread(self) -> None:
        """Start a thread; where none can be had and none works, fail what waits for one."""
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
