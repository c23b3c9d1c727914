"""What a batch of changes may do, judged against the rows as locked: pure, for every store.

The stores gather (lock and read), this module decides, the stores apply.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from nodetracker.accounting.liveness import is_heard_of
from nodetracker.accounting.pci_state import hold_anew
from nodetracker.accounting.promised import promised_columns
from nodetracker.db.codec import merge_values
from nodetracker.errors import ConflictError, FencedError, NotFoundError, RefusedError
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange
from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.migration import Move
from nodetracker.model.node import NODE_COLUMNS, VOLATILE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import REPORT_LASTS, REPORTED_BY_OTHERS
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
    """What to write of a batch, and what not."""

    updates: list[Located] = field(default_factory=list)
    measures: list[Located] = field(default_factory=list)
    deletions: list[Located] = field(default_factory=list)
    moves: list[Located] = field(default_factory=list)
    creations: list[NodeChange] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class Holder(NamedTuple):
    """Who holds a services row."""

    agent_id: str
    epoch: int
    service_uuid: str


def check_agent(agent: AgentKey, holder: Holder | None) -> None:
    """Make sure that the services row is still this agent's.

    Args:
        holder: as the services row has it, None when there is none.

    Raises:
        FencedError: it is not.
    """
    if holder is None:
        raise FencedError(f"host {agent.host} has no services row for {agent.binary} any more")
    if holder != Holder(agent.agent_id, agent.epoch, agent.service_uuid):
        raise FencedError(
            f"host {agent.host} belongs to agent {holder.agent_id}, epoch {holder.epoch}; "
            f"this is agent {agent.agent_id}, epoch {agent.epoch}"
        )


def check_deletion(service: ServiceRecord, now: datetime, service_down_time: int) -> None:
    """Make sure that nobody answers for a service any more.

    Raises:
        RefusedError: somebody does.
    """
    if is_heard_of(service, now, service_down_time):
        raise RefusedError(
            f"{service.binary} on host {service.host} is alive (it was heard of within "
            f"{service_down_time} s); stop it first"
        )


_NAMED_CLAIMS = 10


def check_unclaimed(what: str, claims: Sequence[str]) -> None:
    """Make sure that nothing is held on what is to be deleted.

    Args:
        what: the host or node.
        claims: uuids of those that are held there.

    Raises:
        RefusedError: something is.
    """
    if claims:
        more = len(claims) - _NAMED_CLAIMS
        names = ", ".join(claims[:_NAMED_CLAIMS]) + (f" and {more} more" if more > 0 else "")
        raise RefusedError(f"{what} holds {len(claims)} claims; move or abort them first: {names}")


def check_rename(
    old: str, new: str, services: Sequence[ServiceRecord], nodes: Sequence[tuple[str, str]]
) -> ServiceRecord | None:
    """Make sure that a host can be renamed; return its services row.

    Args:
        services: of both names.
        nodes: host and nodename of every row of both names.

    Raises:
        NotFoundError: there is nothing under the old name.
        RefusedError: there is something under the new name.
    """
    if old == new:
        raise RefusedError(f"host {old} is called that already")
    if any(service.host == new for service in services) or any(host == new for host, _ in nodes):
        raise RefusedError(f"there is a host {new} already; delete its service and nodes first")
    nodenames = {nodename for host, nodename in nodes if host == old}
    found = [service for service in services if service.host == old]
    if not found and not nodenames:
        raise NotFoundError(f"there is no host {old}")
    if {old, new} <= nodenames:
        raise RefusedError(f"host {old} has nodes {old} and {new}: they cannot both be {new}")
    return found[0] if found else None


def check_seen(seen: ServiceRecord | None, found: ServiceRecord | None) -> None:
    """Make sure that a services row is as it was when something was concluded from it.

    Raises:
        ConflictError: it is not.
    """
    if _stamp(seen) != _stamp(found):
        row = found or seen
        assert row is not None
        raise ConflictError(f"host {row.host} was taken over or heard of meanwhile")


def _stamp(service: ServiceRecord | None) -> tuple[str, int, int] | None:
    if service is None:
        return None
    return service.incarnation.agent_id, service.epoch, service.report_count


def is_warning_over(kind: str, last_seen: datetime, now: datetime) -> bool:
    """Tell whether a warning that the host's agent does not name any more is over."""
    if kind in REPORTED_BY_OTHERS:
        return now - last_seen >= REPORT_LASTS
    return True


def renamed_diff(old: str, new: str, nodename: str) -> dict[str, Any]:
    """Return the history entry of a node whose host is renamed."""
    diff: dict[str, Any] = {"host": [old, new]}
    if nodename == old:
        diff["hypervisor_hostname"] = [old, new]
    return diff


def list_foreign_hosts(
    agent: AgentKey, changes: Sequence[NodeChange], rows: Iterable[LockedRow]
) -> list[str]:
    """Return the hosts whose liveness decides whether a creation may take their row over."""
    wanted = {change.uuid for change in changes if change.record is None}
    return sorted({row.host for row in rows if row.uuid in wanted and row.host != agent.host})


def decide(
    agent: AgentKey,
    changes: Sequence[NodeChange],
    rows: Sequence[LockedRow],
    hosts_up: frozenset[str],
) -> Decision:
    """Sort changes into what is written, what conflicts and what is refused.

    Args:
        rows: every row that a change names by id, uuid, or host and nodename.
        hosts_up: those of `list_foreign_hosts` that are alive.

    Raises:
        FencedError: a row of the agent's host carries a newer epoch.
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
            f"uuid {change.uuid} is given to two nodes of host {change.host}"
        )
    elif same_uuid is None:
        decision.creations.append(change)
    elif same_uuid.host == agent.host:
        decision.refused[change.nodename] = (
            f"uuid {change.uuid} stands for node {same_uuid.nodename} of this host"
        )
    elif same_uuid.host in hosts_up:
        decision.refused[change.nodename] = (
            f"node {change.nodename} (uuid {change.uuid}) of host {change.host} stands under "
            f"host {same_uuid.host} as {same_uuid.nodename}, and that host is up"
        )
    else:
        decision.moves.append((change, same_uuid))


def move_diff(change: NodeChange, row: LockedRow) -> dict[str, Any]:
    """Return the history entry of a row that changes hosts."""
    diff: dict[str, Any] = {"host": [row.host, change.host]}
    if row.nodename != change.nodename:
        diff["hypervisor_hostname"] = [row.nodename, change.nodename]
    return {**change.diff, **diff}


def updated_record(
    change: NodeChange, row: LockedRow, agent: AgentKey, now: datetime
) -> NodeRecord:
    """Return the row as it is after an update."""
    record = _stored(change)
    return dataclasses.replace(
        record,
        host=row.host,
        generation=row.generation + 1,
        epoch=agent.epoch,
        values=merge_values(record.values, change.values, change.columns),
        guests=_merge_guests(change, record.guests),
        devices=_merge_devices(change, record.devices),
        claims=dict(record.claims) | {claim.uuid: claim for claim in stamp_claims(change, now)},
        moves=_merge_moves(record.moves, stamp_moves(change, now)),
        created_at=row.created_at,
        updated_at=now,
    )


def stamp_claims(change: NodeChange, now: datetime) -> list[Claim]:
    """Return the claims that a change changes, as they are stored."""
    return [dataclasses.replace(claim, updated_at=now) for claim in change.claims]


def stamp_moves(change: NodeChange, now: datetime) -> list[Move]:
    """Return the moves that a change changes, as they are stored."""
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


def measured_record(change: NodeChange, row: LockedRow, now: datetime) -> NodeRecord:
    """Return the row as it is after measurements were written.

    Its time of writing moves, as the next measurements are held back by it.
    """
    record = _stored(change)
    columns = [name for name in change.columns if name in VOLATILE_COLUMNS]
    return dataclasses.replace(
        record,
        epoch=row.epoch,
        values=merge_values(record.values, change.values, columns),
        created_at=row.created_at,
        updated_at=now,
    )


def moved_record(
    change: NodeChange, row: LockedRow, agent: AgentKey, now: datetime, claims: Sequence[Claim]
) -> NodeRecord:
    """Return the row as it is after it came from another host.

    Its claims came with it, unknown to the agent that takes it over: they
    count and have their devices from the same commit on.

    Args:
        claims: active ones of the row, oldest first.
    """
    new = created_record(change, row.id, agent, row.created_at)
    held = {claim.workload.uuid: claim for claim in claims}
    guests = {
        uuid: dataclasses.replace(guest, claim_uuid=held[uuid].uuid) if uuid in held else guest
        for uuid, guest in new.guests.items()
    }
    devices = hold_anew(new.devices, claims, guests.values())
    promised = promised_columns(new.values, claims, guests.values(), devices)
    return dataclasses.replace(
        new,
        generation=row.generation + 1,
        updated_at=now,
        guests=guests,
        devices=devices,
        values=dataclasses.replace(new.values, **promised),
    )


def moved_change(change: NodeChange, record: NodeRecord) -> NodeChange:
    """Return a change with the guests and devices of the row that came, as its claims have them."""
    return dataclasses.replace(
        change,
        guests=ItemDiff(added=tuple(record.guests.values())),
        devices=ItemDiff(added=tuple(record.devices.values())),
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
