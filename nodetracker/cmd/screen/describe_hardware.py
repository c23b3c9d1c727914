"""Draw a node's machine, NUMA cells and PCI functions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nodetracker.accounting.reports.description import NodeDescription
from nodetracker.accounting.reports.hardware import CellLine, CpuUse, DevicePool, list_machine
from nodetracker.accounting.reports.values import render_mib
from nodetracker.cmd.screen.describe_state import draw_labeled
from nodetracker.cmd.screen.lines import Line, Piece, Style, line_width, make_line
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.text import safe_text
from nodetracker.model.text import count_noun
from nodetracker.model.units import KIB_PER_MIB

_WORDS = {CpuUse.HOST: "of the host"}
_MOST_CELLS = 8
_MOST_POOLS = 6
_MOST_USERS = 3
_MOST_DRAWN = 192
_CPUS = {  # use -> character, its ASCII form, style
    CpuUse.SHARED: ("○", "s", Style.FREE),
    CpuUse.DEDICATED: ("□", "d", Style.GOOD),
    CpuUse.PINNED: ("■", "P", Style.CLAIMED),
    CpuUse.HOST: ("·", ".", Style.RESERVED),
    CpuUse.OFFLINE: ("✖", "x", Style.BAD),
}


def draw_machine(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return the lines of the section Machine."""
    fields = list_machine(described.record.values)
    if not terminal.has_unicode:
        fields = [(label, text.replace("…", "...")) for label, text in fields]
    return draw_labeled(fields, terminal)


def draw_cells(cells: Sequence[CellLine], terminal: Terminal) -> list[Line]:
    """Return the lines of each cell: how its CPUs are used, its memory, and each CPU drawn."""
    lines: list[Line] = []
    for cell in cells[:_MOST_CELLS]:
        title = "no cell" if cell.id is None else f"cell {cell.id}"
        start: Line = (Piece(f"{title:<9}", Style.DIM), *_sum_up(cell, terminal))
        memory = Piece(_render_memory(cell), Style.PLAIN)
        drawn = [] if cell.id is None else _draw_cpus(cell, terminal)
        if drawn and line_width(drawn[-1]) + len(memory.text) + 4 <= terminal.width:
            drawn[-1] = (*drawn[-1], Piece("  "), memory)
        elif memory.text:
            drawn.append((Piece("  "), memory))
        lines += [start, *drawn]
    if len(cells) > _MOST_CELLS:
        text = f"{'…' if terminal.has_unicode else '...'} {len(cells) - _MOST_CELLS} more"
        lines.append(make_line(Piece(text, Style.DIM)))
    return lines


def draw_pools(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return a line for each pool with its users."""
    lines: list[Line] = []
    for pool in described.pools[:_MOST_POOLS]:
        cell = "" if pool.numa_node is None else f", cell {pool.numa_node}"
        text = f"{pool.title}{cell}: {_render_use(pool)}"
        lines.append(make_line(safe_text(text, terminal.has_unicode)))
    rest = []
    if len(described.pools) > _MOST_POOLS:
        rest.append(f"{len(described.pools) - _MOST_POOLS} more pools")
    if described.host_devices:
        rest.append(f"{count_noun(described.host_devices, 'other function')} of the host")
    if rest:
        lines.append(make_line(Piece(", ".join(rest), Style.DIM)))
    return lines


def _render_use(pool: DevicePool) -> str:
    if not pool.total:
        return "no device spec matches it"
    users = Counter(pool.users).most_common()
    names = [name if count == 1 else f"{name} ({count})" for name, count in users[:_MOST_USERS]]
    if len(users) > _MOST_USERS:
        names.append(f"{len(users) - _MOST_USERS} more")
    used = f"; used by {', '.join(names)}" if names else ""
    return f"{pool.free} of {pool.total} free{used}"


def _draw_cpus(cell: CellLine, terminal: Terminal) -> list[Line]:
    """Return the CPUs as characters; none for a cell with very many."""
    if sum(map(len, cell.cores)) > _MOST_DRAWN:
        return []
    has_threads = any(len(core) > 1 for core in cell.cores)
    lines: list[Line] = []
    pieces: list[Piece] = [Piece("  ")]
    used = 2
    for core in cell.cores:
        size = len(core) + has_threads
        if used + size > terminal.width - 2:
            lines.append(tuple(pieces))
            pieces, used = [Piece("  ")], 2
        for _, use in core:
            sign, ascii_sign, style = _CPUS[use]
            pieces.append(Piece(sign if terminal.has_unicode else ascii_sign, style))
        pieces += [Piece(" ")] if has_threads else []
        used += size
    return [*lines, tuple(pieces)] if used > 2 else lines


def _sum_up(cell: CellLine, terminal: Terminal) -> Line:
    """Return how many CPUs have each use, with the character of it."""
    counts = Counter(use for core in cell.cores for _, use in core)
    pieces: list[Piece] = []
    for use, (sign, ascii_sign, style) in _CPUS.items():
        if counts[use]:
            pieces.append(Piece(sign if terminal.has_unicode else ascii_sign, style))
            pieces.append(Piece(f" {counts[use]} {_WORDS.get(use, use.value)}  "))
    return tuple(pieces) or make_line("no CPUs")


def _render_memory(cell: CellLine) -> str:
    """Return a cell's memory and huge pages."""
    texts = []
    if cell.memory_mb:
        used = f", {render_mib(cell.memory_used_mb)} used" if cell.memory_used_mb else ""
        texts.append(render_mib(cell.memory_mb) + used)
    texts += [_render_pages(pool) for pool in cell.pages]
    return "; ".join(texts)


def _render_pages(pool: Mapping[str, Any]) -> str:
    free = pool["total"] - pool["used"] - pool["reserved"]
    return f"{render_mib(pool['size_kb'] / KIB_PER_MIB)} pages: {free} of {pool['total']} free"
