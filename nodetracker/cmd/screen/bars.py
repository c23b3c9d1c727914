"""Draw bars of what may be allocated: reserved, claimed, unclaimed and left.

A bar is as wide as what may be allocated; what is allocated in excess of it continues
beyond its end. Each part has its own character, so that colors are not needed.
"""

from collections.abc import Sequence

from nodetracker.cmd.screen.lines import Line, Piece, Style, style_of_share
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.views.overview import ResourceUse

_FILLS = {  # style -> character, its ASCII form
    Style.RESERVED: ("▒", "%"),
    Style.CLAIMED: ("█", "#"),
    Style.UNCLAIMED: ("▓", "+"),
    Style.LEFT: ("░", "."),
    Style.EXCESS: ("»", ">"),
}
PARTS = (Style.RESERVED, Style.CLAIMED, Style.UNCLAIMED)


def fill_of(style: Style, terminal: Terminal) -> str:
    """Return the character that fills a part of a bar."""
    return terminal.choose(*_FILLS[style])


def draw_bar(use: ResourceUse, width: int, beyond: int, terminal: Terminal) -> Line:
    """Return a bar of `width` cells for the limit and up to `beyond` cells for the excess.

    A part that is not 0 has at least one cell, and a bar that is not full one free cell. The
    color says how full it is, and the characters say of what.
    """
    fullness = style_of_share(use.allocated, use.limit)
    hues = {} if fullness is Style.PLAIN else dict.fromkeys(PARTS[1:], fullness)
    amounts = [use.reserved, use.claimed, use.unclaimed]
    cells = share_cells(amounts, use.limit, width)
    pieces = [
        Piece(fill_of(style, terminal) * count, hues.get(style, style))
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
    levels = terminal.choose("▁▂▃▄▅▆▇█", "_.:-=+*#")
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
