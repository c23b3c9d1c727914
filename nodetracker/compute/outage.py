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
        error_type: what the failures are.
    """

    def __init__(
        self,
        what: str,
        error_type: type[Exception],
        log: logging.Logger,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._error_type = error_type
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: float | None = None
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """What the last failure said, None when there is no outage."""
        return self._error

    @property
    def is_out(self) -> bool:
        """True between a failure and the next success."""
        return self._since is not None

    def run(self, call: Callable[[], object]) -> None:
        """Make a call whose failures of the one type are logged here and not raised."""
        failure: Exception | None = None
        try:
            call()
        except self._error_type as error:
            failure = error
        # Logged here because the formatter repeats the error of a surrounding handler.
        if failure is None:
            self._succeeded()
        else:
            self._failed(failure)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._error = str(error)
            if self._since is None:
                self._since = self._monotonic()
                self._log.error("%s: %s", self._what, error)
            else:
                self._log.debug("%s still: %s", self._what, error)

    def _succeeded(self) -> None:
        if self._since is None:
            return
        with self._lock:
            if self._since is not None:
                seconds = self._monotonic() - self._since
                self._since = self._error = None
                self._log.info("%s is back after %.0f s", self._what, seconds)
