"""Log an outage once when it starts and once when it ends, however many calls fail."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from nodetracker.model.text import omit_tls_codes

T = TypeVar("T")

SETTLE_SECONDS = 5.0
"""How long a component that fails again and again works until its outage is over."""


class Watch(Protocol):
    """Makes a call, notes whether it failed, and returns its result or raises its error."""

    def __call__(self, call: Callable[[], T]) -> T:
        """Make the call."""


def watch_nothing(call: Callable[[], T]) -> T:
    """Make a call."""
    return call()


class OutageLog:
    """Logs one line when an outage starts and one when it ends.

    An outage starts when the first activity fails and ends when none is
    failing: a database that is read-only or full fails some activities and
    not others. Thread-safe.

    Args:
        what: the unavailable component in log lines, e.g. ``The database``.
        error_type: type of the errors that count as failures.
        settle_seconds: how long nothing may have failed before the end is logged. While
            several threads find out that a component fails or works, their calls fail and
            succeed alternately, which is one outage.
    """

    def __init__(
        self,
        what: str,
        error_type: type[Exception],
        log: logging.Logger,
        monotonic: Callable[[], float] = time.monotonic,
        settle_seconds: float = 0.0,
    ) -> None:
        self._what = what
        self._error_type = error_type
        self._log = log
        self._monotonic = monotonic
        self._settle_seconds = settle_seconds
        self._lock = threading.Lock()
        self._since: float | None = None  # its beginning is in the log, its end is not
        self._last_failure = self._until = 0.0
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

    def is_failing(self, activity: str) -> bool:
        """Return whether the last call of an activity failed."""
        return activity in self._failing

    def run(self, activity: str, call: Callable[[], object]) -> None:
        """Make a call; errors of `error_type` are logged instead of raised.

        Args:
            activity: name of what is done; its next success ends its failure.
        """
        with suppress(self._error_type):
            self.watch(activity, call)

    def watch(
        self,
        activity: str,
        call: Callable[[], T],
        error_types: tuple[type[Exception], ...] | None = None,
    ) -> T:
        """Make a call and return its result; errors that are failures are logged and raised.

        Args:
            activity: see `run`.
            error_types: those that are; None = `error_type`.
        """
        failures = (self._error_type,) if error_types is None else error_types
        failure: Exception | None = None
        try:
            result = call()
        except failures as error:
            failure = error
        # Logged outside the handler: the log formatter would append the error being handled.
        if failure is not None:
            self.note_failure(activity, failure)
            raise failure
        self.note_success(activity)
        return result

    def note_failure(self, activity: str, error: Exception) -> None:
        """Note that an activity failed."""
        with self._lock:
            self._error = omit_tls_codes(str(error))
            self._last_failure = self._monotonic()
            if self._since is None:
                self._since = self._last_failure
                self._log.error("%s: %s", self._what, self._error)
            else:
                self._log.debug("%s is still unavailable: %s", self._what, error)
            self._failing.add(activity)

    def note_success(self, activity: str) -> None:
        """Note that an activity succeeded, which ends its failure."""
        if self._since is None:
            return
        with self._lock:
            was_out = bool(self._failing)
            self._failing.discard(activity)
            if self._since is None or self._failing:
                return
            now = self._monotonic()
            if was_out:
                self._error, self._until = None, now
            if now - self._last_failure >= self._settle_seconds:
                seconds = self._until - self._since
                self._log.info("%s is back after %.0f s", self._what, seconds)
                self._since = None
