"""Draw one node for people, in sections of few lines."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from nodetracker.accounting.reports.description import NodeDescription, ResourceLine, WorkloadUse
from nodetracker.accounting.reports.history import Names
from nodetracker.accounting.reports.overview import ResourceUse
from nodetracker.accounting.reports.values import render_age, render_mib, render_plain
from nodetracker.cmd.screen.bars import PARTS, draw_bar, draw_legend
from nodetracker.cmd.screen.columns import Column, Kind
from nodetracker.cmd.screen.describe_hardware import draw_cells, draw_machine, draw_pools
from nodetracker.cmd.screen.describe_state import draw_state_section
from nodetracker.cmd.screen.history import draw_changes
from nodetracker.cmd.screen.lines import (
    BLANK,
    Line,
    Piece,
    Style,
    cut_line,
    line_width,
    make_line,
    pad_line,
)
from nodetracker.cmd.screen.node_lines import TITLES
from nodetracker.cmd.screen.node_values import list_facts
from nodetracker.cmd.screen.table import draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.text import cut_text, safe_text, wrap_text
from nodetracker.model.claim import DISK, MEMORY
from nodetracker.model.text import to_plain
from nodetracker.model.units import MILLI

MOST_WORKLOADS = 10
MOST_CHANGES = 5
_MOST_WARNINGS = 4
_MOST_CLASSES = 4
_MOST_FACTS = 5
_BARS = (6, 30)
_BEYOND = 4
_INDENT = "  "
_TITLE = 14
_WITH_BARS = "Capacity"


def draw_description(described: NodeDescription, names: Names, terminal: Terminal) -> list[Line]:
    """Return the screen of one node.

    Args:
        names: of what the changes name, see `changes.collect_names`.
    """
    sections = (
        ("State", draw_state_section(described, terminal)),
        ("Machine", draw_machine(described, terminal)),
        (_WITH_BARS, _draw_capacity(described, terminal)),
        ("Why used", _draw_workloads(described, terminal)),
        ("NUMA", draw_cells(described.cells, terminal)),
        ("PCI and GPUs", draw_pools(described, terminal)),
        ("Facts", _draw_facts(described, terminal)),
        ("Warnings", _draw_warnings(described, terminal)),
        ("Recent changes", _draw_changes(described, names, terminal)),
    )
    lines: list[Line] = []
    for title, content in sections:
        if content:
            lines += [BLANK] if lines else []
            legend = draw_legend(terminal) if title == _WITH_BARS else ()
            lines.append((Piece(f"{title:<{_TITLE}}", Style.TITLE), *legend))
            lines += [(Piece(_INDENT), *line) for line in content]
    return [cut_line(line, terminal.width, terminal.has_unicode) for line in lines]


def _draw_capacity(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return a table with a bar in each line, and what the parts of bars mean."""
    found = [line for line in described.resources if line.use != ResourceUse()]
    shown = found[: len(TITLES) + _MOST_CLASSES]
    titles = ("total", *(style.value for style in PARTS), "free", "ratio")
    columns = [
        Column("", ("resource",)),
        *(Column(title, (title,), Kind.NUMBER) for title in titles),
    ]
    rows = [_row_of(line) for line in shown]
    table = draw_table(columns, rows, terminal, None, is_complete=True)
    width = max(map(line_width, table), default=0)
    least, most = _BARS
    room = terminal.width - width - len(_INDENT) - 2 - _BEYOND
    lines = [table[0]]
    for drawn, line in zip(table[1:], shown, strict=True):
        bar = draw_bar(line.use, min(most, room), _BEYOND, terminal) if room >= least else ()
        lines.append((*pad_line(drawn, width + 2), *bar))
    return lines + _draw_more(len(found) - len(shown), terminal)


def _row_of(line: ResourceLine) -> dict[str, Any]:
    render = partial(_render_amount, line.resource, line.parts)
    use = line.use
    return {
        "resource": TITLES.get(line.resource, line.resource),
        "total": render(use.total),
        "reserved": render(use.reserved),
        "claimed": render(use.claimed),
        "unclaimed": render(use.unclaimed),
        "free": render(use.free),
        "ratio": f"{line.ratio:g} {line.origin}".strip(),
    }


def _render_amount(resource: str, parts: int, amount: int) -> str:
    if not amount:
        return "0"
    if resource in (MEMORY, DISK):
        return render_mib(amount)
    return render_plain(round(amount / parts, 1))


def _draw_workloads(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return what is reserved and the largest workloads."""
    reserved = {line.resource: line for line in described.resources if line.use.reserved}
    rows = [_row_of_use(use, terminal) for use in described.workloads[:MOST_WORKLOADS]]
    amounts = {
        name: _render_amount(line.resource, line.parts, line.use.reserved)
        for name, line in reserved.items()
    }
    if reserved:
        names = dict(zip(TITLES, ("cpu", "pinned", "memory", "disk"), strict=True))
        first = dict.fromkeys(("cpu", "pinned", "memory", "disk"), "0")
        first |= {names[name]: text for name, text in amounts.items() if name in names}
        rows.insert(0, {"workload": "reserved", "claim": "for the host", **first})
    if not rows:
        return [make_line(Piece("nothing is reserved or used", Style.DIM))]
    columns = [Column("workload", ("workload",)), Column("claim", ("claim",), Kind.STATE)]
    columns += [
        Column(name, (name,), Kind.NUMBER)
        for name in ("cpu", "pinned", "memory", "disk")
        if name != "pinned" or any(row["pinned"] != "0" for row in rows)
    ]
    table = draw_table(columns, rows, terminal, None, is_complete=True)
    return table + _draw_more(len(described.workloads) - MOST_WORKLOADS, terminal)


def _row_of_use(use: WorkloadUse, terminal: Terminal) -> dict[str, Any]:
    charge = use.charge
    name = safe_text(use.name, terminal.has_unicode)
    return {
        "workload": cut_text(name, max(20, terminal.width // 3), terminal.has_unicode),
        "claim": use.state,
        "cpu": _render_amount("", MILLI, charge.vcpu_milli),
        "pinned": _render_amount("", 1, charge.pcpus),
        "memory": _render_amount(MEMORY, 1, charge.memory_mb),
        "disk": _render_amount(DISK, 1, charge.disk_mb),
    }


def _draw_facts(described: NodeDescription, terminal: Terminal) -> list[Line]:
    facts: Mapping[str, Any] = to_plain(described.record.values.facts)
    texts = list_facts(facts, described.state == "up", described.audit_age_seconds, described.now)
    lines = [make_line(safe_text(text, terminal.has_unicode)) for text in texts[:_MOST_FACTS]]
    return lines + _draw_more(len(texts) - _MOST_FACTS, terminal)


def _draw_warnings(described: NodeDescription, terminal: Terminal) -> list[Line]:
    lines: list[Line] = []
    for found in described.warnings[:_MOST_WARNINGS]:
        warning = found.warning
        age = render_age((described.now - found.first_seen).total_seconds())
        text = f"{warning.kind.value}: {warning.message} ({age})"
        lines += _wrap([safe_text(text, terminal.has_unicode)], Style.WARNING, terminal)
    return lines + _draw_more(len(described.warnings) - _MOST_WARNINGS, terminal)


def _wrap(texts: Iterable[str], style: Style, terminal: Terminal) -> list[Line]:
    room = terminal.width - len(_INDENT)
    return [make_line(Piece(part, style)) for text in texts for part in wrap_text(text, room)]


def _draw_changes(described: NodeDescription, names: Names, terminal: Terminal) -> list[Line]:
    """Return a line for each change, the newest last."""
    shown = described.changes[:MOST_CHANGES][::-1]
    ages = [f"{render_age((described.now - entry.at).total_seconds())} ago" for entry in shown]
    width = max(map(len, ages), default=0)
    lines: list[Line] = []
    for entry, age in zip(shown, ages, strict=True):
        items = draw_changes(entry, names, terminal)
        pieces: list[Piece] = [Piece(f"{age:>{width}}  ", Style.DIM)]
        for number, item in enumerate(items):
            pieces.append(Piece(("; " if number else "") + item.text, item.style))
        lines.append(cut_line(tuple(pieces), terminal.width - len(_INDENT), terminal.has_unicode))
    return lines


def _draw_more(count: int, terminal: Terminal) -> list[Line]:
    if count <= 0:
        return []
    ellipsis = "…" if terminal.has_unicode else "..."
    return [make_line(Piece(f"{ellipsis} {count} more", Style.DIM))]
