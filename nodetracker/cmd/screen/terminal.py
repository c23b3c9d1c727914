"""Find out what the terminal of an output can show."""

import locale
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

DEFAULT_WIDTH = 80
DEFAULT_HEIGHT = 24
_MIN_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Terminal:
    """What an output can show.

    Attributes:
        width, height: in character cells.
        has_width: lines are limited by the width; those of tables in a pipe or file are not.
        is_interactive: a person sees it now, so it may be repainted.
        has_color: colors and other attributes may be used.
        has_fixed_colors: it has xterm's 256 colors, of which 240 are the same on all terminals.
        has_unicode: characters other than ASCII can be shown.
    """

    width: int = DEFAULT_WIDTH
    height: int = DEFAULT_HEIGHT
    has_width: bool = True
    is_interactive: bool = False
    has_color: bool = False
    has_fixed_colors: bool = True
    has_unicode: bool = True

    def choose(self, text: str, in_ascii: str) -> str:
        """Return a text of ours, or what stands for it where only ASCII can be shown."""
        return text if self.has_unicode else in_ascii


def detect_terminal(out: TextIO, environ: Mapping[str, str] = os.environ) -> Terminal:
    """Return what an output can show.

    The size is that of ``COLUMNS`` and ``LINES``, else of the terminal, else 80 x 24 for
    screens and unlimited for tables.
    There are no colors without a terminal, or with ``NO_COLOR`` (https://no-color.org)
    or ``TERM=dumb``, and only ASCII unless both locale and output use UTF-8.
    """
    is_interactive = out.isatty() and environ.get("TERM") != "dumb"
    size = _read_size(out, environ)
    has_many = "256color" in environ.get("TERM", "") or bool(environ.get("COLORTERM"))
    encodings = (out.encoding or "ascii", locale.getencoding())
    return Terminal(
        width=max(_MIN_WIDTH, size.columns or DEFAULT_WIDTH),
        height=size.lines or DEFAULT_HEIGHT,
        has_width=size.columns > 0,
        is_interactive=is_interactive,
        has_color=is_interactive and not environ.get("NO_COLOR"),
        has_fixed_colors=has_many,
        has_unicode=all(name.lower().replace("-", "") == "utf8" for name in encodings),
    )


def _read_size(out: TextIO, environ: Mapping[str, str]) -> os.terminal_size:
    """Return the size, 0 where it is unknown."""
    found = os.terminal_size((0, 0))
    if out.isatty():
        try:
            found = os.get_terminal_size(out.fileno())
        except (OSError, ValueError):  # a stream without a descriptor
            found = shutil.get_terminal_size((DEFAULT_WIDTH, DEFAULT_HEIGHT))
    columns, lines = (
        int(text) if text.isdecimal() and len(text) < 5 else 0
        for text in (environ.get("COLUMNS", ""), environ.get("LINES", ""))
    )
    return os.terminal_size((columns or found.columns, lines or found.lines))
