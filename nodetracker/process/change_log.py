"""Log who changed what, in one format: requests to the REST service, agents' calls, commands.

No text of others forges a line of any log: `guard_records` escapes it when the record is made.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any

from nodetracker.model.text import escape_text
from nodetracker.process.log_guard import LossGuard

LOG = logging.getLogger(__name__)

CHANGES = logging.getLogger("nodetracker.changes")
"""Logs changes, failed logins and refused callers; `open_change_file` adds a file."""

_MAX_CHARACTERS = 1024
_FIELDS = ("request_id", "who", "what", "target", "address", "outcome")
_AS_THEY_ARE = (int, float, type(None))

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
    fields = {
        "request_id": request_id,
        "who": who,
        "what": what,
        "target": target,
        "address": address,
        "outcome": outcome,
    }
    CHANGES.info("Change %s: %s", request_id, cut_line(line), extra=describe_event(**fields))


def cut_line(text: str) -> str:
    r"""Return a text on one line, cut where it is long.

    >>> print(cut_line("node a\nChange -: b"))
    node a\x0aChange -: b
    """
    return escape_text(text[:_MAX_CHARACTERS])


def describe_event(**fields: object) -> dict[str, Any]:
    """Return what a record needs for `[audit] log_format = json`, as its ``extra``.

    Args:
        fields: request_id, who, what, target, address and outcome, as far as they are known.
    """
    return {"change_fields": fields}


class _Escaped:
    """An argument of a record, whose texts are escaped."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return escape_text(str(self._value))

    def __repr__(self) -> str:
        return escape_text(repr(self._value))


def _escape(value: object) -> object:
    if isinstance(value, str):
        return escape_text(value)
    return value if isinstance(value, _AS_THEY_ARE) else _Escaped(value)


class _Record(logging.LogRecord):
    """A record whose message is one line, whatever its arguments contain."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        self.msg = escape_text(self.msg) if isinstance(self.msg, str) else _Escaped(self.msg)
        if isinstance(self.args, Mapping):
            self.args = {name: _escape(value) for name, value in self.args.items()}
        elif self.args:
            self.args = tuple(map(_escape, self.args))


def guard_records() -> None:
    """Escape controls, bidirectional controls and newlines in all records from now on.

    A traceback keeps its lines; `SafeFormatter` escapes all else in it.
    """
    logging.setLogRecordFactory(_Record)


class _JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level and fields; what a record lacks is null."""
        fields = getattr(record, "change_fields", {})
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        shown = {name: fields.get(name) for name in _FIELDS}
        if not fields:
            shown["outcome"] = record.getMessage()
        return json.dumps({"at": at, **shown}, default=str)


_FORMATTERS: Mapping[str, logging.Formatter] = {
    "text": logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"),
    "json": _JsonFormatter(),
}
"""``[audit] log_format`` -> how a line of the file is made."""


def open_change_file(path: str | None, log_format: str = "text") -> None:
    """Write the lines to a file, too; one that was moved away is opened again.

    A file that cannot be written is logged once and affects nothing else. It replaces
    another one, from which no line is lost meanwhile.
    """
    before = [held for held in CHANGES.handlers if isinstance(held, _ChangeFile)]
    if path and path not in [held.baseFilename for held in before]:
        CHANGES.addHandler(_ChangeFile(path))
        CHANGES.setLevel(logging.INFO)
    for handler in [held for held in before if held.baseFilename != path]:
        CHANGES.removeHandler(handler)
        handler.close()
    for handler in [held for held in CHANGES.handlers if isinstance(held, _ChangeFile)]:
        handler.setFormatter(_FORMATTERS[log_format])


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

    def add(self, line: str, name: str | None = None, **fields: object) -> None:
        """Log one.

        Args:
            name: of what is refused; the same one again within the minute is not logged.
            fields: see `describe_event`.
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
            CHANGES.warning("%s", cut_line(line), extra=describe_event(**fields))
        elif logged == MAX_REFUSALS + 1:
            CHANGES.warning(
                "%s: more than %d times within %g s; further ones are not logged",
                self._what, MAX_REFUSALS, WINDOW_SECONDS,
            )  # fmt: skip


class _ChangeFile(WatchedFileHandler):
    """Appends to a file; the other log has one warning while that fails."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        LossGuard(self, self._report)

    def _report(self, reason: str) -> None:
        LOG.warning("[audit] log_file: %s: %s; going on without it", self.baseFilename, reason)
