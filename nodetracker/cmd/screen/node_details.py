"""Draw one node in sections of few lines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS
from nodetracker.cmd.screen.bars import PARTS, draw_bar, draw_legend
from nodetracker.cmd.screen.fields import list_facts
from nodetracker.cmd.screen.history import draw_changes
from nodetracker.cmd.screen.lines import (
    BLANK,
    Line,
    Piece,
    Style,
    cut_line,
    draw_state,
    line_width,
    make_line,
    pad_line,
    word_of,
)
from nodetracker.cmd.screen.overview import TITLES
from nodetracker.cmd.screen.table import Column, Kind, draw_table, shorten_names
from nodetracker.cmd.screen.terminal import Terminal, pad_text, safe_text, wrap_text
from nodetracker.model.amount_text import NONE, Role, render_mib, render_parts
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.serializer import encode
from nodetracker.model.text import count_noun, name_some
from nodetracker.model.tolerance import Verdict
from nodetracker.model.units import KIB_PER_MIB
from nodetracker.views.description import NodeDescription, ResourceLine, WorkloadUse
from nodetracker.views.hardware import CellLine, CpuUse, DevicePool, list_machine
from nodetracker.views.history import Names
from nodetracker.views.overview import ResourceUse, left_on_node
from nodetracker.views.services import status_of
from nodetracker.views.tolerance import describe_loss, render_since
from nodetracker.views.values import render_age

_LABEL = 12
_WORDS = {CpuUse.HOST: "of the host"}
_MAX_CELLS = 8
_LEAST_NAME = 20
_MAX_POOLS = 6
_MAX_USERS = 3
_MAX_DRAWN = 192
_CPUS = {  # use -> character, its ASCII form, style
    CpuUse.SHARED: ("○", "s", Style.LEFT),
    CpuUse.DEDICATED: ("□", "d", Style.GOOD),
    CpuUse.PINNED: ("■", "P", Style.CLAIMED),
    CpuUse.HOST: ("·", ".", Style.RESERVED),
    CpuUse.OFFLINE: ("✖", "x", Style.BAD),
}
MAX_WORKLOADS = 10
MAX_CHANGES = 5
_MAX_WARNINGS = 4
_MAX_CLASSES = 4
_MAX_FACTS = 5
_BARS = (6, 30)
_BEYOND = 4
_INDENT = "  "
_TITLE = 14
_WITH_BARS = "Capacity"


def draw_description(described: NodeDescription, names: Names, terminal: Terminal) -> list[Line]:
    """Return the screen of one node.

    Args:
        names: of what the changes name, see `collect_names`.
    """
    sections = (
        ("State", _draw_state(described, terminal)),
        ("Machine", _draw_machine(described, terminal)),
        ("Measured", _draw_measured(described, terminal)),
        (_WITH_BARS, _draw_capacity(described, terminal)),
        ("Why used", _draw_workloads(described, terminal)),
        ("NUMA", _draw_cells(described.cells, terminal)),
        ("PCI and GPUs", _draw_pools(described, terminal)),
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


def _draw_state(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return the lines of the section State."""
    record, service = described.record, described.service
    maintenance = service is not None and service.maintenance
    status = status_of(service)
    word = word_of(described.state, status, maintenance)
    if word == "up" and described.audit_age_seconds is None:
        word = "never read"
    start = Piece(pad_text("Node", _LABEL), Style.DIM)
    name = record.nodename if record.nodename == record.host else f"{record.host} {record.nodename}"
    node = Piece(f"{safe_text(name, terminal.has_unicode)}  ", Style.TITLE)
    also = [text for text, kind, is_set in (
                (status, status, True), ("in maintenance", "maintenance", maintenance),
                ("spare", "spare", service is not None and service.spare))
            if is_set and kind != word]  # fmt: skip
    rest = Piece(", ".join(["", *also]))
    lines: list[Line] = [(start, node, *draw_state(word, terminal), rest)]
    if described.down_since is not None:
        age = render_age((described.now - described.down_since).total_seconds())
        lines += _draw_labeled([("Down for", age)], terminal, Style.BAD)
    if service is not None and service.disabled:
        fields = [
            ("Reason", service.disabled_reason or "no reason given"),
            ("Disabled", _render_since(service.disabled_at, service.disabled_by, described.now)),
        ]
        lines += _draw_labeled(fields, terminal, Style.WARNING)
    if service is not None and service.forced_down:
        since = _render_since(service.forced_down_at, service.forced_down_by, described.now)
        text = ": ".join(filter(None, (since, service.forced_down_reason)))
        forced = [("Forced down", text or "no reason given")]
        lines += _draw_labeled(forced, terminal, Style.WARNING)
    if service is not None and service.maintenance:
        since = _render_since(service.maintenance_at, service.maintenance_by, described.now)
        text = ": ".join(filter(None, (since, service.maintenance_reason)))
        lines += _draw_labeled([("Maintenance", text)], terminal, Style.WARNING)
    lines += _draw_loss(described, terminal)
    return lines + _draw_labeled([("UUID", record.uuid), *_list_fields(described)], terminal)


def _draw_loss(described: NodeDescription, terminal: Terminal) -> list[Line]:
    loss = described.loss
    if loss is None:
        return []
    style = Style.PLAIN if loss.verdict is Verdict.SURVIVED else Style.WARNING
    text = describe_loss(loss) + render_since([loss], described.now)
    return _draw_labeled([("If it fails", text)], terminal, style)


def _render_since(at: datetime | None, by: str | None, now: datetime) -> str:
    since = f"{render_age((now - at).total_seconds())} ago" if at else ""
    return " ".join(filter(None, (since, by and f"by {by}")))


def _list_fields(described: NodeDescription) -> list[tuple[str, str]]:
    record, service, now = described.record, described.service, described.now
    age = described.audit_age_seconds
    read = "never read" if age is None else f"{render_age(age)} ago"
    if service is None:
        return [("Agent", "the host has no agent"), ("Last read", read)]
    seen = service.last_seen_up
    heartbeat = "never" if seen is None else f"{render_age((now - seen).total_seconds())} ago"
    run = service.incarnation
    held = service.ended_epoch != service.epoch
    holder = f"{run.agent_id}, process {run.pid}, epoch {service.epoch}"
    booted = record.values.booted_at
    uptime = NONE if booted is None else render_age((now - booted).total_seconds())
    is_up = described.state == "up"
    return [
        ("Last read", f"{read}; heartbeat {heartbeat}"),
        (
            "Agent",
            f"version {service.version}, {holder}" if held else "ended; nobody holds the host",
        ),
        ("Uptime", uptime if is_up else ""),
    ]


def _draw_labeled(
    fields: Iterable[tuple[str, str]], terminal: Terminal, style: Style = Style.PLAIN
) -> list[Line]:
    """Return a line for each field that has a text, or several if it is long."""
    lines: list[Line] = []
    room = max(20, terminal.width - _LABEL - 2)
    for label, text in fields:
        if not text:
            continue
        for number, part in enumerate(wrap_text(safe_text(text, terminal.has_unicode), room)):
            start = pad_text("" if number else label, _LABEL)
            lines.append((Piece(start, Style.DIM), Piece(part, style)))
    return lines


def _draw_machine(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return the lines of the section Machine."""
    fields = list_machine(described.record.values)
    if not terminal.has_unicode:
        fields = [(label, text.replace("…", "...")) for label, text in fields]
    return _draw_labeled(fields, terminal)


def _draw_measured(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return the lines of the section Measured."""
    fields = [(found.label, found.render(described.now)) for found in described.measured]
    return _draw_labeled(fields, terminal)


def _draw_capacity(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return a table with a bar in each line, and what the parts of bars mean."""
    found = [line for line in described.resources if line.use != ResourceUse()]
    shown = found[: len(TITLES) + _MAX_CLASSES]
    titles = ("physical", *(style.value for style in PARTS), "left", "ratio")
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
    lines += _draw_more(len(found) - len(shown), terminal)
    for line in shown:
        left = left_on_node(line.resource, line.use, described.record.values.disk_available_least)
        if left.on_disk < left.amount:
            lines.append(make_line(f"{TITLES[line.resource]}: {left.render(line.resource)}"))
    return lines


def _row_of(line: ResourceLine) -> dict[str, Any]:
    render = partial(render_parts, line.resource)
    use = line.use
    return {
        "resource": TITLES.get(line.resource, line.resource),
        "physical": render(use.total),
        "reserved": render(use.reserved),
        "claimed": render(use.claimed),
        "unclaimed": render(use.unclaimed),
        "left": render(use.left, Role.FREE),
        "ratio": f"{line.ratio:g} {line.origin}".strip(),
    }


def _draw_workloads(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return what is reserved and the largest workloads."""
    reserved = {line.resource: line for line in described.resources if line.use.reserved}
    uses = described.workloads[:MAX_WORKLOADS]
    texts = [safe_text(use.name, terminal.has_unicode) for use in uses]
    short = shorten_names(texts, max(_LEAST_NAME, terminal.width // 3), terminal.has_unicode)
    rows = [_row_of_use(use, short[text]) for use, text in zip(uses, texts, strict=True)]
    amounts = {name: render_parts(name, line.use.reserved) for name, line in reserved.items()}
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
    return table + _draw_more(len(described.workloads) - MAX_WORKLOADS, terminal)


def _row_of_use(use: WorkloadUse, name: str) -> dict[str, Any]:
    charge = use.charge
    return {
        "workload": name,
        "claim": use.state,
        "cpu": render_parts(VCPU, charge.vcpu_milli),
        "pinned": render_parts(PCPU, charge.pcpus),
        "memory": render_parts(MEMORY, charge.memory_mb),
        "disk": render_parts(DISK, charge.disk_mb),
    }


def _draw_cells(cells: Sequence[CellLine], terminal: Terminal) -> list[Line]:
    """Return the lines of each cell: how its CPUs are used, its memory, and each CPU drawn."""
    lines: list[Line] = []
    for cell in cells[:_MAX_CELLS]:
        title = "no cell" if cell.id is None else f"cell {cell.id}"
        start: Line = (Piece(f"{title:<9}", Style.DIM), *_sum_up(cell, terminal))
        memory = Piece(_render_memory(cell), Style.PLAIN)
        drawn = [] if cell.id is None else _draw_cpus(cell, terminal)
        if drawn and line_width(drawn[-1]) + len(memory.text) + 4 <= terminal.width:
            drawn[-1] = (*drawn[-1], Piece("  "), memory)
        elif memory.text:
            drawn.append((Piece("  "), memory))
        lines += [start, *drawn]
    return lines + _draw_more(len(cells) - _MAX_CELLS, terminal)


def _sum_up(cell: CellLine, terminal: Terminal) -> Line:
    """Return how many CPUs have each use, with the character of it."""
    counts = Counter(use for core in cell.cores for _, use in core)
    pieces: list[Piece] = []
    for use, (sign, ascii_sign, style) in _CPUS.items():
        if counts[use]:
            pieces.append(Piece(terminal.choose(sign, ascii_sign), style))
            pieces.append(Piece(f" {counts[use]} {_WORDS.get(use, use.value)}  "))
    return tuple(pieces) or make_line("no CPUs")


def _draw_cpus(cell: CellLine, terminal: Terminal) -> list[Line]:
    """Return the CPUs as characters; none for a cell with very many."""
    if sum(map(len, cell.cores)) > _MAX_DRAWN:
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
            pieces.append(Piece(terminal.choose(sign, ascii_sign), style))
        pieces += [Piece(" ")] if has_threads else []
        used += size
    return [*lines, tuple(pieces)] if used > 2 else lines


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
    text = f"{render_mib(pool['size_kb'] / KIB_PER_MIB)} pages: {free} of {pool['total']} free"
    return f"{text}, {pool['withheld']} withheld" if "withheld" in pool else text


def _draw_pools(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return a line for each pool with its users."""
    lines: list[Line] = []
    for pool in described.pools[:_MAX_POOLS]:
        cell = "" if pool.numa_node is None else f", cell {pool.numa_node}"
        text = f"{pool.title}{cell}: {_render_use(pool)}"
        lines.append(make_line(safe_text(text, terminal.has_unicode)))
    rest = []
    if len(described.pools) > _MAX_POOLS:
        rest.append(f"{len(described.pools) - _MAX_POOLS} more pools")
    if described.host_devices:
        rest.append(f"{count_noun(described.host_devices, 'other function')} of the host")
    if rest:
        lines.append(make_line(Piece(", ".join(rest), Style.DIM)))
    return lines


def _render_use(pool: DevicePool) -> str:
    if not pool.total:
        return "no device spec matches it"
    users = Counter(pool.users).most_common()
    names = [name if count == 1 else f"{name} ({count})" for name, count in users[:_MAX_USERS]]
    if len(users) > _MAX_USERS:
        names.append(f"{len(users) - _MAX_USERS} more")
    used = f"; used by {', '.join(names)}" if names else ""
    if pool.withheld:
        used += f"; {pool.withheld} withheld for {name_some(pool.withheld_by)}"
    if pool.free is None:
        return f"{pool.total} counted as {GPU_RESOURCE_CLASS}{used}"
    return f"{pool.free} of {pool.total} free{used}"


def _draw_facts(described: NodeDescription, terminal: Terminal) -> list[Line]:
    facts: Mapping[str, Any] = encode(described.record.values.facts)
    texts = list_facts(facts, described.state == "up", described.audit_age_seconds, described.now)
    lines = [make_line(safe_text(text, terminal.has_unicode)) for text in texts[:_MAX_FACTS]]
    return lines + _draw_more(len(texts) - _MAX_FACTS, terminal)


def _draw_warnings(described: NodeDescription, terminal: Terminal) -> list[Line]:
    lines: list[Line] = []
    for found in described.warnings[:_MAX_WARNINGS]:
        warning = found.warning
        age = render_age((described.now - found.first_seen).total_seconds())
        text = f"{warning.kind.value}: {warning.message} ({age})"
        lines += _wrap([safe_text(text, terminal.has_unicode)], Style.WARNING, terminal)
    return lines + _draw_more(len(described.warnings) - _MAX_WARNINGS, terminal)


def _wrap(texts: Iterable[str], style: Style, terminal: Terminal) -> list[Line]:
    room = terminal.width - len(_INDENT)
    return [make_line(Piece(part, style)) for text in texts for part in wrap_text(text, room)]


def _draw_changes(described: NodeDescription, names: Names, terminal: Terminal) -> list[Line]:
    """Return a line for each change, the newest last."""
    shown = described.changes[:MAX_CHANGES][::-1]
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
    return [make_line(Piece(f"{terminal.choose('…', '...')} {count} more", Style.DIM))]
