"""Limit how many passwords are checked at a time, and how often somebody may guess.

Requests wait in a queue of their address, and not in the threads that process requests.
"""

import asyncio
import hashlib
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nodetracker.model.errors import ExhaustedError, ThrottledError
from nodetracker.process.workers import Executor

CONCURRENT_CHECKS = 2
"""Passwords checked in parallel; http_basic's take a CPU for about 0.3 s each."""

CHECK_TIMEOUT = 10.0
"""Seconds that a request waits in its queue."""

MAX_THREADS = 4
MAX_THREADS_PER_ADDRESS = 2
"""Threads for requests that wait for a check; further ones are refused."""

FREE_FAILURES = 3
MAX_DELAY = 60.0
FORGET_SECONDS = 600.0
MAX_REMEMBERED = 4096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """A login that has to be checked.

    Attributes:
        check: returns what is false for a wrong password.
        known: something that only this user's right password has; it neither waits behind
            those who guess, nor is it delayed after their failures.
    """

    user: str
    address: str
    check: Callable[[], T]
    known: bytes | None = None


class LoginQueue:
    """Queues of logins by address, so that guessing is slow and stops no others.

    Threads are started by the first check, as a process may fork before it.

    Args:
        timeout: seconds that a request waits in its queue.
        seconds: monotonic time.
    """

    def __init__(
        self, timeout: float = CHECK_TIMEOUT, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout = timeout
        self._backoff = Backoff(seconds)
        self._executor = Executor("password", CONCURRENT_CHECKS)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[object, deque[tuple[Future[Any], Attempt[Any]]]] = OrderedDict()
        self._threads: Counter[str] = Counter()

    async def check(self, attempt: Attempt[T]) -> T:
        """Return what the attempt's check returns when it is the next one.

        Raises:
            ThrottledError: that takes too long, or too many attempts failed before.
        """
        self._backoff.require(attempt)
        future = self._submit(attempt)
        outcome = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait({outcome}, timeout=self._timeout)
            if not done and future.cancel():
                raise _too_many()
            return await outcome
        finally:
            future.cancel()  # when the server ends meanwhile

    def check_in_thread(self, attempt: Attempt[T]) -> T:
        """Do the same in a thread that other requests need, of which only a few may wait."""
        self._backoff.require(attempt)
        with self._own_thread(attempt):
            future = self._submit(attempt)
            if not wait({future}, timeout=self._timeout)[0] and future.cancel():
                raise _too_many()
            return future.result()

    @contextmanager
    def _own_thread(self, attempt: Attempt[Any]) -> Iterator[None]:
        if attempt.known is not None:
            yield
            return
        with self._lock:
            own, total = self._threads[attempt.address], self._threads.total()
            if own >= MAX_THREADS_PER_ADDRESS or total >= MAX_THREADS:
                raise _too_many()
            self._threads[attempt.address] += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads[attempt.address] -= 1
                self._threads += Counter()  # drops those without threads

    def _submit(self, attempt: Attempt[T]) -> Future[T]:
        future: Future[T] = Future()
        queue = attempt.known or attempt.address
        with self._lock:
            self._waiting.setdefault(queue, deque()).append((future, attempt))
            if attempt.known is not None:
                self._waiting.move_to_end(queue, last=False)
        check = self._executor.start("passwords", self._run_next)
        if isinstance(check.error, ExhaustedError):
            future.cancel()
            raise check.error
        return future

    def _run_next(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                queue, waiting = self._waiting.popitem(last=False)
                future, attempt = waiting.popleft()
                if waiting:
                    self._waiting[queue] = waiting
            if future.set_running_or_notify_cancel():
                break
        try:
            future.set_result(self._run(attempt))
        except Exception as error:
            future.set_exception(error)

    def _run(self, attempt: Attempt[T]) -> T:
        self._backoff.require(attempt)  # others may have failed meanwhile
        found = attempt.check()
        self._backoff.record(attempt, is_right=bool(found))
        return found


class Backoff:
    """Delays further attempts after failed ones, by user and address.

    A guesser elsewhere delays nobody. Thread-safe; keeps no names.

    Args:
        seconds: monotonic time.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._failures: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def require(self, attempt: Attempt[Any]) -> None:
        """Check that an attempt is allowed now.

        Raises:
            ThrottledError: it is too early.
        """
        if attempt.known is not None:
            return
        _, until = self._failures.get(_digest(attempt), (0, 0.0))
        left = until - self._seconds()
        if left > 0:
            raise ThrottledError(
                "too many failed logins of this user from this address", math.ceil(left)
            )

    def record(self, attempt: Attempt[Any], is_right: bool) -> None:
        """Remember the outcome of an attempt."""
        key, now = _digest(attempt), self._seconds()
        with self._lock:
            count, until = self._failures.pop(key, (0, 0.0))
            if is_right:
                return
            count = 1 if now > until + FORGET_SECONDS else count + 1
            delay = min(MAX_DELAY, 2.0 ** min(count - FREE_FAILURES, 10))
            self._failures[key] = count, now + (delay if count >= FREE_FAILURES else 0.0)
            if len(self._failures) > MAX_REMEMBERED:
                self._failures.popitem(last=False)


def _digest(attempt: Attempt[Any]) -> bytes:
    text = f"{attempt.address}\0{attempt.user}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _too_many() -> ThrottledError:
    return ThrottledError("too many passwords are being checked", 1)
