"""Apply the changes of an audit: lock the rows, decide, write.

Locks are taken in a fixed order: the services row, then the nodes by id. A
takeover uses the same order.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.audit import decisions
from nodetracker.accounting.audit.decisions import Decision, Holder, Located, LockedRow
from nodetracker.accounting.ledger.candidates import place_of
from nodetracker.accounting.ledger.node_limits import limits_of
from nodetracker.accounting.liveness import is_service_up
from nodetracker.db import capacities, codec, history, host_warnings, node_records
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.ledger import migrations
from nodetracker.db.ledger.claims import bump_generation
from nodetracker.db.migrations import list_where
from nodetracker.db.nodes import CHILDREN, delete_rows
from nodetracker.db.quotas import find_excess
from nodetracker.db.schema import tables
from nodetracker.db.services import check_agent, lock_service, select_service
from nodetracker.db.statements import update_each
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange, StoreEvent
from nodetracker.model.node import NODE_COLUMNS, VOLATILE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.shapes import ShapeError
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from nodetracker.ports import AgentKey, ApplyResult

_nodes = tables.compute_nodes.c


_claims = tables.claims.c
_services = tables.services.c


def apply_changes(
    connection: sa.Connection,
    agent: AgentKey,
    changes: Sequence[NodeChange],
    service_down_time: int,
) -> tuple[ApplyResult, StoreEvent]:
    if not changes:
        return ApplyResult(), StoreEvent()
    misfits = {item.nodename: reason for item in changes if (reason := _find_misfit(item))}
    if misfits:
        lock_service(connection, agent)  # which comes before the nodes that are closed
        changes = [change for change in changes if change.nodename not in misfits]
    ends = _find_ends(connection, changes)
    now, rows = _lock(connection, agent, changes, ends.values())
    if excess := find_excess(connection, agent.host, changes, rows):
        misfits |= excess
        changes = [change for change in changes if change.nodename not in misfits]
    foreign = decisions.list_foreign_rows(agent, changes, rows)
    holders = _find_holders(connection, foreign, agent.binary, now, service_down_time)
    decision = decisions.decide(agent, changes, rows, holders, ends)
    watch = capacities.CapacityWatch(connection, agent.host)
    watch.evaluate(decision)
    result = NodeWriter(connection, agent, now).apply(decision, watch.created)
    uuids = {row.id: row.uuid for row in rows}  # a conductor's agents may name any
    written = (
        change
        if change.record is None
        else dataclasses.replace(change, uuid=uuids[change.record.id])
        for change in changes
        if change.nodename not in result.conflicts and change.nodename not in result.refused
    )
    event = dataclasses.replace(watch.write(), changes=tuple(written))
    if misfits:
        _close(connection, agent, misfits)
        refused = {**result.refused, **misfits}
        result = dataclasses.replace(result, refused=refused, misfits=tuple(misfits))
    return result, event


def _close(connection: sa.Connection, agent: AgentKey, misfits: Mapping[str, str]) -> None:
    """Close nodes whose changes have values of no column, or exceed a quota of their host.

    Nobody knows what such a node has left, so it gets no claims until its host writes it.
    """
    is_own = sa.and_(_nodes.host == agent.host, _nodes.hypervisor_hostname.in_(sorted(misfits)))
    query = sa.select(tables.compute_nodes).where(is_own).order_by(_nodes.id).with_for_update()
    closed = []
    for row in connection.execute(query).mappings():
        record = codec.decode_node(row)
        error = f"what the host reports cannot be stored: {misfits[record.nodename]}"
        facts = codec.close_facts(record.values.facts, error)
        values = dataclasses.replace(record.values, facts=facts)
        if facts != record.values.facts:
            generation = record.generation + 1
            derived = encode_derived(record.uuid, values, generation)
            columns = codec.encode_values(values, ("facts",)) | derived
            closed.append({"id": record.id, "generation": generation, **columns})
    update_each(connection, tables.compute_nodes, ["id"], closed)
    warnings = [
        HostWarning(WarningKind.ROW_REFUSED, nodename, NO_ITEM, reason)
        for nodename, reason in misfits.items()
    ]
    host_warnings.raise_warnings(connection, agent.host, warnings)


def _find_misfit(change: NodeChange) -> str:
    """Return which column and item has a value that it may not have, "" if none has."""
    rows = [(tables.compute_nodes, "", codec.encode_values(change.values, change.columns))]
    rows += [
        (tables.guests, f" of guest {item.uuid}", codec.encode_guest(item))
        for item in (*change.guests.added, *change.guests.changed)
    ]
    rows += [
        (tables.pci_devices, f" of device {item.address}", codec.encode_row(item))
        for item in (*change.devices.added, *change.devices.changed)
    ]
    for table, owner, row in rows:
        for name, value in row.items():
            kind: Any = table.c[name].type
            if value is None or isinstance(kind, sa.Boolean):
                continue
            try:
                kind.check(value)
            except ShapeError as error:
                return f"column {name}{owner}: {error}"
    return ""


def _lock(
    connection: sa.Connection,
    agent: AgentKey,
    changes: Sequence[NodeChange],
    ends: Collection[int],
) -> tuple[datetime, list[LockedRow]]:
    """Lock every row that the changes name, and check that the agent is not fenced.

    Updates lock their rows, so no takeover can raise their epoch meanwhile. A
    creation has no row yet, so it locks the services row first, as a takeover does.
    """
    ids = {change.record.id for change in changes if change.record is not None} | set(ends)
    new = [change for change in changes if change.record is None]
    now: datetime | None = None
    if new:
        now = lock_service(connection, agent)
        ids.update(_find_existing(connection, agent.host, new))
    rows: list[LockedRow] = []
    if ids:
        mine = sa.and_(_services.host == agent.host, _services.binary == agent.binary)
        for row in connection.execute(
            sa.select(
                _nodes.id,
                _nodes.uuid,
                _nodes.host,
                _nodes.hypervisor_hostname,
                _nodes.generation,
                _nodes.epoch,
                _nodes.created_at,
                _nodes.updated_at,
                _nodes.capacity_seen,
                utc_now().label("now"),
                sa.select(_services.agent_id).where(mine).scalar_subquery().label("agent_id"),
                sa.select(_services.epoch).where(mine).scalar_subquery().label("agent_epoch"),
                sa.select(_services.uuid).where(mine).scalar_subquery().label("service_uuid"),
            )
            .where(_nodes.id.in_(sorted(ids)))
            .order_by(_nodes.id)
            .with_for_update()
        ):
            if now is None:
                check_agent(agent, row.agent_id, row.agent_epoch, row.service_uuid)
                now = row.now
            rows.append(LockedRow(*row[:9]))
    if now is None:  # all rows are gone: nothing to write, but the agent may be fenced
        now = lock_service(connection, agent)
    return now, rows


def _find_ends(connection: sa.Connection, changes: Sequence[NodeChange]) -> Mapping[str, int]:
    """Return claim -> node id, which never changes, of both ends of the moves that are written."""
    uuids = decisions.list_move_claims(changes)
    if not uuids:
        return {}
    found = connection.execute(
        sa.select(_claims.uuid, _claims.compute_node_id).where(_claims.uuid.in_(sorted(uuids)))
    )
    return {row.uuid: row.compute_node_id for row in found}


def _find_existing(connection: sa.Connection, host: str, new: Sequence[NodeChange]) -> list[int]:
    """Return ids of rows that creations may collide with; they are read again under the lock."""
    nodenames = [change.nodename for change in new]
    uuids = [change.uuid for change in new]
    found = connection.execute(
        sa.union(
            sa.select(_nodes.id).where(
                _nodes.host == host, _nodes.hypervisor_hostname.in_(nodenames)
            ),
            sa.select(_nodes.id).where(_nodes.uuid.in_(uuids)),
        )
    )
    return list(found.scalars())


def _find_holders(
    connection: sa.Connection,
    rows: Sequence[LockedRow],
    binary: str,
    now: datetime,
    service_down_time: int,
) -> Mapping[int, Holder]:
    """Return id of each row -> its host, and since when it is that."""
    if not rows:
        return {}
    hosts = sorted({row.host for row in rows})
    found = select_service().where(_services.host.in_(hosts), _services.binary == binary)
    services = map(codec.decode_service, connection.execute(found).mappings())
    up = {service.host for service in services if is_service_up(service, now, service_down_time)}
    moved = history.find_host_changes(connection, [(row.host, row.nodename) for row in rows])
    return {
        row.id: Holder(moved.get((row.host, row.nodename), row.created_at), row.host in up)
        for row in rows
    }


class NodeWriter:
    """Writes a decision with one statement for each kind of write.

    Deletions come first and creations last, so that unique keys never collide.
    """

    def __init__(self, connection: sa.Connection, agent: AgentKey, now: datetime) -> None:
        self._connection = connection
        self._agent = agent
        self._now = now
        self._records: dict[str, NodeRecord] = {}
        self._history: list[dict[str, Any]] = []
        self._written: list[tuple[int, NodeChange]] = []

    def apply(
        self, decision: Decision, capacities_seen: Mapping[str, Mapping[str, Any]]
    ) -> ApplyResult:
        """Write everything and return the result.

        Args:
            capacities_seen: nodename -> that column of each creation.
        """
        self._delete(decision)
        self._update(decision)
        bump_generation(self._connection, decision.touched)
        self._measure(decision)
        self._create(decision, capacities_seen)
        guests = [(node_id, change.guests) for node_id, change in self._written]
        self._write_children(
            tables.guests, "uuid", codec.encode_guest, guests, first_seen=self._now
        )
        devices = [(node_id, change.devices) for node_id, change in self._written]
        self._write_children(tables.pci_devices, "address", codec.encode_row, devices)
        self._write_claims(decision)
        errors = [move.migration for change, _ in decision.updates for move in change.moves]
        migrations.write_errors(self._connection, errors, self._now)
        ended = [migration.uuid for migration in errors if not migration.is_running]
        if ended:
            # Only those that this audit has set: the other end's may have been first.
            is_set = tables.migrations.c.updated_at == self._now
            stored = list_where(self._connection, tables.migrations.c.uuid.in_(ended), is_set)
            self._history += map(history.move_line, stored)
        history.insert(self._connection, self._history)
        return ApplyResult(self._records, tuple(decision.conflicts), decision.refused)

    def _delete(self, decision: Decision) -> None:
        if decision.deletions:
            ids = [row.id for _, row in decision.deletions]
            delete_rows(self._connection, ids, _list_children(decision.deletions))
        for change, row in decision.deletions:
            self._log(row.id, change, ChangeKind.DELETE, change.diff)

    def _update(self, decision: Decision) -> None:
        columns = _list_columns(decision.updates)
        rows = []
        for change, row in decision.updates:
            record = node_records.updated_record(change, row, self._agent, self._now)
            rows.append(_encode(record, columns))
            self._remember(record, change)
            self._log(row.id, change, ChangeKind.UPDATE, change.diff)
        self._update_rows(rows)
        self._repair(decision)

    def _repair(self, decision: Decision) -> None:
        """Write the columns of damaged rows that no other update writes."""
        damaged = [
            (change.record, row)
            for change, row in decision.updates
            if change.record is not None and change.record.damaged
        ]
        rows = [
            {
                "id": row.id,
                "uuid": record.uuid,
                "created_at": self._now if "created_at" in record.damaged else record.created_at,
            }
            for record, row in damaged
        ]
        update_each(self._connection, tables.compute_nodes, ["id"], rows)
        ages = [
            {"compute_node_id": row.id, "uuid": guest.uuid, "first_seen": self._now}
            for change, row in decision.updates
            for guest in (change.record.guests.values() if change.record is not None else ())
            if "first_seen" in guest.damaged
        ]
        update_each(self._connection, tables.guests, ["compute_node_id", "uuid"], ages)

    def _update_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        update_each(
            self._connection,
            tables.compute_nodes,
            ["id"],
            rows,
            generation=tables.next_number(_nodes.generation),
            epoch=self._agent.epoch,
            updated_at=self._now,
        )

    def _measure(self, decision: Decision) -> None:
        columns = [name for name in _list_columns(decision.measures) if name in VOLATILE_COLUMNS]
        rows = []
        for change, row in decision.measures:
            record = node_records.measured_record(change, row, self._now)
            rows.append(_encode(record, columns))
            self._records[change.nodename] = record
        update_each(self._connection, tables.compute_nodes, ["id"], rows, updated_at=self._now)

    def _create(self, decision: Decision, capacities_seen: Mapping[str, Mapping[str, Any]]) -> None:
        if not decision.creations:
            return
        rows = []
        for change in decision.creations:
            record = node_records.created_record(change, 0, self._agent, self._now)
            identity = {
                "uuid": record.uuid,
                "host": record.host,
                "hypervisor_hostname": record.nodename,
                "generation": record.generation,
                "epoch": record.epoch,
                "created_at": record.created_at,
                "updated_at": record.updated_at,
                "capacity_seen": capacities_seen[record.nodename],
            }
            derived = encode_derived(record.uuid, record.values, record.generation)
            rows.append(identity | codec.encode_values(record.values) | derived)
        self._connection.execute(sa.insert(tables.compute_nodes), rows)
        nodenames = [change.nodename for change in decision.creations]
        found = self._connection.execute(
            sa.select(_nodes.hypervisor_hostname, _nodes.id).where(
                _nodes.host == self._agent.host, _nodes.hypervisor_hostname.in_(nodenames)
            )
        )
        ids: dict[str, int] = {row[0]: row[1] for row in found}
        for change in decision.creations:
            node_id = ids[change.nodename]
            record = node_records.created_record(change, node_id, self._agent, self._now)
            self._remember(record, change)
            self._log(node_id, change, ChangeKind.CREATE, change.diff)

    def _write_claims(self, decision: Decision) -> None:
        """Write the claims that the audit reconciled."""
        claims = [
            (claim, row.id)
            for change, row in decision.updates
            for claim in node_records.stamp_claims(change, self._now)
        ]
        reconciled = [
            {"uuid": claim.uuid, "compute_node_id": node_id} | codec.encode_claim_state(claim)
            for claim, node_id in claims
        ]
        # A conductor's agents may name any claim.
        update_each(self._connection, tables.claims, ["uuid", "compute_node_id"], reconciled)
        self._history += [history.claim_line(claim) for claim, _ in claims]

    def _write_children(
        self,
        table: sa.Table,
        key: str,
        encode: Callable[[Any], dict[str, Any]],
        diffs: Sequence[tuple[int, ItemDiff[Any]]],
        **first: Any,
    ) -> None:
        """Write guests or devices of all nodes, one statement for each kind of write.

        Args:
            key: the column that differs between those of a node.
            first: further columns of new ones.
        """
        removed = [
            {"p_node": node_id, "p_key": getattr(item, key)}
            for node_id, diff in diffs
            for item in diff.removed
        ]
        if removed:
            is_node = table.c.compute_node_id == sa.bindparam("p_node")
            is_removed = sa.and_(is_node, table.c[key] == sa.bindparam("p_key"))
            self._connection.execute(sa.delete(table).where(is_removed), removed)
        changed = [
            {"compute_node_id": node_id} | encode(item)
            for node_id, diff in diffs
            for item in diff.changed
        ]
        update_each(self._connection, table, ["compute_node_id", key], changed)
        added = [
            {"compute_node_id": node_id} | encode(item) | first
            for node_id, diff in diffs
            for item in diff.added
        ]
        if added:
            self._connection.execute(sa.insert(table), added)

    def _remember(self, record: NodeRecord, change: NodeChange) -> None:
        self._records[record.nodename] = record
        self._written.append((record.id, change))

    def _log(
        self, node_id: int, change: NodeChange, what: ChangeKind, diff: Mapping[str, Any]
    ) -> None:
        self._history.append(
            history.line(self._now, node_id, change.host, change.nodename, what, diff)
        )


def _list_children(deletions: Iterable[Located]) -> list[sa.Table]:
    """Return the tables that have rows of deleted nodes.

    The records that the deletions rest on have the generation of the locked rows,
    so their guests and devices are all that exist.
    """
    known = [change.record for change, _ in deletions if change.record is not None]
    has_rows = {
        tables.guests: any(record.guests for record in known),
        tables.pci_devices: any(record.devices for record in known),
    }
    return [table for table in CHILDREN if has_rows[table]]


def _list_columns(located: Iterable[Located]) -> list[str]:
    """Return the columns that any of some changes names, in their usual order."""
    named = {name for change, _ in located for name in change.columns}
    return [name for name in NODE_COLUMNS if name in named]


def _encode(record: NodeRecord, columns: Iterable[str]) -> dict[str, Any]:
    """Return the id and some columns of a row, and those that follow from its columns."""
    derived = encode_derived(record.uuid, record.values, record.generation)
    return {"id": record.id} | codec.encode_values(record.values, columns) | derived


def encode_derived(uuid: str, values: NodeValues, generation: int) -> dict[str, Any]:
    """Return the columns that follow from a row's other columns.

    Args:
        generation: of the row with these values. Programs that change a row without its
            limits raise only its own generation, which marks the limits as stale.
    """
    limits = dataclasses.asdict(limits_of(values))
    return limits | {"limits_generation": generation, "place": place_of(uuid)}
