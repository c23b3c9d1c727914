"""Draw a node's machine, NUMA cells and PCI functions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nodetracker.accounting.reports.describe import NodeDescription
from nodetracker.accounting.reports.node_hardware import CellLine, CpuUse, DevicePool
from nodetracker.cmd.screen.describe_state import draw_labeled
from nodetracker.cmd.screen.lines import Line, Piece, Style, line_width, make_line
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.text import safe_text
from nodetracker.cmd.screen.values import count_noun, render_mib, render_speed
from nodetracker.model.node import NodeValues
from nodetracker.units import KIB_PER_MIB

_WORDS = {CpuUse.HOST: "of the host"}
_MOST_CELLS = 8
_MOST_DISKS = 6
_MOST_NICS = 6
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
    values = described.record.values
    system = values.system
    product = " ".join(filter(None, (system.get("vendor"), system.get("product"))))
    serial = f"serial {system['serial']}" if system.get("serial") else ""
    version = system.get("firmware_version")
    firmware = f"firmware {version}" if version else ""
    engine = " ".join(filter(None, (values.engine.get("name"), values.engine.get("version"))))
    hypervisor = " ".join(
        filter(None, (values.hypervisor_type, _render_version(values.hypervisor_version)))
    )
    disks = ", ".join(
        f"{disk['name']} {render_mib(disk.get('size_mb'))}" for disk in values.disks[:_MOST_DISKS]
    )
    nics = _render_nics(system.get("nics", ()), terminal)
    software = ", ".join(filter(None, (values.os, values.kernel_version)))
    hypervisors = ", ".join(filter(None, (hypervisor, engine)))
    return draw_labeled(
        [
            ("Product", ", ".join(filter(None, (product, serial, firmware)))),
            ("CPU", _render_cpu(values)),
            ("Caches", _render_caches(system.get("caches", ()))),
            ("Memory", f"{render_mib(values.memory_mb)}{f'; disks {disks}' if disks else ''}"),
            ("Network", "; ".join(filter(None, (values.host_ip, nics)))),
            ("System", "; ".join(filter(None, (software, hypervisors)))),
        ],
        terminal,
    )


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


def _render_cpu(values: NodeValues) -> str:
    info = values.cpu_info
    topology = info.get("topology") or {}
    names = (("cells", "cell"), ("sockets", "socket"), ("cores", "core"), ("threads", "thread"))
    parts = [
        count_noun(topology[key], noun)
        for key, noun in names
        if topology.get(key) and (key != "cells" or topology[key] > 1)
    ]
    model = info.get("model") or values.architecture
    return ", ".join(filter(None, (model, " x ".join(parts))))


def _render_caches(caches: Sequence[Mapping[str, Any]]) -> str:
    """Return the caches as lscpu names them.

    >>> _render_caches([{"level": 1, "kind": "data", "size_kb": 32, "count": 16}])
    '16 x 32 KiB L1d'
    """
    texts = []
    for cache in caches:
        size = cache["size_kb"]
        shown = f"{size} KiB" if size < KIB_PER_MIB else render_mib(size / KIB_PER_MIB)
        suffix = "" if cache["kind"] == "unified" else cache["kind"][0]
        texts.append(f"{cache['count']} x {shown} L{cache['level']}{suffix}")
    return ", ".join(texts)


def _render_nics(nics: Sequence[Mapping[str, Any]], terminal: Terminal) -> str:
    """Return the first interfaces, those of equal speed and driver together."""
    names: dict[str, list[str]] = {}
    for nic in nics[:_MOST_NICS]:
        driver = f" ({nic['driver']})" if nic["driver"] else ""
        names.setdefault(f"{render_speed(nic['speed_mbps'])}{driver}", []).append(nic["name"])
    texts = [f"{' '.join(found)} {text}" for text, found in names.items()]
    if len(nics) > _MOST_NICS:
        dots = "…" if terminal.has_unicode else "..."
        texts.append(f"{dots} {len(nics) - _MOST_NICS} more")
    return ", ".join(texts)


def _render_version(version: int) -> str:
    """Return Nova's version number as text.

    >>> _render_version(8002001)
    '8.2.1'
    """
    parts = (version // 1_000_000, version // 1000 % 1000, version % 1000)
    return ".".join(map(str, parts)) if version else ""
