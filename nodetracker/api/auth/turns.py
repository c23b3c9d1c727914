"""Limit how many passwords are checked at a time."""

import contextlib
import threading
from collections.abc import Iterator

from nodetracker.errors import BusyError

CONCURRENT_CHECKS = 2
"""Passwords checked in parallel; http_basic's take a CPU for about 0.3 s each."""

CHECK_TIMEOUT = 5.0
"""Seconds that a request waits for its turn."""


class Turns:
    """Turns of requests that check a password, so that guessing is slow and stops no others.

    Args:
        timeout: seconds that a request waits for its turn.
    """

    def __init__(self, timeout: float = CHECK_TIMEOUT) -> None:
        self._free = threading.BoundedSemaphore(CONCURRENT_CHECKS)
        self._timeout = timeout

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Wait for a turn.

        Raises:
            BusyError: it does not come in time.
        """
        if not self._free.acquire(timeout=self._timeout):
            raise BusyError("too many passwords are being checked")
        try:
            yield
        finally:
            self._free.release()
