"""Draw bars of what may be allocated: reserved, claimed, unclaimed and left; candidates' bars.

A bar is as wide as what may be allocated; what is allocated in excess of it continues
beyond its end. Each part has its own character, so that colors are not needed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodetracker.cmd.screen.lines import Line, Piece, Style, cut_line, line_width, pad_line
from nodetracker.cmd.screen.table import Column, Kind, draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.views.overview import ResourceUse
from nodetracker.views.values import render_gib, render_mib, render_plain

_FILLS = {  # style -> character, its ASCII form
    Style.RESERVED: ("▒", "%"),
    Style.CLAIMED: ("█", "#"),
    Style.UNCLAIMED: ("▓", "+"),
    Style.LEFT: ("░", "."),
    Style.EXCESS: ("»", ">"),
}
_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
PARTS = (Style.RESERVED, Style.CLAIMED, Style.UNCLAIMED)


def fill_of(style: Style, terminal: Terminal) -> str:
    """Return the character that fills a part of a bar."""
    return _FILLS[style][0 if terminal.has_unicode else 1]


def draw_bar(use: ResourceUse, width: int, beyond: int, terminal: Terminal) -> Line:
    """Return a bar of `width` cells for the limit and up to `beyond` cells for the excess.

    A part that is not 0 has at least one cell, and a bar that is not full one free cell.
    """
    amounts = [use.reserved, use.claimed, use.unclaimed]
    cells = share_cells(amounts, use.limit, width)
    pieces = [
        Piece(fill_of(style, terminal) * count, style)
        for style, count in zip(PARTS, cells, strict=True)
        if count
    ]
    if free := width - sum(cells):
        pieces.append(Piece(fill_of(Style.LEFT, terminal) * free, Style.LEFT))
    excess = -use.left
    if excess > 0 and beyond:
        size = min(beyond, max(1, round(excess * width / use.limit) if use.limit > 0 else beyond))
        pieces.append(Piece(fill_of(Style.EXCESS, terminal) * size, Style.EXCESS))
    return tuple(pieces)


def draw_sparkline(shares: Sequence[float | None], terminal: Terminal) -> str:
    """Return a character for each share of 1, a blank where it is unknown.

    >>> draw_sparkline([0, None, 0.5, 1.2], Terminal())
    '▁ ▅█'
    """
    levels = _LEVELS if terminal.has_unicode else _ASCII_LEVELS
    return "".join(
        " " if share is None else levels[max(0, min(7, int(share * 8)))] for share in shares
    )


def share_cells(amounts: Sequence[float], total: float, width: int) -> list[int]:
    """Return how many of a bar's cells each amount takes.

    >>> share_cells([1, 50, 0], 1000, 10), share_cells([0, 999, 0], 1000, 10)
    ([1, 1, 0], [0, 9, 0])
    """
    used = sum(amounts)
    if used <= 0 or width <= 0:
        return [0] * len(amounts)
    room = width if used >= total else min(width - 1, max(1, round(used * width / total)))
    cells, end, done = [], 0.0, 0
    for amount in amounts:
        end += amount
        cell = max(round(end * room / used) - done, 1 if amount > 0 else 0)
        cells.append(cell)
        done += cell
    while sum(cells) > max(room, sum(amount > 0 for amount in amounts)):
        cells[cells.index(max(cells))] -= 1
    return cells


def draw_legend(terminal: Terminal) -> Line:
    """Return what the characters of bars mean."""
    pieces: list[Piece] = []
    for style in (*PARTS, Style.LEFT):
        pieces += (
            Piece(fill_of(style, terminal), style),
            Piece(f" {style.value}  ", Style.DIM),
        )
    return tuple(pieces)


_RENDERERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "free_vcpus": ("CPU LEFT", render_plain),
    "free_memory_mb": ("MEMORY LEFT", render_mib),
    "free_disk_gb": ("DISK LEFT", render_gib),
}
_BARS = (4, 16)
_GAP = 2


def draw_candidates(rows: Sequence[Mapping[str, Any]], terminal: Terminal) -> list[Line]:
    """Return a line for each candidate, in the order of the list.

    A bar compares what is left on a node with the most that is left on any of them.

    Args:
        rows: columns of ``candidate list``.
    """
    columns = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME),
        Column("weight", ("weight",), Kind.NUMBER),
    )
    rounded = [{**row, "weight": round(row["weight"], 3)} for row in rows]
    texts = {name: [render(row[name]) for row in rows] for name, (_, render) in _RENDERERS.items()}
    widths = {name: max(map(len, found)) for name, found in texts.items()}
    least, most = _BARS
    needed = [
        _GAP + max(len(title), least + 1 + widths[name]) for name, (title, _) in _RENDERERS.items()
    ]
    of_names = replace(terminal, width=max(1, terminal.width - sum(needed)))
    lines = draw_table(columns, rounded, of_names, None)
    start = max(map(line_width, lines))
    room = terminal.width - start - sum(widths.values()) - (2 * _GAP - 1) * len(_RENDERERS)
    bar = max(least, min(most, room // len(_RENDERERS)))
    lines = [pad_line(line, start) for line in lines]
    for name, (title, _) in _RENDERERS.items():
        width = max(len(title), bar + 1 + widths[name])
        lines[0] = (*lines[0], Piece(f"{'':{_GAP}}{title:<{width}}", Style.TITLE))
        largest = max(row[name] for row in rows)
        for number, row in enumerate(rows, start=1):
            drawn = _draw_left(row[name], largest, bar, terminal)
            text = Piece(f" {texts[name][number - 1]:>{width - bar - 1}}")
            lines[number] = (*lines[number], Piece(" " * _GAP), *drawn, text)
    for number, row in reversed(list(enumerate(rows, start=1))):
        if row["left"]:
            names = "; ".join(left["text"] for left in row["left"])
            lines.insert(number + 1, (Piece(f"  left: {names}", Style.DIM),))
    if not terminal.has_width:
        return lines
    return [cut_line(line, terminal.width, terminal.has_unicode) for line in lines]


def _draw_left(left: float, largest: float, width: int, terminal: Terminal) -> Line:
    (count,) = share_cells([max(0, left)], max(largest, 0), width)
    return (
        Piece(fill_of(Style.CLAIMED, terminal) * count, Style.GOOD),
        Piece(fill_of(Style.LEFT, terminal) * (width - count), Style.LEFT),
    )
