"""Standard streams of programs: those that are closed, errors of one line, the end of output."""

import copy
import logging
import os
import sys
from pathlib import Path
from typing import IO, NoReturn, TextIO

from nodetracker.cmd.screen.terminal import detect_terminal, safe_text, wrap_text
from nodetracker.model.errors import RefusedError
from nodetracker.model.text import escape_lines, escape_text
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED, EXIT_USAGE

ERROR_LENGTH = 500
"""Maximum length of an error's line."""


def replace_closed_streams() -> None:
    """Let a closed standard input be empty, and discard what is printed to a closed output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)


def make_safe(stream: TextIO) -> TextIO:
    """Return a stream whose text is made safe if it is a terminal, else the stream itself."""
    return SafeStream(stream) if stream.isatty() else stream  # type: ignore[return-value]


def unwrap(stream: IO[str]) -> IO[str]:
    """Return the stream below a `SafeStream`."""
    return stream.stream if isinstance(stream, SafeStream) else stream


class SafeStream:
    """An output to a terminal whose text is made safe; all else is the stream's own.

    Attributes:
        stream: for what `nodetracker.cmd.screen.output` has made safe already.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text, of which lines are kept."""
        return self.stream.write(escape_lines(text))

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the stream."""
        return getattr(self.stream, name)


def write_output(text: str = "") -> None:
    """Print a text and all that was printed before; a reader that has gone needs none of it.

    Raises:
        RefusedError: it cannot be written, e.g. because the file system is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())  # or Python fails to write the rest at its end
        os.close(nothing)
        if not isinstance(error, BrokenPipeError):
            raise RefusedError(f"the output cannot be written: {error.strerror}") from error


def end_output(code: int) -> int:
    """Write all that was printed; return the exit code, that of a failure if it cannot be written.

    An error of another cause keeps its code and is the only one that is printed.
    """
    try:
        write_output()
    except RefusedError as error:
        if code == EXIT_DONE:
            print(draw_error(error, sys.stderr), file=sys.stderr)
            return EXIT_FAILED
    return code


def render_error(error: object) -> str:
    """Return the line of an error: safe to print, and cut after 500 characters."""
    text = safe_text(str(error))
    return text if len(text) <= ERROR_LENGTH else f"{text[: ERROR_LENGTH - 3]}..."


def draw_error(error: object, out: TextIO) -> str:
    """Return the line of an error, safe to print; on a terminal it is broken between words."""
    text = render_error(error)
    if not out.isatty():
        return text
    return "\n".join(wrap_text(text, detect_terminal(out).width))


def fail_usage(program: str, message: str) -> NoReturn:
    """Print a usage error, and exit."""
    print(draw_error(f"{program}: {message} (see {program} --help)", sys.stderr), file=sys.stderr)
    raise SystemExit(EXIT_USAGE)


class ErrorFormatter(logging.Formatter):
    """Formats a message as `draw_error` does, and a traceback in full.

    Args:
        out: where it is printed.
    """

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        if record.exc_info:
            return super().format(record)
        return draw_error(record.getMessage(), self._out)


class SafeFormatter(logging.Formatter):
    """Formats a record as another formatter does, safe to print and with its message on one line.

    The lines of a traceback, and the color that a handler chose, are kept.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, which other handlers get unchanged."""
        shown = copy.copy(record)
        shown.msg, shown.args = escape_text(record.getMessage()), None
        text = escape_lines(self._format(shown))
        color = getattr(shown, "color", "")
        return text.replace(escape_lines(color), color) if color else text

    def _format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, of nodetracker's own only what they say.

        To others oslo.log (8.3) appends whatever error is being handled, unless its type is
        one of a few, such as TypeError.
        """
        if record.exc_info or not (record.name or "").startswith("nodetracker"):
            return self._formatter.format(record)
        try:
            raise TypeError
        except TypeError:
            return self._formatter.format(record)
