"""Draw states: a sign, a word and a color, so that none of them is needed alone."""

from nodetracker.cmd.screen.lines import Line, Piece, Style
from nodetracker.cmd.screen.terminal import Terminal

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
    return (Piece(f"{sign if terminal.has_unicode else ascii_sign} {word}", style),)


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
