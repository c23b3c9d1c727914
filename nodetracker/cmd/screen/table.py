"""Draw lists as tables that fit the terminal.

Flexible columns get narrower first. Then columns are left out, those of the highest
priority number first. No other column is ever cut, so uuids never break.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nodetracker.accounting.reports.values import NONE
from nodetracker.cmd.screen.columns import Column, draw_cell
from nodetracker.cmd.screen.lines import Line, Piece, Style
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.text import pad_text, width_of, wrap_text

_GAP = 2

Widths = Mapping[int, int]
"""Index of a column that is shown -> its width, in order."""


def draw_table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    terminal: Terminal,
    now: datetime | None,
    is_complete: bool = False,
) -> list[Line]:
    """Return a table: its header, and at least one line for each row.

    Args:
        rows: column of the list -> value; in the order in which they are shown.
        now: of the ages; required if a column has one.
        is_complete: show all columns, even if the lines get longer than the terminal is wide.
    """
    cells = [[draw_cell(column, row, terminal, now) for column in columns] for row in rows]
    if not is_complete:
        columns, cells = _leave_out(columns, cells)
    needed = [
        max(width_of(piece.text) for piece in (Piece(column.title), *(row[index] for row in cells)))
        for index, column in enumerate(columns)
    ]
    widths = fit_columns(columns, needed, None if is_complete else terminal.width)
    header = [Piece(column.title.upper(), Style.TITLE) for column in columns]
    lines = _draw_row(header, columns, widths)
    for row in cells:
        lines += _draw_row(row, columns, widths)
    hidden = [column.title for index, column in enumerate(columns) if index not in widths]
    if hidden and terminal.is_interactive:
        text = f"not shown: {', '.join(hidden)} (--long shows all)"
        lines += [(Piece(line, Style.DIM),) for line in wrap_text(text, terminal.width)]
    return lines


def _leave_out(
    columns: Sequence[Column], cells: Sequence[Sequence[Piece]]
) -> tuple[list[Column], list[list[Piece]]]:
    """Leave out columns without any value, and those that repeat another one."""
    indexes = {column.title: index for index, column in enumerate(columns)}
    kept = []
    for index, column in enumerate(columns):
        is_empty = column.priority and all(row[index].text == NONE for row in cells)
        other = indexes.get(column.same_as)
        is_same = other is not None and all(row[index].text == row[other].text for row in cells)
        if not is_empty and not is_same:
            kept.append(index)
    return [columns[index] for index in kept], [[row[index] for index in kept] for row in cells]


def fit_columns(columns: Sequence[Column], needed: Sequence[int], available: int | None) -> Widths:
    """Return the columns that are shown.

    Args:
        needed: width of each column.
        available: width of the table, None = without a limit.
    """
    kept = list(range(len(columns)))
    if available is None:
        return dict(zip(kept, needed, strict=True))
    least = [
        min(width, column.least) if column.is_flexible else width
        for column, width in zip(columns, needed, strict=True)
    ]
    by_priority = sorted(kept, key=lambda index: columns[index].priority)
    while _total(kept, least) > available and columns[by_priority[-1]].priority:
        kept.remove(by_priority.pop())
    room = max(0, available - _total(kept, least))
    widths = {}
    for index in kept:
        widths[index] = min(needed[index], least[index] + room)
        room -= widths[index] - least[index]
    return widths


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + _GAP * (len(kept) - 1)


def _draw_row(cells: Sequence[Piece], columns: Sequence[Column], widths: Widths) -> list[Line]:
    """Return the lines of a row: one, unless a flexible cell takes more."""
    parts = {
        index: wrap_text(cells[index].text, width)
        if width_of(cells[index].text) > width
        else [cells[index].text]
        for index, width in widths.items()
    }
    lines = []
    for number in range(max(map(len, parts.values()))):
        pieces: list[Piece] = []
        for index, width in widths.items():
            text = parts[index][number] if number < len(parts[index]) else ""
            if pieces:
                pieces.append(Piece(" " * _GAP))
            style = cells[index].style
            pieces.append(Piece(pad_text(text, width, columns[index].is_right), style))
        lines.append(tuple(pieces))
    return lines
