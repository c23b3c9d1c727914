"""Draw one object: a line for each of its fields, with long values of nodes summed up."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodetracker.cmd.screen.lines import Line, Piece, Style, style_of
from nodetracker.cmd.screen.table import is_number
from nodetracker.cmd.screen.terminal import Terminal, pad_text, safe_text, width_of, wrap_text
from nodetracker.model.amount_text import Role, render_gib, render_mib
from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.fact import FactState
from nodetracker.model.text import count_noun, render_minute
from nodetracker.views.values import age_of, render_age, render_moment, render_plain

MAX_LINES = 3
"""Lines that a complex value may take before it is summed up."""

_GAP = 2
_WIDEST = 2**31  # without a limit
_NARROWEST = 20

Summaries = Mapping[str, Callable[[Any], str]]
"""Name of a field -> function that sums up its value in a few words."""

Facts = Mapping[str, Mapping[str, Any]]
"""Name of a fact -> its entry in ``node show``."""


class TextLines(tuple[str, ...]):
    """Texts of which each has its own line."""

    __slots__ = ()


def draw_fields(
    fields: Sequence[tuple[str, Any]],
    terminal: Terminal,
    now: datetime | None,
    summaries: Summaries,
    is_complete: bool = False,
) -> list[Line]:
    """Return the lines of an object.

    Args:
        fields: name and value, in order; a list of texts has a line for each.
        now: of the ages; required if a field has one, see `has_moment`.
        is_complete: sum up no value.
    """
    width = max((width_of(name) for name, _ in fields), default=0)
    room = max(_NARROWEST, terminal.width - width - _GAP) if terminal.has_width else _WIDEST
    lines: list[Line] = []
    for name, value in fields:
        texts = _draw_value(name, value, room, now, summaries, is_complete)
        style = style_of(str(value)) if name in ("state", "status") else Style.PLAIN
        for number, text in enumerate(texts):
            label = pad_text(name if number == 0 else "", width + _GAP)
            shown = safe_text(text, terminal.has_unicode)
            lines.append((Piece(label, Style.TITLE), Piece(shown, style)))
    return lines


def has_moment(name: str, value: Any) -> bool:
    """Return whether a field has a time in ISO 8601, of which its age is shown."""
    return isinstance(value, str) and name.endswith(("_at", "last_seen_up", "since"))


def sum_up(value: Any) -> str:
    """Return the size of a complex value in words.

    >>> sum_up([1, 2]), sum_up({"a": 1})
    ('2 items', '1 key')
    """
    return count_noun(len(value), "key" if isinstance(value, Mapping) else "item")


def _draw_value(
    name: str, value: Any, room: int, now: datetime | None, summaries: Summaries, is_complete: bool
) -> list[str]:
    if isinstance(value, TextLines):
        return [part for text in value for part in wrap_text(safe_text(text), room)] or ["-"]
    lines = wrap_text(safe_text(_render(name, value, now)), room)
    is_long = isinstance(value, Mapping | list | tuple) and len(lines) > MAX_LINES
    if not is_long or is_complete:
        return lines
    return wrap_text(f"{safe_text(summaries.get(name, sum_up)(value))} (--all shows them)", room)


def _render(name: str, value: Any, now: datetime | None) -> str:
    if is_number(value):
        text = render_plain(value)
        size = _size_of(name, value)
        if size is None or size == text or size.startswith(f"{text} "):
            return size or text
        return f"{text} ({size})"
    if has_moment(name, value):
        assert now is not None
        age = render_moment(value, now)
        time = render_minute(datetime.fromisoformat(value))
        return f"{time} ({age})" if age.startswith("in ") else f"{time} ({age} ago)"
    return render_plain(value)


def _size_of(name: str, value: float) -> str | None:
    """Return an amount with its unit as the field's name suggests, None without a unit."""
    is_free = name.startswith("free_") or name in ("mem_available", "disk_available_least")
    role = Role.FREE if is_free else Role.USED
    if name.endswith(("_mb", "_mb_used")) or name == "mem_available":
        return render_mib(value, role)
    if name.endswith(("_gb", "_gb_used")) or name in ("disk_available_least", "disk_used"):
        return render_gib(value, role)
    return None


def list_facts(facts: Facts, is_up: bool, age_seconds: float | None, now: datetime) -> list[str]:
    """Return the facts that are not fresh, a line each, and a line for all others.

    Args:
        is_up: whether the node's agent is; without it nothing is fresh.
        age_seconds: since the last good reading, None = never.
    """
    age = render_age(age_seconds)
    read = "never read" if age_seconds is None else f"read {age} ago"
    others = [name for name, entry in facts.items() if entry["state"] == FactState.FRESH]
    lines = [
        f"{name}: {entry['state']} for {render_age(age_of(entry['since'], now))}: "
        f"{entry['error'] or 'no value yet'}"
        for name, entry in facts.items()
        if entry["state"] != FactState.FRESH
    ]
    if others and not is_up:
        which = "all" if not lines else ", ".join(others)
        return [f"{which} as last known, {read}", *lines]
    if others:
        return [f"all fresh, {read}" if not lines else f"{', '.join(others)}: fresh", *lines]
    return lines


def _sum_up_topology(topology: Mapping[str, Any]) -> str:
    cells: Sequence[Mapping[str, Any]] = topology.get("cells", ())
    cpus = sum(len(cell.get("cpuset", ())) + len(cell.get("pcpuset", ())) for cell in cells)
    return f"{count_noun(len(cells), 'cell')}, {count_noun(cpus, 'CPU')}"


def _sum_up_cpu(info: Mapping[str, Any]) -> str:
    parts = [
        info.get("model") or info.get("arch") or "",
        f"{count_noun(len(parse_cpu_set(str(info.get('online') or ''))), 'CPU')} online",
        count_noun(len(info.get("features") or ()), "feature"),
    ]
    return ", ".join(part for part in parts if part)


def _sum_up_system(system: Mapping[str, Any]) -> str:
    product = " ".join(filter(None, (system.get("vendor"), system.get("product"))))
    nics = count_noun(len(system.get("nics") or ()), "NIC")
    return ", ".join(filter(None, (product, nics)))


NODE_SUMMARIES: Summaries = {
    "numa_topology": _sum_up_topology,
    "cpu_info": _sum_up_cpu,
    "pci_stats": lambda pools: count_noun(len(pools), "pool"),
    "traits": lambda traits: count_noun(len(traits), "trait"),
    "system": _sum_up_system,
    "disks": lambda disks: count_noun(len(disks), "disk"),
    "gpus": lambda gpus: count_noun(len(gpus), "GPU"),
    "inventory": lambda classes: count_noun(len(classes), "resource class", "resource classes"),
    "labels": lambda labels: count_noun(len(labels), "label"),
    "mdev_types": lambda types: count_noun(len(types), "type"),
    "supported_instances": lambda kinds: count_noun(len(kinds), "combination"),
}
"""How ``node show`` sums up values that would take more than three lines."""
