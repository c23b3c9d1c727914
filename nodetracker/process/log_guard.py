"""Drop the lines that a log cannot take, such as one on a full disk, and say so once."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from nodetracker.model.text import count_noun, render_file_error

LOG = logging.getLogger(__name__)

Report = Callable[[str], None]
"""Is called with the reason when a log cannot be written any more; it raises nothing."""


def list_handlers() -> Iterator[logging.Handler]:
    """Yield the handlers of all loggers."""
    known = logging.getLogger().manager.loggerDict.values()
    for logger in (logging.getLogger(), *known):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers


def guard_handler(handler: logging.Handler) -> None:
    """Let a handler drop what it cannot write, and report that on stderr, once for each outage."""
    if isinstance(getattr(handler.emit, "__self__", None), LossGuard):
        return
    name = getattr(handler, "baseFilename", type(handler).__name__)

    def report(reason: str) -> None:
        if getattr(handler, "stream", None) is not sys.stderr:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"{name}: {reason}; dropping log lines until it can be written\n")
                sys.stderr.flush()

    LossGuard(handler, report)


class LossGuard:
    """Writes the lines of a handler, and counts those that cannot be written.

    As soon as one can be written again, the log says how many were lost. By default, the
    library prints a traceback for each of them.

    Args:
        handler: one of the library, whose methods are replaced; its lock is held whenever
            they are called.
        report: called with the reason for the first line that is lost.
    """

    def __init__(self, handler: logging.Handler, report: Report) -> None:
        self._handler = handler
        self._report = report
        self._emit = handler.emit
        self._handle_other = handler.handleError
        self._error: Exception | None = None
        self._lost = 0
        handler.emit = self.emit  # type: ignore[method-assign]
        handler.handleError = self.note_error  # type: ignore[method-assign]

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after what is to be said about those that were lost; raise nothing."""
        if self._lost:
            if not self._write(self._make_note(), ends_line=True):
                self._lost += 1
                return
            self._lost = 0
        if not self._write(record):
            self._lost = 1
            self._report(_explain(self._error))

    def note_error(self, record: logging.LogRecord) -> None:
        """Keep the error of a write; print that of a record that cannot be formatted."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError | MemoryError):
            self._error = error
        else:
            self._handle_other(record)

    def _write(self, record: logging.LogRecord, ends_line: bool = False) -> bool:
        """Write a record; return whether it was written.

        Args:
            ends_line: first end the line of which only the beginning could be written.
        """
        self._error = None
        try:
            if ends_line:
                self._end_line()
            self._emit(record)
        except OSError as error:  # of a file that is opened again
            self._error = error
        if self._error is not None:
            self._close()
        return self._error is None

    def _make_note(self) -> logging.LogRecord:
        text = "%s lost, as this log could not be written"
        lost = f"{count_noun(self._lost, 'line')} {'was' if self._lost == 1 else 'were'}"
        return LOG.makeRecord(LOG.name, logging.WARNING, __file__, 0, text, (lost,), None)

    def _end_line(self) -> None:
        path = getattr(self._handler, "baseFilename", None)
        if path is None or not Path(path).is_file():
            return
        with Path(path).open("rb+") as file:
            if file.seek(0, 2) and file.seek(-1, 2) is not None and file.read(1) != b"\n":
                file.write(b"\n")

    def _close(self) -> None:
        """Forget an open file with what it could not write; the next line opens it again."""
        handler = self._handler
        if isinstance(handler, logging.FileHandler) and handler.stream is not None:
            stream, handler.stream = handler.stream, None
            with contextlib.suppress(OSError):
                stream.close()


def _explain(error: Exception | None) -> str:
    return render_file_error(error) if isinstance(error, OSError) else "no memory is left"
