"""Draw the history of nodes, and what an entry of it changed."""

from collections.abc import Sequence
from datetime import UTC, datetime

from nodetracker.cmd.screen.lines import Line, Piece, Style
from nodetracker.cmd.screen.table import NARROWEST, shorten_names
from nodetracker.cmd.screen.terminal import (
    Terminal,
    pad_text,
    safe_text,
    width_of,
    wrap_text,
)
from nodetracker.model.change import HistoryEntry
from nodetracker.views.history import Names, describe_entry

_NAME_SHARE = 5  # a name takes at most a fifth of the line
_NARROWEST = 30


def draw_history(
    entries: Sequence[HistoryEntry], names: Names, now: datetime | None, terminal: Terminal
) -> list[Line]:
    """Return the lines of changes: time in UTC (Z), node, and what changed.

    Args:
        entries: in the order in which they are shown.
        now: the date is shown unless all entries are of the same day; None = always.
    """
    is_today = now is not None and all(
        entry.at.astimezone(UTC).date() == now.date() for entry in entries
    )
    layout = "%H:%M:%SZ" if is_today else "%Y-%m-%d %H:%M:%SZ"
    has_unicode, widest = terminal.has_unicode, terminal.width // _NAME_SHARE
    shown = [safe_text(entry.nodename, has_unicode) for entry in entries]
    if terminal.has_width:
        short = shorten_names(shown, max(widest, NARROWEST), has_unicode)
        shown = [short[name] for name in shown]
    width = max(map(width_of, shown), default=0)
    lines: list[Line] = []
    for entry, name in zip(entries, shown, strict=True):
        time = entry.at.astimezone(UTC).strftime(layout)
        room = max(_NARROWEST, terminal.width - len(time) - width - 4)
        indent = " " * (len(time) + width + 4)
        for item in draw_changes(entry, names, terminal):
            texts = wrap_text(item.text, room) if terminal.has_width else [item.text]
            for number, text in enumerate(texts):
                start = (
                    (Piece(indent),)
                    if number
                    else (
                        Piece(f"{time}  ", Style.DIM),
                        Piece(f"{pad_text(name, width)}  ", Style.TITLE),
                    )
                )
                lines.append((*start, Piece(text, item.style)))
    return lines


def draw_changes(entry: HistoryEntry, names: Names, terminal: Terminal) -> list[Piece]:
    """Return what an entry changed, a piece for each thing."""
    pieces = []
    for text, level in describe_entry(entry, names):
        shown = text if terminal.has_unicode else text.replace("→", "->").replace("…", "...")
        pieces.append(Piece(safe_text(shown, terminal.has_unicode), Style(level)))
    return pieces
