"""Lines of pieces of text, each with a style, of which screens consist; states as such pieces."""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from nodetracker.cmd.screen.terminal import Terminal, cut_text, width_of
from nodetracker.views.values import render_age


class Style(enum.StrEnum):
    """What a piece of text means; `output` decides how that looks."""

    PLAIN = "plain"
    TITLE = "title"
    DIM = "dim"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    RESERVED = "reserved"
    CLAIMED = "claimed"
    UNCLAIMED = "unclaimed"
    LEFT = "left"
    EXCESS = "excess"


class Piece(NamedTuple):
    """A text of one style, on one line."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Piece, ...]
BLANK: Line = ()


def make_line(*parts: str | Piece) -> Line:
    """Return a line of pieces and plain texts."""
    return tuple(Piece(part) if isinstance(part, str) else part for part in parts)


def line_width(line: Line) -> int:
    """Return the number of cells that a line takes."""
    return sum(width_of(piece.text) for piece in line)


def pad_line(line: Line, width: int, is_right: bool = False) -> Line:
    """Return a line with blanks up to `width` cells."""
    missing = width - line_width(line)
    if missing <= 0:
        return line
    blanks = Piece(" " * missing)
    return (blanks, *line) if is_right else (*line, blanks)


def cut_line(line: Line, width: int, has_unicode: bool = True) -> Line:
    """Return a line that takes at most `width` cells; an ellipsis ends one that was cut."""
    if line_width(line) <= width:
        return line
    kept: list[Piece] = []
    room = width
    for piece in line:
        size = width_of(piece.text)
        if size >= room:  # the rest is cut, so there is an ellipsis even if it fits exactly
            text = piece.text if size > room else f"{piece.text} "
            kept.append(Piece(cut_text(text, room, has_unicode), piece.style))
            break
        kept.append(piece)
        room -= size
    return tuple(kept)


def dim_lines(lines: Iterable[Line]) -> list[Line]:
    """Return lines whose pieces are all dim."""
    return [tuple(Piece(piece.text, Style.DIM) for piece in line) for line in lines]


def plain_text(lines: Iterable[Line]) -> str:
    """Return lines as text without styles; blanks at their ends are left out."""
    return "".join("".join(piece.text for piece in line).rstrip() + "\n" for line in lines)


_STATES = {  # word -> sign, its ASCII form, style
    "up": ("●", "*", Style.GOOD),
    "down": ("✖", "x", Style.BAD),
    "unreachable": ("?", "?", Style.BAD),
    "disabled": ("○", "o", Style.WARNING),
    "maintenance": ("◐", "m", Style.WARNING),
    "late": ("◔", "~", Style.WARNING),
    "stale": ("◔", "~", Style.WARNING),
    "never read": ("◌", "-", Style.WARNING),
    "warning": ("▲", "!", Style.WARNING),
    "running": ("●", "*", Style.GOOD),
    "shutdown": ("○", "o", Style.DIM),
    "crashed": ("✖", "x", Style.BAD),
    "error": ("✖", "x", Style.BAD),
    "held": ("◐", "~", Style.WARNING),
    "confirmed": ("●", "*", Style.GOOD),
    "released": ("○", "o", Style.DIM),
}
_OTHER = (" ", " ", Style.PLAIN)


def draw_state(word: str, terminal: Terminal) -> Line:
    """Return a state as its sign and word; the sign of an unknown state is a blank."""
    sign, ascii_sign, style = _STATES.get(word, _OTHER)
    return (Piece(f"{terminal.choose(sign, ascii_sign)} {word}", style),)


def draw_node_state(
    state: str, status: str, maintenance: bool, is_read: bool, down_seconds: float | None,
    terminal: Terminal,
) -> Piece:  # fmt: skip
    """Return the state of a node or service, since when it is down, and what its operator set.

    Args:
        is_read: False = a node that was never read, which is not shown as up.
        down_seconds: None = it is up, or unknown.

    >>> draw_node_state("down", "disabled", False, True, 7300, Terminal()).text
    '✖ down 2 h, disabled'
    """
    word, setting = word_of(state, status, maintenance), word_of("up", status, maintenance)
    (text, style), *_ = draw_state("never read" if word == "up" and not is_read else word, terminal)
    if state == "up":
        return Piece(text, style)
    age = "" if down_seconds is None else f" {render_age(down_seconds, is_short=True)}"
    return Piece(f"{text}{age}" + (f", {setting}" if setting != "up" else ""), style)


def style_of(word: str) -> Style:
    """Return the style of a state."""
    return _STATES.get(word, _OTHER)[2]


def word_of(state: str, status: str, maintenance: bool) -> str:
    """Return the one word for a node's state: liveness first, then what its operator set.

    >>> word_of("up", "disabled", False), word_of("down", "disabled", True)
    ('disabled', 'down')
    """
    if state != "up":
        return state
    if maintenance:
        return "maintenance"
    return "disabled" if status == "disabled" else state


_NEARLY_FULL = 0.9


def style_of_share(allocated: float, limit: float) -> Style:
    """Return the style of a share of what may be allocated."""
    if allocated > limit:
        return Style.BAD
    return Style.WARNING if allocated >= _NEARLY_FULL * limit and limit > 0 else Style.PLAIN
