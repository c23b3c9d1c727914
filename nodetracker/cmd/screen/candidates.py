"""Draw candidates: what is left on each node, beside the most that any of them has."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodetracker.accounting.reports.values import render_gib, render_mib, render_plain
from nodetracker.cmd.screen.bars import fill_of, share_cells
from nodetracker.cmd.screen.columns import Column, Kind
from nodetracker.cmd.screen.lines import Line, Piece, Style, cut_line, line_width, pad_line
from nodetracker.cmd.screen.table import draw_table
from nodetracker.cmd.screen.terminal import Terminal

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
        Column("host", ("host",)),
        Column("node", ("nodename",)),
        Column("weight", ("weight",), Kind.NUMBER),
    )
    rounded = [{**row, "weight": round(row["weight"], 3)} for row in rows]
    lines = draw_table(columns, rounded, terminal, None, is_complete=True)
    texts = {name: [render(row[name]) for row in rows] for name, (_, render) in _RENDERERS.items()}
    widths = {name: max(map(len, found)) for name, found in texts.items()}
    start = max(map(line_width, lines))
    room = terminal.width - start - sum(widths.values()) - (2 * _GAP - 1) * len(_RENDERERS)
    least, most = _BARS
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
    return [cut_line(line, terminal.width, terminal.has_unicode) for line in lines]


def _draw_left(left: float, largest: float, width: int, terminal: Terminal) -> Line:
    (count,) = share_cells([max(0, left)], max(largest, 0), width)
    return (
        Piece(fill_of(Style.CLAIMED, terminal) * count, Style.GOOD),
        Piece(fill_of(Style.FREE, terminal) * (width - count), Style.FREE),
    )
