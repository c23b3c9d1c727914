"""Log who changed what, in one format: requests to the REST service, agents' calls, commands."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from logging.handlers import WatchedFileHandler

from nodetracker.model.text import render_file_error

LOG = logging.getLogger(__name__)

CHANGES = logging.getLogger("nodetracker.changes")
"""Logs changes, failed logins and refused callers; `open_change_file` adds a file."""

_MAX_CHARACTERS = 1024

MAX_REFUSALS = 20
"""Refusals of one kind that are logged within a minute."""
WINDOW_SECONDS = 60.0


def log_change(
    who: str, what: str, target: str, address: str, outcome: object, request_id: str = "-"
) -> None:
    """Log a change in one line, which has no token, password or body.

    Args:
        who: user and project, host of an agent, or user of the operating system.
        what: rule, method or command.
        target: the objects that were named.
        address: where the change comes from, "-" = unknown.
        outcome: a status, or how it ended.
    """
    line = f"{who}, {what}, target {target} from {address}: {outcome}"
    CHANGES.info("Change %s: %s", request_id, make_line(line))


def make_line(text: str) -> str:
    r"""Return a text without what would end its line, cut where it is long.

    >>> make_line("node a\nChange -: b")
    'node a?Change -: b'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MAX_CHARACTERS])


def open_change_file(path: str | None) -> None:
    """Write the lines to a file, too; one that was moved away is opened again.

    A file that cannot be written is logged once and affects nothing else. It replaces
    another one, from which no line is lost meanwhile.
    """
    before = [held for held in CHANGES.handlers if isinstance(held, _ChangeFile)]
    if path and path not in [held.baseFilename for held in before]:
        added = _ChangeFile(path)
        added.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
        CHANGES.addHandler(added)
        CHANGES.setLevel(logging.INFO)
    for handler in [held for held in before if held.baseFilename != path]:
        CHANGES.removeHandler(handler)
        handler.close()


class RefusalLog:
    """Logs refusals of one kind, only some of them a minute, as anybody may cause thousands.

    Args:
        seconds: monotonic time.

    Attributes:
        count: of all since the start.
    """

    def __init__(self, what: str, seconds: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._seconds = seconds
        self._lock = threading.Lock()
        self._named: set[str] = set()
        self._logged = 0
        self._window_end = 0.0
        self.count = 0

    def add(self, line: str, name: str | None = None) -> None:
        """Log one.

        Args:
            name: of what is refused; the same one again within the minute is not logged.
        """
        with self._lock:
            self.count += 1
            if self._seconds() >= self._window_end:
                self._named, self._logged = set(), 0
                self._window_end = self._seconds() + WINDOW_SECONDS
            if name in self._named:
                return
            self._logged += 1
            logged = self._logged
            if name is not None and logged <= MAX_REFUSALS:
                self._named.add(name)
        if logged <= MAX_REFUSALS:
            CHANGES.warning("%s", make_line(line))
        elif logged == MAX_REFUSALS + 1:
            CHANGES.warning(
                "%s: more than %d times within %g s; further ones are not logged",
                self._what, MAX_REFUSALS, WINDOW_SECONDS,
            )  # fmt: skip


class _ChangeFile(WatchedFileHandler):
    """Appends to a file, and warns once while that fails."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self._error: OSError | None = None
        self._is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; raise nothing."""
        self._error = None
        try:
            super().emit(record)
        except OSError as error:
            self._error = error
        if self._error is not None:
            self._drop()
        if self._error is not None and not self._is_failing:
            reason = render_file_error(self._error)
            LOG.warning("[audit] log_file: %s: %s; going on without it", self.baseFilename, reason)
        self._is_failing = self._error is not None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Keep the error of a write, for `emit`."""
        error = sys.exc_info()[1]
        self._error = error if isinstance(error, OSError) else OSError(str(error))

    def _drop(self) -> None:
        """Forget the open file with what it could not write; the next line opens it again."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
