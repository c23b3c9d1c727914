"""Say what a node's row is after a change, as it is read back: pure, beside what writes it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodetracker.accounting.audit.decisions import LockedRow
from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.pci.state import reassign_devices, withhold_devices
from nodetracker.db.codec import merge_values
from nodetracker.model.change import ItemDiff, NodeChange
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


def adopted_record(
    change: NodeChange,
    row: LockedRow,
    agent: AgentKey,
    now: datetime,
    claims: Sequence[Claim],
    devices: Mapping[str, TrackedDevice],
) -> NodeRecord:
    """Return the row of another host as it is after this one adopted it.

    Its claims move with it. The agent that takes it over does not know them yet,
    so their usage and devices are applied in the same commit.

    Args:
        claims: active ones of the row, oldest first.
        devices: those of the row that are assigned, by address.
    """
    new = created_record(change, row.id, agent, row.created_at)
    held = {
        guest.uuid: claim.uuid
        for claim in claims
        if (guest := new.guests.get(claim.workload.uuid)) is not None
        and claim.workload.may_be(guest)
    }
    guests = {
        uuid: dataclasses.replace(guest, claim_uuid=held.get(uuid))
        for uuid, guest in new.guests.items()
    }
    assigned = reassign_devices(new.devices, devices, claims, guests.values())
    devices = withhold_devices(assigned, new.values)
    columns = ledger_columns(new.values, claims, guests, devices)
    return dataclasses.replace(
        new,
        generation=row.generation + 1,
        updated_at=now,
        guests=guests,
        devices=devices,
        values=dataclasses.replace(new.values, **columns),
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


def adopted_change(change: NodeChange, record: NodeRecord) -> NodeChange:
    """Return a change with the guests and devices of an adopted row, as assigned to its claims."""
    return dataclasses.replace(
        change,
        guests=ItemDiff(added=tuple(record.guests.values())),
        devices=ItemDiff(added=tuple(record.devices.values())),
    )


def adoption_diff(change: NodeChange, row: LockedRow) -> dict[str, Any]:
    """Return the history entry of a row that changes hosts."""
    diff: dict[str, Any] = {"host": [row.host, change.host]}
    if row.nodename != change.nodename:
        diff["hypervisor_hostname"] = [row.nodename, change.nodename]
    return {**change.diff, **diff}


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
