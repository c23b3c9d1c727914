"""Keep the largest capacity seen of each node, and warn of one that jumps."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.audit.decisions import Decision
from nodetracker.accounting.capacity import (
    CAPACITY_COLUMNS,
    HELD,
    capacity_of,
    find_jump,
    is_held,
)
from nodetracker.db import codec, history, host_warnings
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.quotas import quotas_of
from nodetracker.db.schema import tables
from nodetracker.db.statements import update_each
from nodetracker.model.change import ChangeKind, NodeChange, StoreEvent
from nodetracker.model.errors import NotFoundError
from nodetracker.model.node import NodeValues
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind

HAS_JUMPED = "has_jumped"
"""Key of the column besides the amounts: a warning about the node is unresolved."""

OPENED = "opened: its host's next audit reads this fact"

_WATCHED = CAPACITY_COLUMNS | {"facts"}
_nodes = tables.compute_nodes.c
_warnings = tables.warnings.c
Seen = dict[str, Any]


def seen_of(values: NodeValues) -> Seen:
    """Return the column of a node whose present capacity is the largest one."""
    return capacity_of(values) | {HAS_JUMPED: False}


class CapacityWatch:
    """Compares the nodes that a decision writes with the largest capacity seen of them.

    A steady audit changes no capacity and no fact, and costs no statement.

    Attributes:
        created: nodename -> the column of each new node.
    """

    def __init__(self, connection: sa.Connection, host: str) -> None:
        self._connection = connection
        self._host = host
        quotas = quotas_of(connection)
        self._holds = quotas is not None and quotas.hold_jumps
        self.created: dict[str, Seen] = {}
        self._seen: dict[int, Seen] = {}
        self._jumps: dict[str, str] = {}
        self._over: list[str] = []

    def evaluate(self, decision: Decision) -> None:
        """Note what there is to write; hold the facts of nodes that jumped, or open them."""
        for number, (change, row) in enumerate(decision.updates):
            record = change.record
            assert record is not None
            if _WATCHED.isdisjoint(change.columns) and not record.damaged:
                continue
            values = codec.merge_values(record.values, change.values, change.columns)
            before = row.capacity_seen
            if not before:  # of the release before, or damaged
                before = seen_of(record.values)
            seen, change = self._evaluate_one(change, values, before)
            if seen != row.capacity_seen:
                self._seen[row.id] = seen
            decision.updates[number] = change, row
        for number, change in enumerate(decision.creations):
            self.created[change.nodename], change = self._evaluate_one(change, change.values, {})
            decision.creations[number] = change
        self._over += [
            row.nodename
            for _, row in decision.deletions
            if row.capacity_seen and row.capacity_seen[HAS_JUMPED]
        ]

    def _evaluate_one(
        self, change: NodeChange, values: NodeValues, before: Mapping[str, Any]
    ) -> tuple[Seen, NodeChange]:
        largest, jump = find_jump(before, capacity_of(values))
        facts = values.facts
        if jump:
            self._jumps[change.nodename] = jump
        elif before.get(HAS_JUMPED):
            self._over.append(change.nodename)
        if jump and self._holds:
            facts = codec.close_facts(facts, f"{HELD}{_explain(self._host, change.nodename, jump)}")
        elif not jump and is_held(facts):
            facts = codec.close_facts(facts, OPENED)
        if facts != values.facts:
            change = dataclasses.replace(
                change,
                values=dataclasses.replace(change.values, facts=facts),
                columns=tuple({**dict.fromkeys(change.columns), "facts": None}),
            )
        return largest | {HAS_JUMPED: bool(jump)}, change

    def write(self) -> StoreEvent:
        """Write what `evaluate` noted, and return which warnings began and ended."""
        rows = [{"id": node_id, "capacity_seen": seen} for node_id, seen in self._seen.items()]
        update_each(self._connection, tables.compute_nodes, ["id"], rows)
        raised = [
            HostWarning(
                WarningKind.CAPACITY_JUMP, nodename, NO_ITEM, _explain(self._host, nodename, jump)
            )
            for nodename, jump in self._jumps.items()
        ]
        if raised:
            raised = host_warnings.raise_warnings(self._connection, self._host, raised)
        event = resolve(self._connection, self._host, self._over)
        return dataclasses.replace(event, raised=tuple((self._host, item) for item in raised))


def resolve(connection: sa.Connection, host: str, nodenames: Sequence[str]) -> StoreEvent:
    """Resolve the warnings about the capacity of some nodes."""
    if not nodenames:
        return StoreEvent()
    is_about = sa.and_(
        _warnings.kind == WarningKind.CAPACITY_JUMP.value,
        _warnings.host == host,
        _warnings.nodename.in_(nodenames),
    )
    _, event = host_warnings.resolve_some(connection, is_about)
    return event


def accept_node(connection: sa.Connection, host: str, nodename: str) -> tuple[None, StoreEvent]:
    is_node = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    query = sa.select(tables.compute_nodes, utc_now().label("now")).where(is_node)
    row = connection.execute(query.with_for_update()).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    record = codec.decode_node(row)
    values, seen = record.values, seen_of(record.values)
    if is_held(values.facts):
        values = dataclasses.replace(values, facts=codec.close_facts(values.facts, OPENED))
    connection.execute(
        sa.update(tables.compute_nodes)
        .where(is_node)
        .values(
            capacity_seen=seen,
            updated_at=row["now"],
            **codec.encode_values(values, ("facts",)),
            **tables.raised_generation(),
        )
    )
    diff = {"capacity_seen": [row["capacity_seen"], seen]}
    line = history.line(row["now"], row["id"], host, nodename, ChangeKind.UPDATE, diff)
    history.insert(connection, [line])
    return None, resolve(connection, host, [nodename])


def _explain(host: str, nodename: str, jump: str) -> str:
    return (
        f"the capacity jumped: {jump}; if that is right: nodetracker-manage node accept "
        f"{host} {nodename}"
    )
