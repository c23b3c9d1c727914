"""Limit the time that the database takes in one request, however many calls the request makes.

Only the time in calls of the database counts: waiting for agents does not. The limit belongs to
the thread of the request; whoever works for it in another thread has none.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_KEPT_SECONDS = 2.0
_LEAST_SECONDS = 0.1


class TimeLimit:
    """How long the database may take in one request.

    Args:
        seconds: in all calls together.
        is_short: the client chose less than is configured, so that it is not an outage if nothing
            was answered by then.

    Attributes:
        may_have_written: a call has written, or its commit was not answered.
    """

    def __init__(self, seconds: float, is_short: bool = False) -> None:
        self.seconds, self.is_short = seconds, is_short
        self.may_have_written = False
        self._spent = 0.0
        self._started_at: float | None = None

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time of a block."""
        self._started_at = time.monotonic()
        try:
            yield
        finally:
            self._spent += time.monotonic() - self._started_at
            self._started_at = None

    @property
    def seconds_left(self) -> float:
        """What is left, 0 or less when it is over."""
        running = 0.0 if self._started_at is None else time.monotonic() - self._started_at
        return self.seconds - self._spent - running

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.seconds_left <= 0

    def cut(self, seconds: float) -> float:
        """Return a timeout that ends with the limit; above 0, in tenths of a second."""
        left = self.seconds_left
        return seconds if left >= seconds else max(_LEAST_SECONDS, math.ceil(left * 10) / 10)

    def seconds_to_retry(self, default: float) -> float:
        """Return how long transactions may be tried again when others were first.

        Args:
            default: without a limit. With one, two seconds or its half are kept for the last
                try, which may wait for a lock, and for finding what was granted.
        """
        if math.isinf(self.seconds):
            return default
        return self.seconds_left - min(_KEPT_SECONDS, self.seconds / 2)


_CURRENT: ContextVar[TimeLimit | None] = ContextVar("nodetracker_time_limit", default=None)


@contextmanager
def limit_database(seconds: float, is_short: bool = False) -> Iterator[TimeLimit]:
    """Limit the time that the database takes in a block; see `TimeLimit`."""
    limit = TimeLimit(seconds, is_short)
    token = _CURRENT.set(limit)
    try:
        yield limit
    finally:
        _CURRENT.reset(token)


def find_limit() -> TimeLimit:
    """Return the limit of the request that this thread carries out, an endless one without."""
    return _CURRENT.get() or TimeLimit(math.inf)
