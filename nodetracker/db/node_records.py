"""Say what a node's row is after a change, as it is read back: pure, beside what writes it."""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime

from nodetracker.accounting.audit.decisions import LockedRow
from nodetracker.db.codec import merge_values
from nodetracker.model.change import NodeChange
from nodetracker.model.claim import Claim, Move
from nodetracker.model.guest import Guest
from nodetracker.model.node import NODE_COLUMNS, VOLATILE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import AgentKey


def updated_record(
    change: NodeChange, row: LockedRow, agent: AgentKey, now: datetime
) -> NodeRecord:
    """Return the row as it is after an update."""
    record = _stored(change)
    return dataclasses.replace(
        record,
        host=row.host,
        generation=row.generation + 1,
        has_stale_limits=False,
        damaged=(),
        epoch=agent.epoch,
        values=merge_values(record.values, change.values, change.columns),
        guests=_merge_guests(change, record.guests),
        devices=_merge_devices(change, record.devices),
        claims=dict(record.claims) | {claim.uuid: claim for claim in stamp_claims(change, now)},
        moves=_merge_moves(record.moves, stamp_moves(change, now)),
        created_at=row.created_at,
        updated_at=now,
    )


def measured_record(change: NodeChange, row: LockedRow, now: datetime) -> NodeRecord:
    """Return the row as it is after measurements were written.

    ``updated_at`` changes, because it paces the next measurements.
    """
    record = _stored(change)
    columns = [name for name in change.columns if name in VOLATILE_COLUMNS]
    return dataclasses.replace(
        record,
        has_stale_limits=False,
        epoch=row.epoch,
        values=merge_values(record.values, change.values, columns),
        created_at=row.created_at,
        updated_at=now,
    )


def created_record(change: NodeChange, node_id: int, agent: AgentKey, now: datetime) -> NodeRecord:
    """Return a new row as it is stored."""
    return NodeRecord(
        id=node_id,
        uuid=change.uuid,
        host=change.host,
        nodename=change.nodename,
        generation=1,
        epoch=agent.epoch,
        values=merge_values(NodeValues(), change.values, NODE_COLUMNS),
        guests=_merge_guests(change, {}),
        devices=_merge_devices(change, {}),
        created_at=now,
        updated_at=now,
    )


def stamp_claims(change: NodeChange, now: datetime) -> list[Claim]:
    """Return the claims that a change writes, with their time of writing."""
    return [dataclasses.replace(claim, updated_at=now) for claim in change.claims]


def stamp_moves(change: NodeChange, now: datetime) -> list[Move]:
    """Return the moves that a change writes, with their time of writing."""
    known = [move.migration for move in _stored(change).moves]
    return [
        move
        if move.migration in known
        else dataclasses.replace(
            move, migration=dataclasses.replace(move.migration, updated_at=now)
        )
        for move in change.moves
    ]


def _merge_moves(stored: Iterable[Move], changed: Iterable[Move]) -> tuple[Move, ...]:
    by_uuid = {move.migration.uuid: move for move in (*stored, *changed)}
    return tuple(by_uuid.values())


def _stored(change: NodeChange) -> NodeRecord:
    if change.record is None:
        raise ValueError(f"a {change.kind} of {change.nodename} needs the record it changes")
    return change.record


def _merge_guests(change: NodeChange, stored: Mapping[str, Guest]) -> dict[str, Guest]:
    diff = change.guests
    gone = {guest.uuid for guest in diff.removed}
    kept = {uuid: guest for uuid, guest in stored.items() if uuid not in gone}
    return kept | {guest.uuid: guest for guest in (*diff.added, *diff.changed)}


def _merge_devices(
    change: NodeChange, stored: Mapping[str, TrackedDevice]
) -> dict[str, TrackedDevice]:
    diff = change.devices
    gone = {device.address for device in diff.removed}
    kept = {address: device for address, device in stored.items() if address not in gone}
    return kept | {device.address: device for device in (*diff.added, *diff.changed)}
