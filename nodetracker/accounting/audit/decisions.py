"""Decide which changes of a batch may be written: pure, over rows that the store has locked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.errors import FencedError
from nodetracker.model.service import AgentKey
from nodetracker.model.text import render_minute


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A ``compute_nodes`` row without its values, read after it was locked.

    Attributes:
        capacity_seen: its column.
    """

    id: int
    uuid: str
    host: str
    nodename: str
    generation: int
    epoch: int
    created_at: datetime
    updated_at: datetime | None
    capacity_seen: Mapping[str, Any] | None = None


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
    creations: list[NodeChange] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    conflicts: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holder:
    """The host that a row belongs to, for the agent that is refused the row.

    Attributes:
        since: when the host got the row.
    """

    since: datetime
    is_up: bool


def list_foreign_rows(
    agent: AgentKey, changes: Sequence[NodeChange], rows: Iterable[LockedRow]
) -> list[LockedRow]:
    """Return the rows of other hosts that have the uuid of a creation."""
    wanted = {change.uuid for change in changes if change.record is None}
    return [row for row in rows if row.uuid in wanted and row.host != agent.host]


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
    holders: Mapping[int, Holder],
    ends: Mapping[str, int],
) -> Decision:
    """Sort changes into written, conflicting and refused ones.

    Args:
        rows: every row that a change names by id, uuid, or host and nodename.
        holders: id of each of `list_foreign_rows` -> its host.
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
            _decide_new(agent, change, left, holders, decision)
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
    holders: Mapping[int, Holder],
    decision: Decision,
) -> None:
    same_uuid: LockedRow | None = None
    for row in rows:
        if (row.host, row.nodename) == (change.host, change.nodename):
            decision.conflicts.append(change.nodename)
            return
        if row.uuid == change.uuid:
            same_uuid = row
    if any(other.uuid == change.uuid for other in decision.creations):
        decision.refused[change.nodename] = (
            f"duplicate uuid {change.uuid}: two nodes of host {change.host} have it"
        )
    elif same_uuid is None:
        decision.creations.append(change)
    elif same_uuid.host == agent.host:
        decision.refused[change.nodename] = (
            f"duplicate uuid {change.uuid}: node {same_uuid.nodename} of this host has it"
        )
    else:
        decision.refused[change.nodename] = _explain_holder(
            change, same_uuid, holders[same_uuid.id]
        )


def _explain_holder(change: NodeChange, row: LockedRow, holder: Holder) -> str:
    """Say which host has a node that another one listed, since when, and how to give it away."""
    command = f"nodetracker-manage host takeover {row.nodename} --from {row.host}"
    cure = (
        f"which is up: remove the node from the configuration of one of them, or stop the agent of "
        f"host {row.host} and run '{command}'"
        if holder.is_up
        else f"which is down: '{command}' gives it to this host"
    )
    return (
        f"node {change.nodename} (uuid {change.uuid}) of host {change.host} belongs to host "
        f"{row.host} as {row.nodename} since {render_minute(holder.since)}, {cure}"
    )
