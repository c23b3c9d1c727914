"""Says once that something is away and once that it is back, however often it is tried."""

import logging
import threading
import time
from collections.abc import Callable


class OutageLog:
    """One line when an outage begins, one when it ends.

    It begins with the first activity that fails and ends when none fails any
    more: what can only be read or is full fails one and not the other. Safe for
    several threads.

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
        self._since = 0.0
        self._failing: set[str] = set()
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """What the last failure said, None when there is no outage."""
        return self._error

    @property
    def is_out(self) -> bool:
        """True while any activity fails."""
        return bool(self._failing)

    def run(self, activity: str, call: Callable[[], object]) -> None:
        """Make a call whose failures of the one type are logged here and not raised.

        Args:
            activity: what is done; its next success ends its failure.
        """
        failure: Exception | None = None
        try:
            call()
        except self._error_type as error:
            failure = error
        # Logged here because the formatter repeats the error of a surrounding handler.
        if failure is None:
            self._succeeded(activity)
        else:
            self._failed(activity, failure)

    def _failed(self, activity: str, error: Exception) -> None:
        with self._lock:
            self._error = str(error)
            if not self._failing:
                self._since = self._monotonic()
                self._log.error("%s: %s", self._what, error)
            else:
                self._log.debug("%s still: %s", self._what, error)
            self._failing.add(activity)

    def _succeeded(self, activity: str) -> None:
        if activity not in self._failing:
            return
        with self._lock:
            self._failing.discard(activity)
            if not self._failing:
                seconds = self._monotonic() - self._since
                self._error = None
                self._log.info("%s is back after %.0f s", self._what, seconds)
