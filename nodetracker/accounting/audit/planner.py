"""Plan the changes that make stored rows equal to their views.

New values are sanitized before they are compared with the stored ones. A name or label of a
hypervisor or engine may have any length and contain any character; if a column rejected it,
the whole row of its node could not be written. A truncated value equals the stored one, so an
audit without changes writes nothing. UUIDs and addresses are parsed by the drivers;
truncating them could make two equal.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange, make_diff
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.fact import FactState, sanitize_json
from nodetracker.model.guest import Guest, GuestListing
from nodetracker.model.node import (
    MEASURE_INTERVAL_SECONDS,
    NODE_COLUMNS,
    VOLATILE_COLUMNS,
    NodeRecord,
    NodeValues,
    NodeView,
)
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.text import (
    JSON_TEXT_LENGTH,
    LONG_TEXT_LENGTH,
    PCI_ID_LENGTH,
    TEXT_LENGTH,
    sanitize_text,
)

GUEST_TEXTS = {"name": LONG_TEXT_LENGTH, "project_id": TEXT_LENGTH}
"""Columns of a guest with text from its driver -> their length."""

DEVICE_TEXTS = {
    "vendor_id": PCI_ID_LENGTH,
    "product_id": PCI_ID_LENGTH,
    "class_id": PCI_ID_LENGTH,
    "driver": TEXT_LENGTH,
}
"""Columns of a device with text from its driver -> their length."""


def sanitize_values(values: NodeValues, columns: Iterable[str]) -> NodeValues:
    """Return values with the named columns sanitized.

    Texts have at most `TEXT_LENGTH` characters, and `JSON_TEXT_LENGTH` within JSON.
    """
    changes: dict[str, Any] = {}
    for name in columns:
        value = getattr(values, name)
        changes[name] = (
            sanitize_text(value)
            if isinstance(value, str)
            else sanitize_json(value, JSON_TEXT_LENGTH)
        )
    return replace(values, **changes)


def sanitize_guest(guest: Guest) -> Guest:
    """Return a guest with its texts sanitized."""
    texts: dict[str, Any] = {
        name: sanitize_text(getattr(guest, name), length) for name, length in GUEST_TEXTS.items()
    }
    return replace(guest, details=sanitize_json(guest.details, JSON_TEXT_LENGTH), **texts)


def sanitize_device(device: TrackedDevice) -> TrackedDevice:
    """Return a device with its texts sanitized."""
    texts: dict[str, Any] = {
        name: sanitize_text(getattr(device, name), length) for name, length in DEVICE_TEXTS.items()
    }
    return replace(device, **texts)


_SIGNIFICANT_FRACTION = 100

T = TypeVar("T", Guest, TrackedDevice)


def plan(
    host: str,
    views: Iterable[NodeView],
    records: Mapping[str, NodeRecord],
    uuids: Mapping[str, str],
    now: datetime,
) -> list[NodeChange]:
    """Return the changes for these views; a view that equals its row needs none.

    Args:
        views: views of nodes; new nodes with missing facts are skipped.
        records: nodename -> stored row.
        uuids: nodename -> uuid for a new row.
        now: the database's time.
    """
    changes = []
    for view in views:
        record = records.get(view.nodename)
        if record is not None:
            change = _plan_update(view, record, now)
        elif not view.missing:
            change = _plan_create(host, view, uuids[view.nodename])
        else:
            change = None
        if change is not None:
            changes.append(change)
    return changes


def is_settled(view: NodeView, record: NodeRecord, listing: GuestListing | None) -> bool:
    """Return whether the same reading of the same row leads to this view at any later time.

    That is so where no clock runs: no fact is held, each claim has its guest, each guest is
    listed, and no measurement waits to be written.

    Args:
        view: one that needs no change of the row.
    """
    columns = _differing(record.values, view.values, tuple(VOLATILE_COLUMNS))
    return (
        listing is not None
        and view.guests.keys() == {guest.uuid for guest in listing.guests}
        and all(entry.state is not FactState.HELD for entry in view.values.facts.values())
        and all(_has_its_guest(claim, view.guests) for claim in view.claims.values())
        and not any(
            _is_significant(getattr(record.values, name), getattr(view.values, name))
            for name in columns
        )
    )


def _has_its_guest(claim: Claim, guests: Mapping[str, Guest]) -> bool:
    guest = guests.get(claim.workload.uuid)
    return (
        claim.state is ClaimState.CONFIRMED and guest is not None and claim.workload.may_be(guest)
    )


def plan_delete(record: NodeRecord) -> NodeChange:
    """Build the deletion of an orphan node's row."""
    change = NodeChange(
        kind=ChangeKind.DELETE,
        host=record.host,
        nodename=record.nodename,
        uuid=record.uuid,
        record=record,
        values=record.values,
        guests=ItemDiff(removed=tuple(record.guests.values())),
        devices=ItemDiff(removed=tuple(record.devices.values())),
    )
    return replace(change, diff=make_diff(change))


def _plan_create(host: str, view: NodeView, uuid: str) -> NodeChange:
    after, columns = _sanitized_difference(NodeValues(), view.values)
    guests = _items_diff({}, view.guests, "uuid", sanitize_guest)
    devices = _items_diff({}, view.devices, "address", sanitize_device)
    change = NodeChange(
        kind=ChangeKind.CREATE,
        host=host,
        nodename=view.nodename,
        uuid=uuid,
        record=None,
        values=after,
        columns=columns,
        guests=guests,
        devices=devices,
    )
    return replace(change, diff=make_diff(change))


def _plan_update(view: NodeView, record: NodeRecord, now: datetime) -> NodeChange | None:
    before = record.values
    after, columns = _sanitized_difference(before, view.values, record.damaged)
    guests = _items_diff(record.guests, view.guests, "uuid", sanitize_guest)
    devices = _items_diff(record.devices, view.devices, "address", sanitize_device)
    claims = tuple(claim for uuid, claim in view.claims.items() if record.claims.get(uuid) != claim)
    moves = tuple(move for move in view.moves if move not in record.moves)
    is_structural = bool(
        guests or devices or claims or moves or record.damaged or set(columns) - VOLATILE_COLUMNS
    )
    if not (
        is_structural
        or record.has_stale_limits
        or _is_measure_due(before, after, columns, record, now)
    ):
        return None
    change = NodeChange(
        kind=ChangeKind.UPDATE if is_structural else ChangeKind.MEASURE,
        host=record.host,
        nodename=record.nodename,
        uuid=record.uuid,
        record=record,
        values=after,
        columns=columns,
        guests=guests,
        devices=devices,
        claims=claims,
        moves=moves,
    )
    return replace(change, diff=make_diff(change))


def _sanitized_difference(
    before: NodeValues, wanted: NodeValues, damaged: Collection[str] = ()
) -> tuple[NodeValues, tuple[str, ...]]:
    """Return the sanitized values, and the columns in which they differ or that are damaged."""
    columns = _differing(before, wanted, NODE_COLUMNS, damaged)
    after = sanitize_values(wanted, columns)
    return after, _differing(before, after, columns, damaged)


def _differing(
    before: NodeValues,
    after: NodeValues,
    columns: tuple[str, ...],
    damaged: Collection[str] = (),
) -> tuple[str, ...]:
    return tuple(
        name for name in columns if getattr(before, name) != getattr(after, name) or name in damaged
    )


def _is_measure_due(
    before: NodeValues,
    after: NodeValues,
    columns: tuple[str, ...],
    record: NodeRecord,
    now: datetime,
) -> bool:
    if not any(_is_significant(getattr(before, name), getattr(after, name)) for name in columns):
        return False
    written = record.updated_at or record.created_at
    return written is None or (now - written).total_seconds() >= MEASURE_INTERVAL_SECONDS


def _is_significant(before: Any, after: Any) -> bool:
    """Return whether a measurement changed by more than 1 %, or appeared or disappeared."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() != after.keys() or any(
            _is_significant(before[key], after[key]) for key in before
        )
    if before is None or after is None:
        return bool(before != after)
    return bool(abs(after - before) * _SIGNIFICANT_FRACTION > abs(before))


def _items_diff(
    before: Mapping[str, T], wanted: Mapping[str, T], key: str, sanitize: Callable[[T], T]
) -> ItemDiff[T]:
    if before == wanted:
        return ItemDiff()
    after = {
        name: item if before.get(name) == item else sanitize(item) for name, item in wanted.items()
    }
    return ItemDiff(
        added=tuple(item for name, item in after.items() if name not in before),
        changed=tuple(
            item for name, item in after.items() if name in before and before[name] != item
        ),
        removed=tuple(item for name, item in before.items() if name not in after),
    )
