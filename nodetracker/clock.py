"""This host's time, and the database's as a process knows it that was told it a while ago."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def utc_clock() -> datetime:
    """Return this host's time."""
    return datetime.now(UTC)


def seconds_since_boot() -> float:
    """Return seconds that go on while the machine sleeps, and never back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class DatabaseClock:
    """Goes on from the last time that it was told, whatever this host's own clock does.

    Calls carry until when they are wanted by this clock, so that one which was
    held up on its way is not carried out when nobody waits for it any more.
    """

    def __init__(self, seconds: Callable[[], float] = seconds_since_boot) -> None:
        self._seconds = seconds
        self._told: tuple[datetime, float] | None = None

    def tell(self, now: datetime) -> None:
        """Set it by what the database said just now."""
        self._told = now, self._seconds()

    def read(self) -> datetime | None:
        """Return the database's time, None when it was never told."""
        told = self._told
        return None if told is None else told[0] + timedelta(seconds=self._seconds() - told[1])
