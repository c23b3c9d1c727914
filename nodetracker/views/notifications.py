"""Build notifications of changes, one function per noun, and merge those that wait.

See docs/notifications.md. Most notifications contain the whole state of their subject,
so of several that wait the newest is enough. An update contains only changes and is
merged with its predecessor.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from nodetracker.model.change import ChangeKind, ClaimRefusal, NodeChange, Notification
from nodetracker.model.claim import Claim, ClaimState, Migration
from nodetracker.model.node import NODE_COLUMNS, VOLATILE_COLUMNS
from nodetracker.model.serializer import pick
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import HostWarning
from nodetracker.views.claims import render_migration

_SERVICE_FIELDS = (
    "uuid", "host", "binary", "topic", "version", "epoch", "disabled", "disabled_reason",
    "disabled_at", "disabled_by", "maintenance", "maintenance_reason", "maintenance_at",
    "maintenance_by", "forced_down", "forced_down_reason", "forced_down_at", "forced_down_by",
    "spare",
)  # fmt: skip
_CLAIM_EVENTS = {
    ClaimState.HELD: "claim.create",
    ClaimState.CONFIRMED: "claim.confirm",
    ClaimState.RELEASED: "claim.release",
}


def build_change_notifications(change: NodeChange) -> list[Notification]:
    """Build the notifications of an audit's change: of the node, its claims and moves."""
    notifications = _build_node_notifications(change)
    notifications += [build_claim_notification(claim) for claim in change.claims]
    notifications += [build_migration_notification(move.migration) for move in change.moves]
    return notifications


def _build_node_notifications(change: NodeChange) -> list[Notification]:
    node = pick(change, "host", "nodename", "uuid")
    built = []
    if change.kind is ChangeKind.CREATE:
        values = pick(change.values, *NODE_COLUMNS)
        built.append(Notification("compute_node.create", _node(change.uuid), node | values))
    elif change.kind is ChangeKind.UPDATE:
        columns = {name: pair for name, pair in change.diff.items() if isinstance(pair, list)}
        items = {name: dict(item) for name, item in change.diff.items() if name not in columns}
        body = {
            "old": {name: pair[0] for name, pair in columns.items()},
            "new": {name: pair[1] for name, pair in columns.items()},
        }
        built.append(Notification("compute_node.update", _node(change.uuid), node | body | items))
    elif change.kind is ChangeKind.DELETE:
        built.append(Notification("compute_node.delete", _node(change.uuid), node))
    if VOLATILE_COLUMNS & set(change.columns):
        measured = pick(change.values, *sorted(VOLATILE_COLUMNS))
        built.append(
            Notification("compute.metrics.update", f"metrics {change.uuid}", node | measured)
        )
    return built


def build_node_deleted_notification(host: str, nodename: str, uuid: str) -> Notification:
    """Build the notification that an operator deleted a node's row."""
    node = {"host": host, "nodename": nodename, "uuid": uuid}
    return Notification("compute_node.delete", _node(uuid), node)


def build_claim_notification(claim: Claim) -> Notification:
    """Build the notification of a claim's current state, which determines the event type."""
    identity = pick(
        claim, "uuid", "workload_uuid=workload.uuid", "workload_kind=workload.kind",
        "project_id=workload.project_id", "kind", "state", "reason", "host", "nodename",
    )  # fmt: skip
    more = pick(claim, "resources=amounts.resources", "devices", "migration_uuid", "expires_at")
    body = identity | claim.amounts.in_units() | more
    return Notification(_CLAIM_EVENTS[claim.state], f"claim {claim.uuid}", body)


def build_refusal_notification(refusal: ClaimRefusal) -> Notification:
    """Build the notification that a claim was refused, with all reasons."""
    body = pick(
        refusal, "uuid=request.uuid", "workload_uuid=request.workload.uuid", "host", "nodename",
        "reasons",
    )  # fmt: skip
    return Notification("claim.refuse", f"claim {refusal.request.uuid}", body)


def build_migration_notification(migration: Migration) -> Notification:
    """Build the notification of a migration's current status."""
    body = render_migration(migration)
    del body["created_at"], body["workload_name"]
    return Notification("migration.update", f"migration {migration.uuid}", body)


def build_service_notification(
    before: ServiceRecord | None, after: ServiceRecord | None
) -> Notification:
    """Build the notification that a service was created, changed or deleted.

    Args:
        before, after: at least one is not None.
    """
    service = after or before
    assert service is not None
    subject = f"service {service.host} {service.binary}"
    if before is None or after is None:
        event = "service.create" if before is None else "service.delete"
        return Notification(event, subject, pick(service, *_SERVICE_FIELDS))
    was, now = pick(before, *_SERVICE_FIELDS), pick(after, *_SERVICE_FIELDS)
    changed = [name for name in _SERVICE_FIELDS if was[name] != now[name]]
    named = pick(after, "uuid", "host", "binary")
    body: Mapping[str, Any] = {
        "old": {name: was[name] for name in changed},
        "new": {name: now[name] for name in changed},
    }
    return Notification("service.update", subject, {**named, **body})


def build_raised_notifications(
    host: str, before: Iterable[HostWarning], after: Iterable[HostWarning]
) -> list[Notification]:
    """Build the notifications of a host's new warnings."""
    was = {warning.key for warning in before}
    now = {warning.key: warning for warning in after}
    return [
        build_warning_notification("warning.raise", host, now[key])
        for key in sorted(now.keys() - was)
    ]


def build_warning_notification(event_type: str, host: str, warning: HostWarning) -> Notification:
    """Build the notification of one warning, with its texts as stored."""
    warning = warning.as_stored()
    body = {"host": host, **pick(warning, "kind", "nodename", "item", "message")}
    return Notification(event_type, f"warning {host} {' '.join(warning.key)}", body)


def _node(uuid: str) -> str:
    return f"compute_node {uuid}"


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
