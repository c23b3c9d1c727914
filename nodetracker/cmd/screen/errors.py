"""Draw errors of commands: one line, broken between words on a terminal."""

import logging
from typing import TextIO

from nodetracker.cmd.screen.terminal import detect_terminal
from nodetracker.cmd.screen.text import safe_text, wrap_text

ERROR_LENGTH = 500
"""Maximum length of an error's line."""


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
