"""Decide which changes of a batch may be written, and what a node's row is afterwards.

Pure: the store gathers (locks and reads), this module decides, the store applies.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.pci.state import reassign_devices
from nodetracker.db.codec import merge_values
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange
from nodetracker.model.claim import Claim, Move
from nodetracker.model.errors import FencedError
from nodetracker.model.guest import Guest
from nodetracker.model.node import NODE_COLUMNS, VOLATILE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.ports import AgentKey


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A ``compute_nodes`` row without its values, read after it was locked."""

    id: int
    uuid: str
    host: str
    nodename: str
    generation: int
    epoch: int
    created_at: datetime
    updated_at: datetime | None


Located = tuple[NodeChange, LockedRow]


@dataclass(slots=True)
class Decision:
    """Changes of a batch by kind of write, and those that are not written.

    Attributes:
        touched: ids of nodes whose generation rises, as an update changes one of
            their migrations; above that, if they are updated too.
    """

    updates: list[Located] = field(default_factory=list)
    measures: list[Located] = field(default_factory=list)
    deletions: list[Located] = field(default_factory=list)
    moves: list[Located] = field(default_factory=list)
    creations: list[NodeChange] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    conflicts: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def list_foreign_hosts(
    agent: AgentKey, changes: Sequence[NodeChange], rows: Iterable[LockedRow]
) -> list[str]:
    """Return the hosts whose liveness decides whether a creation may take over their row."""
    wanted = {change.uuid for change in changes if change.record is None}
    return sorted({row.host for row in rows if row.uuid in wanted and row.host != agent.host})


def list_move_claims(changes: Iterable[NodeChange]) -> set[str]:
    """Return the claims of the migrations that changes write, whose nodes are locked too."""
    return {
        uuid
        for change in changes
        for move in change.moves
        for uuid in (move.migration.source_claim, move.migration.dest_claim)
    }


def decide(
    agent: AgentKey,
    changes: Sequence[NodeChange],
    rows: Sequence[LockedRow],
    hosts_up: frozenset[str],
    ends: Mapping[str, int],
) -> Decision:
    """Sort changes into written, conflicting and refused ones.

    Args:
        rows: every row that a change names by id, uuid, or host and nodename.
        hosts_up: those of `list_foreign_hosts` that are alive.
        ends: uuid -> node id, of those of `list_move_claims` that exist.

    Raises:
        FencedError: a row of the agent's host has a newer epoch.
    """
    for row in rows:
        if row.host == agent.host and row.epoch > agent.epoch:
            raise FencedError(
                f"node {row.nodename} of host {row.host} has epoch {row.epoch}; "
                f"this agent has {agent.epoch}"
            )
    by_id = {row.id: row for row in rows}
    decision = Decision()
    for change in changes:
        if change.record is not None:
            _decide_existing(agent, change, by_id.get(change.record.id), decision)
    for change, row in decision.updates:
        concerned = {ends[uuid] for uuid in list_move_claims([change]) if uuid in ends}
        decision.touched |= concerned - {row.id}
    gone = {row.id for _, row in decision.deletions}
    left = [row for row in rows if row.id not in gone]
    for change in changes:
        if change.record is None:
            _decide_new(agent, change, left, hosts_up, decision)
    return decision


def _decide_existing(
    agent: AgentKey, change: NodeChange, row: LockedRow | None, decision: Decision
) -> None:
    record = change.record
    if (
        record is None
        or row is None
        or row.host != agent.host
        or row.generation != record.generation
    ):
        decision.conflicts.append(change.nodename)
    elif change.kind is ChangeKind.DELETE:
        decision.deletions.append((change, row))
    elif change.kind is ChangeKind.MEASURE:
        decision.measures.append((change, row))
    else:
        decision.updates.append((change, row))


def _decide_new(
    agent: AgentKey,
    change: NodeChange,
    rows: Iterable[LockedRow],
    hosts_up: frozenset[str],
    decision: Decision,
) -> None:
    same_uuid: LockedRow | None = None
    for row in rows:
        if (row.host, row.nodename) == (change.host, change.nodename):
            decision.conflicts.append(change.nodename)
            return
        if row.uuid == change.uuid:
            same_uuid = row
    taken = [*decision.creations, *(moved for moved, _ in decision.moves)]
    if any(other.uuid == change.uuid for other in taken):
        decision.refused[change.nodename] = (
            f"duplicate uuid {change.uuid}: two nodes of host {change.host} have it"
        )
    elif same_uuid is None:
        decision.creations.append(change)
    elif same_uuid.host == agent.host:
        decision.refused[change.nodename] = (
            f"duplicate uuid {change.uuid}: node {same_uuid.nodename} of this host has it"
        )
    elif same_uuid.host in hosts_up:
        decision.refused[change.nodename] = (
            f"node {change.nodename} (uuid {change.uuid}) of host {change.host} is stored under "
            f"host {same_uuid.host} as {same_uuid.nodename}, and that host is up"
        )
    else:
        decision.moves.append((change, same_uuid))


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


def moved_record(
    change: NodeChange, row: LockedRow, agent: AgentKey, now: datetime, claims: Sequence[Claim]
) -> NodeRecord:
    """Return the row as it is after it moved from another host.

    Its claims move with it. The agent that takes it over does not know them yet,
    so their usage and devices are applied in the same commit.

    Args:
        claims: active ones of the row, oldest first.
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
    devices = reassign_devices(new.devices, claims, guests.values())
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


def moved_change(change: NodeChange, record: NodeRecord) -> NodeChange:
    """Return a change with the guests and devices of a moved row, as assigned to its claims."""
    return dataclasses.replace(
        change,
        guests=ItemDiff(added=tuple(record.guests.values())),
        devices=ItemDiff(added=tuple(record.devices.values())),
    )


def move_diff(change: NodeChange, row: LockedRow) -> dict[str, Any]:
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
