"""Merge waiting notifications that newer ones of the same subject supersede.

Most notifications contain the whole state of their subject, so the newest is
enough. An update contains only changes and is merged with its predecessor.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from nodetracker.model.change import Notification

_ITEM_KEYS = {"guests": "uuid", "devices": "address"}
"""Fields of an update for items of a node -> the key that identifies an item."""


def merge_waiting(waiting: Iterable[Notification]) -> list[Notification]:
    """Return equivalent but fewer notifications, each at the position of its newest part."""
    kept: dict[str, list[tuple[int, Notification]]] = {}
    for position, item in enumerate(waiting):
        before = kept.setdefault(item.subject, [])
        while before and (merged := merge(before[-1][1], item)) is not None:
            before.pop()
            item = merged
        before.append((position, item))
    positioned = [entry for entries in kept.values() for entry in entries]
    return [item for _, item in sorted(positioned, key=lambda entry: entry[0])]


def merge(older: Notification, newer: Notification) -> Notification | None:
    """Return one notification that replaces two of one subject; None when both are needed.

    A value that changed back and forth is kept in an update: the older
    notification may have been sent although its confirmation was lost.
    """
    before, after = _action(older), _action(newer)
    if after != "update":
        return None if (before, after) == ("delete", "create") else newer
    if before == "update":
        return Notification(newer.event_type, newer.subject, _merge_updates(older, newer))
    if before == "create" and not _ITEM_KEYS.keys() & newer.payload.keys():
        named = {name: newer.payload[name] for name in older.payload if name in newer.payload}
        body = {**older.payload, **named, **newer.payload["new"]}
        return Notification(older.event_type, older.subject, body)
    return None


def _action(notification: Notification) -> str:
    """Return the action; ``whole`` for an update that contains the whole state."""
    action = notification.event_type.rpartition(".")[2]
    return "whole" if action == "update" and "new" not in notification.payload else action


def _merge_updates(older: Notification, newer: Notification) -> dict[str, Any]:
    was, now = older.payload, newer.payload
    body = {**was, **now, "old": {**now["old"], **was["old"]}, "new": {**was["new"], **now["new"]}}
    for name, key in _ITEM_KEYS.items():
        if name in was and name in now:
            body[name] = _merge_items(was[name], now[name], key)
    return body


def _merge_items(
    older: Mapping[str, Any], newer: Mapping[str, Any], key: str
) -> dict[str, list[Any]]:
    """Merge added, changed and removed items; an item that reappeared counts as added."""
    added = {item[key]: item for item in older.get("added", ())}
    changed = {item[key]: item for item in older.get("changed", ())}
    removed = dict.fromkeys(older.get("removed", ()))
    for item in newer.get("added", ()):
        removed.pop(item[key], None)
        changed.pop(item[key], None)
        added[item[key]] = item
    for item in newer.get("changed", ()):
        name = item[key]
        fields = {field: pair for field, pair in item.items() if field != key}
        if name in added:
            added[name] = {**added[name], **{field: pair[1] for field, pair in fields.items()}}
        else:
            first = changed.get(name, {key: name})
            pairs = {f: [first.get(f, pair)[0], pair[1]] for f, pair in fields.items()}
            changed[name] = {**first, **pairs}
    for name in newer.get("removed", ()):
        added.pop(name, None)
        changed.pop(name, None)
        removed[name] = None
    merged = {
        "added": list(added.values()),
        "changed": list(changed.values()),
        "removed": list(removed),
    }
    return {what: items for what, items in merged.items() if items}
