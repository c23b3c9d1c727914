"""Clocks: this host's time, and the database's time extrapolated from its last reading."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from nodetracker.model.errors import RpcUnavailableError


def utc_clock() -> datetime:
    """Return this host's time."""
    return datetime.now(UTC)


def seconds_since_boot() -> float:
    """Return monotonic seconds that also count while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Timer:
    """Monotonic seconds, and waiting by them; tests pass one whose time they advance."""

    def now(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Wait until a condition, which the caller holds, is notified or the time is over."""
        condition.wait(min(seconds, threading.TIMEOUT_MAX))


def refuse_expired(expires_at: datetime, now: datetime) -> None:
    """Raise RpcUnavailableError for a call whose caller has stopped waiting."""
    late = (now - expires_at).total_seconds()
    if late > 0:
        raise RpcUnavailableError(f"the call arrived {late:.1f} s too late; nothing was done")


class DatabaseClock:
    """Estimates the database's time from its last reading, independent of this host's clock.

    Calls carry a deadline in this time. A call that is delayed in transit is
    not executed once its caller has stopped waiting.
    """

    def __init__(self, seconds: Callable[[], float] = seconds_since_boot) -> None:
        self._seconds = seconds
        self._reading: tuple[datetime, float] | None = None

    def set(self, now: datetime) -> None:
        """Set the clock to a time just read from the database."""
        self._reading = now, self._seconds()

    def read(self) -> datetime | None:
        """Return the database's time, None before it was set."""
        if self._reading is None:
            return None
        then, at_seconds = self._reading
        return then + timedelta(seconds=self._seconds() - at_seconds)
