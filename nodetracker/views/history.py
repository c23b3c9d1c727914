"""Describe the lines of the history in a few words each, and render them as plain data."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from nodetracker.model.amount_text import render_gib, render_mib, render_number
from nodetracker.model.change import ChangeKind, EventKind, HistoryEntry
from nodetracker.model.serializer import pick
from nodetracker.model.text import count_noun
from nodetracker.model.units import MILLI
from nodetracker.views.values import render_plain

_KEYS = ("id", "size_kb", "uuid", "address", "name")  # by which items of lists are matched
_USED = {"vcpus_used": "vCPU", "pcpus_used": "pinned", "memory_mb_used": "memory",
         "local_gb_used": "disk"}  # fmt: skip
_FOLLOWING = {  # columns that follow from guests, claims and capacity
    "free_ram_mb", "free_disk_gb", "current_workload", "running_vms", "stats", "cpu_used",
    "disk_used", "total_containers", "running_containers", "paused_containers",
    "stopped_containers", "pci_stats",
}  # fmt: skip
_UNITS: Mapping[str, Callable[[float], str]] = {
    "_mb": render_mib, ".memory": render_mib, "_gb": render_gib,
    "_milli": lambda milli: render_number(milli / MILLI),
}  # fmt: skip
"""End of the path of an amount -> how it is shown; the memory of a NUMA cell is in MiB."""
_MAX_LEAVES = 3
_LONGEST_VALUE = 60

Names = Mapping[str, str]
"""Uuid of a guest or claim, or address of a device -> its name for people."""


class ChangeLevel(enum.StrEnum):
    """What a change means to an operator."""

    PLAIN = "plain"
    DIM = "dim"  # it follows from others
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class ChangeText(NamedTuple):
    """One thing that changed; the text may contain control characters of others' names."""

    text: str
    level: ChangeLevel = ChangeLevel.PLAIN


HISTORY_COLUMNS = ("at", "host", "nodename", "what", "diff", "kind")


def render_history_entry(entry: HistoryEntry) -> dict[str, Any]:
    """Return the columns of ``node history`` for one change."""
    line = pick(entry, "at", "host", "nodename", "what")
    return line | {"diff": dict(entry.diff), "kind": str(entry.kind)}


def render_history_page(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the items of a page of the history in REST, with what changed as texts.

    Args:
        entries: newest first. Guests that none of them adds are named by their uuid.
    """
    names = collect_names(entries[::-1])
    return [
        {
            "id": entry.id,
            **render_history_entry(entry),
            "changes": [change.text for change in describe_entry(entry, names)],
        }
        for entry in entries
    ]


def collect_names(entries: Iterable[HistoryEntry]) -> dict[str, str]:
    """Return the names of the guests, their claims and devices that entries added or changed."""
    names: dict[str, str] = {}
    for entry in chain.from_iterable(entry.expand() for entry in entries):
        if name := entry.diff.get("workload_name"):  # of a claim or a move
            names |= {entry.diff[key]: name for key in ("workload_uuid", "uuid")}
        for guest in _items(entry, "guests", "added"):
            names[guest["uuid"]] = guest.get("name") or guest["uuid"]
            if guest.get("claim_uuid"):
                names[guest["claim_uuid"]] = names[guest["uuid"]]
        for guest in _items(entry, "guests", "changed"):
            claim = guest.get("claim_uuid") or (None, None)
            name = names.get(guest["uuid"])
            names |= {uuid: name for uuid in claim if uuid and name}
        for device in _items(entry, "devices", "added"):
            names[device["address"]] = _render_device(device)
    return names


def find_unnamed(entries: Iterable[HistoryEntry], names: Names) -> set[str]:
    """Return the uuids of guests that entries changed, removed, claimed or moved without a name."""
    found = set()
    for entry in chain.from_iterable(entry.expand() for entry in entries):
        if entry.kind in (EventKind.CLAIM, EventKind.MOVE) and "workload_uuid" in entry.diff:
            found.add(entry.diff["workload_uuid"])
        found |= {guest["uuid"] for guest in _items(entry, "guests", "changed")}
        found |= set(_items(entry, "guests", "removed"))
    return found - names.keys()


def describe_entry(entry: HistoryEntry, names: Names) -> list[ChangeText]:
    """Return what an entry changed, a text for each thing, and those merged into it.

    Args:
        names: see `collect_names`.
    """
    return [text for part in entry.expand() for text in _describe_part(part, names)]


def _describe_part(entry: HistoryEntry, names: Names) -> list[ChangeText]:
    if (describe := _DESCRIBERS.get(entry.kind)) and "event" in entry.diff:
        return list(describe(entry.event, entry.diff, names))
    if entry.what is ChangeKind.DELETE:
        name = (entry.diff.get("host") or (None, None))[1]
        return [ChangeText(f"renamed to {name}" if name else "deleted", ChangeLevel.BAD)]
    if entry.what is ChangeKind.CREATE:
        return [ChangeText(f"created: {_render_size(entry.diff)}", ChangeLevel.GOOD)]
    texts = [*_describe_columns(entry.diff), *_describe_items(entry, names)]
    rest = f"changed: {', '.join(entry.diff) or 'claims'}"
    return texts or [ChangeText(rest, ChangeLevel.DIM)]


def _describe_claim(event: str, diff: Mapping[str, Any], names: Names) -> Iterator[ChangeText]:
    uuid = diff["workload_uuid"]
    name = diff["workload_name"] or names.get(uuid, uuid)
    reason = f": {diff['reason']}" if event == "released" else ""
    level = {"created": ChangeLevel.GOOD, "released": ChangeLevel.WARNING}.get(event)
    yield ChangeText(f"claim of {name} {event}{reason}", level or ChangeLevel.PLAIN)


def _describe_move(event: str, diff: Mapping[str, Any], names: Names) -> Iterator[ChangeText]:
    uuid = diff["workload_uuid"]
    name = diff.get("workload_name") or names.get(uuid, uuid)
    where = f"{diff['dest_node']} of host {diff['dest_host']}"
    level = ChangeLevel.BAD if event == "error" else ChangeLevel.PLAIN
    yield ChangeText(f"{diff['type']} of {name} to {where}: {event}", level)


def _describe_service(event: str, diff: Mapping[str, Any], names: Names) -> Iterator[ChangeText]:
    if event != "changed":
        reason = f": {diff['reason']}" if event == "down" else ""
        levels = {"down": ChangeLevel.BAD, "retired": ChangeLevel.BAD, "up": ChangeLevel.GOOD}
        text = f"{diff['binary']} {event}{reason}"
        yield ChangeText(text, levels.get(event, ChangeLevel.PLAIN))
        return
    by = [f"by {diff['by']}"] if diff.get("by") else []
    there = [count_noun(diff["guests"], "guest")] if "guests" in diff else []  # when taken out
    texts = {
        "disabled": ("disabled", "enabled"),
        "maintenance": ("in maintenance", "no longer in maintenance"),
        "forced_down": ("forced down", "no longer forced down"),
        "spare": ("spare", "no longer spare"),
    }
    for name, (is_so, is_over) in texts.items():
        reasons = diff.get(f"{name}_reason")
        if name not in diff and reasons is None:
            continue
        is_set = name not in diff or diff[name][1]  # or only its reason has changed
        because = f": {reasons[1]}" if is_set and reasons and reasons[1] else ""
        level = ChangeLevel.WARNING if is_set else ChangeLevel.GOOD
        level = ChangeLevel.PLAIN if name == "spare" else level
        known = ", ".join([*by, *(there if is_set else ())])
        more = f" ({known})" if known else ""
        yield ChangeText(f"{diff['binary']} {is_so if is_set else is_over}{because}{more}", level)


def _describe_warning(event: str, diff: Mapping[str, Any], names: Names) -> Iterator[ChangeText]:
    item = f" {diff['item']}" if diff["item"] else ""
    level = ChangeLevel.WARNING if event == "raised" else ChangeLevel.GOOD
    if event == "silenced":
        by = f" (by {diff['by']})" if diff["by"] else ""
        text = f"warning {diff['kind']}{item} silenced until {diff['until']}: {diff['reason']}{by}"
        yield ChangeText(text, ChangeLevel.PLAIN)
        return
    yield ChangeText(f"warning {diff['kind']}{item} {event}: {diff['message']}", level)


_DESCRIBERS: Mapping[str, Callable[[str, Mapping[str, Any], Names], Iterator[ChangeText]]] = {
    EventKind.CLAIM: _describe_claim,
    EventKind.MOVE: _describe_move,
    EventKind.SERVICE: _describe_service,
    EventKind.WARNING: _describe_warning,
}
"""What describes lines that are not of a node's row: by event, diff and names."""


def _items(entry: HistoryEntry, column: str, what: str) -> Sequence[Any]:
    items = entry.diff.get(column)
    return items.get(what, ()) if isinstance(items, Mapping) else ()


def _render_size(diff: Mapping[str, Any]) -> str:
    def new(column: str) -> Any:
        return (diff.get(column) or (None, 0))[1] or 0

    guests = diff.get("guests") or {}
    devices = diff.get("devices") or {}
    parts = [
        f"{render_number(new('vcpus'))} vCPU",
        *([f"{render_number(new('pcpus'))} pinned"] if new("pcpus") else []),
        f"{render_mib(new('memory_mb'))} memory",
        f"{render_gib(new('local_gb'))} disk",
        count_noun(len(guests.get("added", ())), "guest"),
        *([count_noun(len(devices["added"]), "device")] if devices.get("added") else []),
    ]
    return ", ".join(parts)


def _describe_columns(diff: Mapping[str, Any]) -> Iterator[ChangeText]:
    for column, change in diff.items():
        if column in _USED or column in _FOLLOWING or not _is_pair(change):
            continue
        if column == "facts":
            yield from _describe_facts(change[0], change[1])
            continue
        leaves = list(_compare(column, change[0], change[1]))
        if column == "numa_topology":  # its usage follows from guests and claims
            leaves = [leaf for leaf in leaves if not _is_usage(leaf[0])]
        if len(leaves) > _MAX_LEAVES:
            yield ChangeText(f"{column}: {len(leaves)} values")
            continue
        yield from (ChangeText(_render_leaf(*leaf)) for leaf in leaves)
    used = [
        f"{title} {_render_used(column, diff[column][0])} → {_render_used(column, diff[column][1])}"
        for column, title in _USED.items()
        if _is_pair(diff.get(column))
    ]
    if used:
        yield ChangeText(f"used: {', '.join(used)}", ChangeLevel.DIM)


def _is_pair(change: Any) -> bool:
    """Return whether a column's change has its old and new value."""
    return isinstance(change, list | tuple) and len(change) == 2


def _describe_facts(before: Any, after: Any) -> Iterator[ChangeText]:
    """Describe the facts that changed alike in one text, as one source has many."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for name, entry in (after or {}).items():
        old = (before or {}).get(name, {}).get("state")
        if old != entry["state"]:
            error = f": {_cut(entry['error'])}" if entry.get("error") else ""
            names.setdefault((old or "none", entry["state"], error), []).append(name)
    for (old, new, error), facts in names.items():
        level = ChangeLevel.GOOD if new == "fresh" else ChangeLevel.WARNING
        rest = len(facts) - _MAX_LEAVES
        shown = ", ".join(facts[:_MAX_LEAVES]) + (f" and {rest} more" if rest > 0 else "")
        noun = "fact" if len(facts) == 1 else "facts"
        yield ChangeText(f"{noun} {shown} {old} → {new}{error}", level)


def _describe_items(entry: HistoryEntry, names: Names) -> Iterator[ChangeText]:
    for guest in _items(entry, "guests", "added"):
        cpus, memory = render_number(guest["vcpu_milli"] / MILLI), render_mib(guest["memory_mb"])
        size = f"{cpus} vCPU, {memory} memory"
        yield ChangeText(f"+ guest {guest['name'] or guest['uuid']} ({size})", ChangeLevel.GOOD)
    for device in _items(entry, "devices", "added"):
        yield ChangeText(f"+ device {_render_device(device)}", ChangeLevel.GOOD)
    for noun, key in (("guest", "uuid"), ("device", "address")):
        for item in _items(entry, f"{noun}s", "changed"):
            fields = _render_fields(item, key, names)
            yield ChangeText(f"{noun} {names.get(item[key], item[key])}: {fields}")
    for noun in ("guest", "device"):
        for name in _items(entry, f"{noun}s", "removed"):
            yield ChangeText(f"- {noun} {names.get(name, name)}", ChangeLevel.WARNING)


def _render_fields(item: Mapping[str, Any], key: str, names: Names) -> str:
    parts = []
    for field, change in item.items():
        if field == key:
            continue
        if field == "claim_uuid":
            parts.append(_render_claim(change, names, key))
            continue
        leaves = list(_compare(field, *change))
        if len(leaves) > _MAX_LEAVES:
            parts.append(f"{field}: {len(leaves)} values")
            continue
        parts += [_render_leaf(*leaf) for leaf in leaves]
    return ", ".join(parts)


def _render_claim(change: Sequence[str | None], names: Names, key: str) -> str:
    """Return that an item was claimed or released; a device also by whom."""
    before, after = change
    if key == "uuid":
        return "claimed" if after else "no longer claimed"
    if after:
        return f"claimed by {names.get(after, after)}"
    return f"released by {names.get(before or '', before)}"


def _render_device(device: Mapping[str, Any]) -> str:
    return f"{device['address']} ({device['vendor_id']}:{device['product_id']})"


def _render_used(column: str, amount: Any) -> str:
    if column == "memory_mb_used":
        return render_mib(amount)
    return render_gib(amount) if column == "local_gb_used" else render_number(amount)


def _is_usage(path: str) -> bool:
    return path.rpartition(".")[2] in ("cpu_usage", "memory_usage", "used") or "pinned" in path


def _render_leaf(path: str, before: Any, after: Any) -> str:
    """Return a value that changed; an amount with its unit, if that shows the change."""
    unit = next((unit for suffix, unit in _UNITS.items() if path.endswith(suffix)), None)
    if unit and isinstance(before, int | float) and isinstance(after, int | float):
        old, new = unit(before), unit(after)
        if old != new:
            return f"{path.removesuffix('_milli')} {old} → {new}"
    return f"{path} {_cut(before)} → {_cut(after)}"


def _cut(value: Any) -> str:
    text = '""' if value == "" else "none" if value in (None, [], {}) else render_plain(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _compare(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, old and new value of each part that differs."""
    old, new = _parts_of(before), _parts_of(after)
    if old is None and new is None:
        if before != after:
            yield path, before, after
        return
    for name in {**(old or {}), **(new or {})}:
        part = f"{path}{name}" if name.startswith("[") else f"{path}.{name}"
        yield from _compare(part, (old or {}).get(name), (new or {}).get(name))


def _parts_of(value: Any) -> dict[str, Any] | None:
    """Return the parts of an object or a list of objects by name, None of another value."""
    if isinstance(value, Mapping):
        return dict(value) or None
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        keys = (next((item[key] for key in _KEYS if key in item), None) for item in value)
        return {
            f"[{number if key is None else key}]": item
            for number, (key, item) in enumerate(zip(keys, value, strict=True))
        }
    return None
