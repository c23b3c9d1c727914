"""Says once that something is away and once that it is back, however often it is tried."""

import logging
import threading
import time
from collections.abc import Callable


class OutageLog:
    """One line when an outage begins, one when it ends.

    Safe for several threads that meet the same outage.

    Args:
        what: names what is away, e.g. ``The database``.
    """

    def __init__(
        self, what: str, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: float | None = None

    @property
    def is_out(self) -> bool:
        """True between a failure and the next success."""
        return self._since is not None

    def failed(self, error: Exception) -> None:
        """Note a failure; only the first of an outage is logged."""
        with self._lock:
            if self._since is None:
                self._since = self._monotonic()
                self._log.error("%s: %s", self._what, error)
            else:
                self._log.debug("%s still: %s", self._what, error)

    def succeeded(self) -> None:
        """Note a success; only the one that ends an outage is logged."""
        if self._since is None:
            return
        with self._lock:
            if self._since is not None:
                seconds = self._monotonic() - self._since
                self._since = None
                self._log.info("%s is back after %.0f s", self._what, seconds)
