"""Write the decision on a batch of changes, one statement for each kind of write."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec, history
from nodetracker.db.audit import records
from nodetracker.db.audit.decisions import Decision, Located
from nodetracker.db.claims import list_active_claims
from nodetracker.db.ledger import migrations
from nodetracker.db.ledger.writes import bump_generation
from nodetracker.db.limits import LIMIT_COLUMNS, encode_limits
from nodetracker.db.nodes import CHILDREN, delete_children, delete_rows
from nodetracker.db.schema import tables
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange
from nodetracker.model.node import NODE_COLUMNS, VOLATILE_COLUMNS, NodeRecord
from nodetracker.ports import AgentKey, ApplyResult

_nodes = tables.compute_nodes.c


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
        self._below: list[tuple[int, NodeChange]] = []

    def apply(self, decision: Decision) -> ApplyResult:
        """Write everything and return the result."""
        self._delete(decision)
        self._move(decision)
        self._update(decision)
        bump_generation(self._connection, decision.touched)
        self._measure(decision)
        self._create(decision)
        self._write_below(
            tables.guests,
            "uuid",
            codec.encode_guest,
            {"first_seen": self._now},
            [(node_id, change.guests) for node_id, change in self._below],
        )
        self._write_below(
            tables.pci_devices,
            "address",
            codec.encode_device,
            {},
            [(node_id, change.devices) for node_id, change in self._below],
        )
        self._write_claims(decision)
        errors = [move.migration for change, _ in decision.updates for move in change.moves]
        migrations.write_errors(self._connection, errors, self._now)
        history.insert(self._connection, self._history)
        return ApplyResult(self._records, tuple(decision.conflicts), decision.refused)

    def _delete(self, decision: Decision) -> None:
        if decision.deletions:
            ids = [row.id for _, row in decision.deletions]
            delete_rows(self._connection, ids, _list_children(decision.deletions))
        for change, row in decision.deletions:
            self._note(row.id, change, ChangeKind.DELETE, change.diff)

    def _move(self, decision: Decision) -> None:
        if not decision.moves:
            return
        ids = [row.id for _, row in decision.moves]
        delete_children(self._connection, ids)
        held = list_active_claims(self._connection, ids)
        parameters = []
        for change, row in decision.moves:
            mine = [claim for claim in held if claim.node_id == row.id]
            record = records.moved_record(change, row, self._agent, self._now, mine)
            identity = {"p_host": record.host, "p_hypervisor_hostname": record.nodename}
            parameters.append(_parameters(record, NODE_COLUMNS) | identity)
            self._remember(record, records.moved_change(change, record))
            self._note(row.id, change, ChangeKind.UPDATE, records.move_diff(change, row))
        self._update_rows(("host", "hypervisor_hostname", *NODE_COLUMNS), parameters)

    def _update(self, decision: Decision) -> None:
        if not decision.updates:
            return
        named = {name for change, _ in decision.updates for name in change.columns}
        columns = [name for name in NODE_COLUMNS if name in named]
        parameters = []
        for change, row in decision.updates:
            record = records.updated_record(change, row, self._agent, self._now)
            parameters.append(_parameters(record, columns))
            self._remember(record, change)
            self._note(row.id, change, ChangeKind.UPDATE, change.diff)
        self._update_rows(columns, parameters)

    def _update_rows(self, columns: Iterable[str], parameters: list[dict[str, Any]]) -> None:
        statement = (
            sa.update(tables.compute_nodes)
            .where(_nodes.id == sa.bindparam("p_id"))
            .values(
                {
                    "generation": _nodes.generation + 1,
                    "epoch": self._agent.epoch,
                    "updated_at": self._now,
                    **{name: sa.bindparam(f"p_{name}") for name in (*columns, *LIMIT_COLUMNS)},
                }
            )
        )
        self._connection.execute(statement, parameters)

    def _measure(self, decision: Decision) -> None:
        if not decision.measures:
            return
        named = {name for change, _ in decision.measures for name in change.columns}
        columns = [name for name in NODE_COLUMNS if name in named & VOLATILE_COLUMNS]
        parameters = []
        for change, row in decision.measures:
            record = records.measured_record(change, row, self._now)
            parameters.append(_parameters(record, columns))
            self._records[change.nodename] = record
        statement = (
            sa.update(tables.compute_nodes)
            .where(_nodes.id == sa.bindparam("p_id"))
            .values(
                {
                    "updated_at": self._now,
                    **{name: sa.bindparam(f"p_{name}") for name in (*columns, *LIMIT_COLUMNS)},
                }
            )
        )
        self._connection.execute(statement, parameters)

    def _create(self, decision: Decision) -> None:
        if not decision.creations:
            return
        rows = []
        for change in decision.creations:
            record = records.created_record(change, 0, self._agent, self._now)
            identity = {
                "uuid": record.uuid,
                "host": record.host,
                "hypervisor_hostname": record.nodename,
                "generation": record.generation,
                "epoch": record.epoch,
                "created_at": record.created_at,
                "updated_at": record.updated_at,
            }
            limits = encode_limits(record.values, record.generation)
            rows.append(identity | codec.encode_values(record.values) | limits)
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
            record = records.created_record(change, node_id, self._agent, self._now)
            self._remember(record, change)
            self._note(node_id, change, ChangeKind.CREATE, change.diff)

    def _write_claims(self, decision: Decision) -> None:
        """Write the claims that the audit reconciled, with one statement."""
        reconciled = [
            {f"p_{name}": value for name, value in codec.encode_claim_state(claim).items()}
            | {"p_uuid": claim.uuid}
            for change, _ in decision.updates
            for claim in records.stamp_claims(change, self._now)
        ]
        if reconciled:
            statement = (
                sa.update(tables.claims)
                .where(tables.claims.c.uuid == sa.bindparam("p_uuid"))
                .values(
                    {
                        name.removeprefix("p_"): sa.bindparam(name)
                        for name in reconciled[0]
                        if name != "p_uuid"
                    }
                )
            )
            self._connection.execute(statement, reconciled)

    def _write_below(
        self,
        table: sa.Table,
        key: str,
        encode: Callable[[Any], dict[str, Any]],
        first: Mapping[str, Any],
        diffs: Sequence[tuple[int, ItemDiff[Any]]],
    ) -> None:
        """Write guests or devices of all nodes, one statement for each kind of write."""
        removed = [
            {"p_node": node_id, "p_key": getattr(item, key)}
            for node_id, diff in diffs
            for item in diff.removed
        ]
        one = sa.and_(
            table.c.compute_node_id == sa.bindparam("p_node"), table.c[key] == sa.bindparam("p_key")
        )
        if removed:
            self._connection.execute(sa.delete(table).where(one), removed)
        changed = [
            {"p_node": node_id, "p_key": getattr(item, key)}
            | {f"p_{name}": value for name, value in encode(item).items() if name != key}
            for node_id, diff in diffs
            for item in diff.changed
        ]
        if changed:
            columns: dict[str, Any] = {
                name.removeprefix("p_"): sa.bindparam(name)
                for name in changed[0]
                if name not in ("p_node", "p_key")
            }
            self._connection.execute(sa.update(table).where(one).values(columns), changed)
        added = [
            {"compute_node_id": node_id} | encode(item) | dict(first)
            for node_id, diff in diffs
            for item in diff.added
        ]
        if added:
            self._connection.execute(sa.insert(table), added)

    def _remember(self, record: NodeRecord, change: NodeChange) -> None:
        self._records[record.nodename] = record
        self._below.append((record.id, change))

    def _note(
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


def _parameters(record: NodeRecord, columns: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of a row's update."""
    limits = encode_limits(record.values, record.generation)
    encoded = codec.encode_values(record.values, columns) | limits
    return {"p_id": record.id} | {f"p_{name}": value for name, value in encoded.items()}
