"""Log an outage once when it starts and once when it ends, however many calls fail."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class OutageLog:
    """Logs one line when an outage starts and one when it ends.

    An outage starts when the first activity fails and ends when none is
    failing: a database that is read-only or full fails some activities and
    not others. Thread-safe.

    Args:
        what: the unavailable component in log lines, e.g. ``The database``.
        error_type: type of the errors that count as failures.
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
        """The last failure's message, None without an outage."""
        return self._error

    @property
    def is_out(self) -> bool:
        """True while any activity is failing."""
        return bool(self._failing)

    def run(self, activity: str, call: Callable[[], object]) -> None:
        """Make a call; errors of `error_type` are logged instead of raised.

        Args:
            activity: name of what is done; its next success ends its failure.
        """
        with suppress(self._error_type):
            self.watch(activity, call)

    def watch(self, activity: str, call: Callable[[], T]) -> T:
        """Make a call and return its result; errors of `error_type` are logged and raised.

        Args:
            activity: see `run`.
        """
        failure: Exception | None = None
        try:
            result = call()
        except self._error_type as error:
            failure = error
        # Logged outside the handler: the log formatter would append the error being handled.
        if failure is not None:
            self._failed(activity, failure)
            raise failure
        self._succeeded(activity)
        return result

    def _failed(self, activity: str, error: Exception) -> None:
        with self._lock:
            self._error = str(error)
            if not self._failing:
                self._since = self._monotonic()
                self._log.error("%s: %s", self._what, error)
            else:
                self._log.debug("%s is still unavailable: %s", self._what, error)
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
