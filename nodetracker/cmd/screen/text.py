r"""Make text safe to print, and measure and cut it by the cells that it takes.

Names, labels and messages come from guests, engines and other hosts. Characters by
which such text could move the cursor, color the rest of the screen, forge lines or
reverse their order are shown as ``\x1b``.
"""

import re

from nodetracker.model.text import escape_text

_PARTS = re.compile(r".*[-./:_@]")


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
