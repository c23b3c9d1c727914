"""Run calls that may never return: a bounded number at a time, each with a deadline.

`concurrent.futures` joins its threads when the interpreter exits, so one hung
hypervisor call would keep the process from stopping. These are daemons and never joined.
"""

import collections
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

from nodetracker.model.errors import ExhaustedError, exhaustion_explained

LOG = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_SECONDS = 5.0

LAST_HEARTBEAT_SECONDS = 5.0
"""How long the end of a process waits for its last heartbeat."""

FLUSH_SECONDS = 2.0
"""How long the end of a process waits for a broker that refuses its notifications."""


class HungError(Exception):
    """A call did not end by its deadline, or was not made while its source hangs."""


class Latch:
    """What happens once, and is waited for by any number of threads.

    `threading.Event` is that as well, but takes ten times as long to build, and there is one of
    these for each call.
    """

    __slots__ = ("_held", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._held = threading.Lock()
        self._held.acquire()

    def set(self) -> None:
        """Let all threads go on; called once."""
        self.is_set = True
        self._held.release()

    def wait(self, seconds: float) -> bool:
        """Wait for at most some seconds; return whether it has happened."""
        if not self.is_set and self._held.acquire(timeout=seconds):
            self._held.release()  # for the next thread that waits
        return self.is_set


class Call(Generic[T]):
    """A call of an executor: `value` and `error` are its outcome once `wait` has returned.

    Attributes:
        error: what it raised, a `HungError`, or an `ExhaustedError` if there was no thread.
        counted_from: moment from which its deadline is counted.
        started_at: when a thread took it, None before.
        ended_at: when it returned or raised, None before.
        repeats: whether it was refused because the same call hangs, not others of its source.
    """

    def __init__(
        self, executor: "Executor", source: str, name: Hashable, call: Callable[[], T], limit: float
    ) -> None:
        self.source = source
        self.name = name
        self.limit_seconds = limit
        self.value: T | None = None
        self.error: BaseException | None = None
        self.counted_from = executor.now()
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.repeats = False
        self.make = call
        self.done = Latch()
        self._executor = executor

    @property
    def is_done(self) -> bool:
        """Whether it was refused, or has ended, even after its deadline."""
        return self.done.is_set

    @property
    def is_refused(self) -> bool:
        """Whether it was not made, as its source hangs."""
        return self.is_hung and self.is_done and self.started_at is None

    @property
    def is_hung(self) -> bool:
        """Whether it was refused, or given up at its deadline."""
        return isinstance(self.error, HungError)

    def wait(self, until: float = inf) -> bool:
        """Wait until it ends, and give it up at its deadline; return whether it has ended.

        A call that waits for a thread may do so for as long as it may take.

        Args:
            until: moment of the executor's clock at which to stop waiting before the deadline.
        """
        now = self._executor.now
        while not (self.is_done or self.done.wait(self._wait_seconds(until))):
            if self._executor.expire(self, or_queued=True) or now() >= until:
                break
        return self.is_done and not self.is_hung

    @property
    def seconds(self) -> float:
        """How long it took; 0 while it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return 0.0
        return self.ended_at - self.started_at

    def result(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # T itself may include None

    @property
    def deadline(self) -> float:
        """The moment of the executor's clock by which it has to end."""
        return self.counted_from + self.limit_seconds

    def _wait_seconds(self, until: float) -> float:
        left = min(until, self.deadline) - self._executor.now()
        return min(max(0.0, left), threading.TIMEOUT_MAX)


class Executor:
    """Runs calls of sources that may hang, in threads that end when idle, all but one.

    The last thread is kept, so that calls go on, one after the other, while the process can
    start no further threads. `prepare` starts it early.

    A call that is not over at its deadline is given up by whoever waits for it: its slot is
    free for others, its thread is left behind, its outcome is dropped. Until it ends, the
    same call is refused, and from `max_hung` such calls on each call of its source. So a
    source that hangs starves no other, and threads do not pile up. Which calls of a source
    run side by side is its own business. For example, for a node::

        executor = Executor("audit", max_threads=16)

        call = executor.start(nodename, read_node, budget_seconds)
        if not call.wait():
            return failed_snapshot(nodename, "driver", "does not answer")
        return call.result()

    Args:
        name: first part of the threads' names.
        max_threads: limit of calls that run concurrently; hung ones do not count.
        max_hung: number of hung calls that block their source.
        counts_queue: deadlines are counted from the start of a call, even if it waits for a thread.
        on_end: called with each call that ends, in its thread, just before it is done.
        now: the clock of deadlines.
        beside: another executor, whose hung calls block sources here, too, and the reverse.
    """

    def __init__(
        self,
        name: str,
        max_threads: int,
        max_hung: int = 1,
        *,
        counts_queue: bool = False,
        on_end: Callable[[Call[Any]], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        beside: "Executor | None" = None,
    ) -> None:
        self.now = now
        self._name = name
        self._max_threads = max_threads
        self._max_hung = max_hung
        self._counts_queue = counts_queue
        self._on_end = on_end
        self._lock: threading.Lock = threading.Lock() if beside is None else beside._lock
        self._wake = threading.Condition(self._lock)
        self._queue: collections.deque[Call[Any]] = collections.deque()
        self._hung: dict[str, list[Call[Any]]] = {} if beside is None else beside._hung
        self._threads = 0
        self._idle = 0
        self._serial = 0

    def start(
        self,
        source: str,
        make: Callable[[], T],
        limit_seconds: float = inf,
        name: Hashable = None,
    ) -> Call[T]:
        """Make a call in a thread, now or as soon as one is free, unless its source hangs.

        The call fails with an ExhaustedError when there is no thread and none can be started.

        Args:
            limit_seconds: how long it may take.
            name: what is called, to refuse the same call while it hangs.
        """
        call = Call(self, source, name, make, limit_seconds)
        with self._lock:
            if self._refuse(call):
                return call
            self._queue.append(call)
            if self._idle >= len(self._queue):
                self._wake.notify()
            elif self._threads < self._max_threads:
                self._start_thread()
        return call

    def prepare(self) -> None:
        """Start the thread that is kept, before calls need it.

        Raises:
            ExhaustedError: the process can have no more threads.
        """
        with self._lock:
            if not self._threads:
                self._add_thread()

    def make_here(
        self,
        source: str,
        make: Callable[[], T],
        limit_seconds: float = inf,
        name: Hashable = None,
    ) -> Call[T]:
        """Make a call in the caller's own thread, unless its source hangs.

        For calls that wait for nothing: nobody can give one up, so its limit is not enforced.

        Args: as `start`.
        """
        call = Call(self, source, name, make, limit_seconds)
        with self._lock:
            if self._refuse(call):
                return call
        call.started_at = call.counted_from
        try:
            call.value = make()
        except BaseException as error:
            call.error = error
        call.ended_at = self.now()
        call.done.set()
        return call

    @property
    def hung_count(self) -> int:
        """Number of calls that hang."""
        with self._lock:
            return sum(map(len, self._hung.values()))

    def expire(self, call: Call[Any], or_queued: bool = False) -> bool:
        """Give a call up if it is past its deadline; return whether it was given up.

        Args:
            or_queued: also if it has waited that long for a thread.
        """
        with self._lock:
            if call.is_hung or call.is_done or call.ended_at is not None:
                return call.is_hung
            if self.now() < call.deadline or (call.started_at is None and not or_queued):
                return False
            call.error = HungError(call.source)
            if call.started_at is None:
                self._queue.remove(call)
                return True
            hung = self._hung.setdefault(call.source, [])
            hung.append(call)
            if len(hung) == self._max_hung:
                LOG.debug("%s is not queried until one of its hung calls returns", call.source)
            self._threads -= 1
            if self._queue and not self._idle:
                self._start_thread()
            return True

    def _refuse(self, call: Call[Any]) -> bool:
        """End a call whose source hangs without making it; return whether it was refused."""
        hung = self._hung.get(call.source, ())
        call.repeats = call.name is not None and any(other.name == call.name for other in hung)
        if not call.repeats and len(hung) < self._max_hung:
            return False
        call.error = HungError(call.source)
        call.done.set()
        return True

    def _start_thread(self) -> None:
        """Start a thread; fail the queued calls if none can be started and none works."""
        try:
            self._add_thread()
        except ExhaustedError as error:
            while self._queue and not self._threads:
                call = self._queue.popleft()
                call.error = error
                call.done.set()

    def _add_thread(self) -> None:
        self._serial += 1
        # It does not keep an executor that nobody uses any more.
        start_thread(f"{self._name}-{self._serial}", partial(_work, weakref.ref(self)))
        self._threads += 1

    def _work_once(self) -> bool:
        """Wait for a call and make it; return whether its thread goes on."""
        is_woken = False
        with self._lock:
            if not self._queue:
                self._idle += 1
                is_woken = self._wake.wait(IDLE_SECONDS)
                self._idle -= 1
            if not self._queue:
                goes_on = is_woken or self._threads == 1
                self._threads -= not goes_on
                return goes_on
            call = self._queue.popleft()
            call.started_at = self.now()
            if not self._counts_queue:
                call.counted_from = call.started_at
        return self._run(call)

    def _run(self, call: Call[Any]) -> bool:
        """Make a call and keep its outcome; return whether its thread has a slot still."""
        value: Any = None
        error: BaseException | None = None
        try:
            value = call.make()
        except BaseException as raised:
            error = raised
        with self._lock:
            call.ended_at = self.now()
            was_hung = call.is_hung
            if not was_hung:
                call.value, call.error = value, error
        if self._on_end is not None:
            self._on_end(call)
        with self._lock:
            call.done.set()
            if was_hung:
                hung = self._hung[call.source]
                hung.remove(call)
                if not hung:
                    del self._hung[call.source]
                self._threads += 1
            if self._threads > self._max_threads:
                self._threads -= 1
                return False
            return True


def _work(reference: "weakref.ref[Executor]") -> None:
    """Make calls of an executor for as long as it needs this thread."""
    while (executor := reference()) is not None and executor._work_once():
        del executor


def start_thread(name: str, run: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread.

    Raises:
        ExhaustedError: the process can have no more of them.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    with exhaustion_explained():
        thread.start()
    return thread


def run_within(seconds: float, name: str, call: Callable[[], object]) -> None:
    """Make a call in a thread of its own, and wait for its end for some seconds at most.

    Without a thread it is not made: it may hang.
    """
    with suppress(ExhaustedError):
        start_thread(name, call).join(seconds)
