r"""What the terminal of an output can show, and text that is safe and fits there.

Text of others, such as names of guests, may contain anything. It is made safe before it is
measured: characters that would move the cursor, clear the screen, forge lines or reverse their
order are shown as ``\x1b``.
"""

import locale
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from nodetracker.model.text import escape_text

DEFAULT_WIDTH = 80
DEFAULT_HEIGHT = 24
_MIN_WIDTH = 20
_PARTS = re.compile(r".*[-./:_@]")


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
        """Return a text, or another one where only ASCII can be shown."""
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


def safe_text(text: str, has_unicode: bool = True) -> str:
    r"""Return a text with its control characters shown as escapes; a safe text is not changed.

    Args:
        has_unicode: False also shows characters other than ASCII as escapes.

    >>> print(safe_text("a\x1b[31m\nb\u202e"))
    a\x1b[31m\x0ab\u202e
    """
    shown = escape_text(text)
    return shown if has_unicode else shown.encode("ascii", "backslashreplace").decode()


def width_of(text: str) -> int:
    """Return the number of cells that a safe text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # imported late: most text is ASCII

    return cell_len(text)


def cut_text(text: str, width: int, has_unicode: bool = True) -> str:
    """Return a text that takes at most `width` cells; an ellipsis ends one that was cut.

    >>> cut_text("compute-with-a-long-name", 12), cut_text("short", 12)
    ('compute-wit…', 'short')
    """
    if width_of(text) <= width:
        return text
    ellipsis = "…" if has_unicode else "..."
    room = max(0, width - len(ellipsis))
    if text.isascii():
        return (text[:room] + ellipsis)[:width]
    from rich.cells import set_cell_size

    return (set_cell_size(text, room).rstrip() + ellipsis)[:width]


def cut_middle(text: str, width: int, has_unicode: bool = True) -> str:
    """Return a text that takes at most `width` cells, cut in its middle.

    >>> cut_middle("rack-02-node-0040", 11), cut_middle("short", 11)
    ('rack-…-0040', 'short')
    """
    if width_of(text) <= width:
        return text
    room = max(2, width - (1 if has_unicode else 3))
    tail = _head(text[::-1], room // 2)[::-1]
    head = _head(text, room - width_of(tail))
    return f"{head}{'…' if has_unicode else '...'}{tail}"


def cut_start(text: str, width: int, has_unicode: bool = True) -> str:
    """Return a text that takes at most `width` cells; an ellipsis begins one that was cut.

    >>> cut_start("rack-02-node-0040", 11), cut_start("short", 11)
    ('…-node-0040', 'short')
    """
    if width_of(text) <= width:
        return text
    ellipsis = "…" if has_unicode else "..."
    return ellipsis + _head(text[::-1], width - len(ellipsis))[::-1]


def pad_text(text: str, width: int, is_right: bool = False) -> str:
    """Return a text with blanks up to `width` cells."""
    blanks = " " * (width - width_of(text))
    return blanks + text if is_right else text + blanks


def wrap_text(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between words; only longer words are broken.

    >>> wrap_text("the node is not listed", 11), wrap_text("rack-1-hypervisor-0.example", 24)
    (['the node is', 'not listed'], ['rack-1-hypervisor-0.', 'example'])
    """
    lines, current = [], ""
    for word in text.split(" "):
        joined = f"{current} {word}" if current else word
        if width_of(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        while width_of(word) > width:
            head = _head(word, width)
            if parts := _PARTS.match(head):  # else it is one part, as of a language without blanks
                head = parts.group()
            lines.append(head)
            word = word[len(head) :]
        current = word
    return [*lines, current]


def _head(text: str, width: int) -> str:
    """Return the longest start of a text that takes at most `width` cells, at least one."""
    end = min(len(text), width)
    while end > 1 and width_of(text[:end]) > width:
        end -= 1
    return text[: max(1, end)]
