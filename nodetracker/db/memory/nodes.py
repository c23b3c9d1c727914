"""Store nodes in dicts, and apply the changes of agents."""

import copy
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from nodetracker.accounting.liveness import is_service_up
from nodetracker.db import checks, node_decisions
from nodetracker.db.codec import parse_json, render_json
from nodetracker.db.memory.tables import (
    MemoryRows,
    Tables,
    bump_generation,
    delete_node,
    holder_of,
    is_expired,
    list_active_uuids,
    with_claims,
)
from nodetracker.db.node_decisions import Decision, LockedRow
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.claim import Claim
from nodetracker.model.errors import NotFoundError
from nodetracker.model.node import HostVersions, NodeRecord, NodeVersion
from nodetracker.model.service import AdminState
from nodetracker.ports import AgentKey, ApplyResult


class MemoryNodes(MemoryRows):
    """The part of `nodetracker.ports.Store` that stores nodes."""

    def load_versions(self, host: str, binary: str) -> HostVersions:
        """See `Store`."""
        with self._reading() as tables:
            service = tables.services.get((host, binary))
            if service is None:
                raise NotFoundError(f"host {host} has no services row for {binary}")
            versions = {
                record.nodename: NodeVersion(record.id, record.generation, record.epoch)
                for record in tables.nodes.values()
                if record.host == host
            }
            admin = AdminState(service.disabled, service.maintenance)
            return HostVersions(
                self._clock(), service.epoch, service.uuid, service.report_count, versions, admin
            )

    def load_nodes(self, host: str, node_ids: Collection[int] | None = None) -> list[NodeRecord]:
        """See `Store`."""
        with self._reading() as tables:
            return sorted(
                (
                    with_claims(tables, record, self._clock())
                    for record in tables.nodes.values()
                    if record.host == host and (node_ids is None or record.id in node_ids)
                ),
                key=lambda record: record.nodename,
            )

    def list_expired_claims(self, host: str, workload_uuids: Collection[str]) -> list[Claim]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                dataclasses.replace(claim, host=record.host, nodename=record.nodename)
                for claim in sorted(tables.claims.values(), key=lambda claim: claim.created_at)
                if (record := tables.nodes[claim.node_id]).host == host
                and claim.workload.uuid in workload_uuids
                and is_expired(claim)
            ]

    def list_nodes(self, host: str | None = None, nodename: str | None = None) -> list[NodeRecord]:
        """See `Store`."""
        with self._reading() as tables:
            return sorted(
                (
                    dataclasses.replace(record, guests={}, devices={}, claims={})
                    for record in tables.nodes.values()
                    if host in (None, record.host) and nodename in (None, record.nodename)
                ),
                key=lambda record: (record.host, record.nodename),
            )

    def delete_node(self, host: str, nodename: str) -> None:
        """See `Store`."""
        with self._writing() as tables:
            for record in tables.nodes.values():
                if (record.host, record.nodename) == (host, nodename):
                    checks.check_unclaimed(f"node {nodename}", list_active_uuids(tables, [record]))
                    now = self._clock()
                    delete_node(tables, record.id, now)
                    tables.add_history(now, host, nodename, ChangeKind.DELETE)
                    return
            raise NotFoundError(f"no such node: {nodename} on host {host}")

    def adopt_uuid(self, host: str, nodename: str, before: str, uuid: str) -> None:
        """See `Store`."""
        with self._writing() as tables:
            rows = [(r.uuid, r.host, r.nodename) for r in tables.nodes.values()]
            concerned = [row for row in rows if row[0] == uuid or row[1:] == (host, nodename)]
            checks.check_adoption(host, nodename, before, uuid, concerned)
            now = self._clock()
            for record in tables.nodes.values():
                if (record.host, record.nodename) == (host, nodename):
                    tables.nodes[record.id] = dataclasses.replace(
                        record, uuid=uuid, generation=record.generation + 1, updated_at=now
                    )
            diff = {"uuid": [before, uuid]}
            tables.add_history(now, host, nodename, ChangeKind.UPDATE, diff)

    def apply_changes(
        self, agent: AgentKey, changes: Sequence[NodeChange], service_down_time: int
    ) -> ApplyResult:
        """See `Store`."""
        if not changes:
            return ApplyResult()
        with self._writing() as tables:
            now = self._clock()
            service = tables.services.get((agent.host, agent.binary))
            checks.check_agent(agent, holder_of(service))
            rows = _find_rows(tables, agent, changes)
            hosts_up = frozenset(
                host
                for host in node_decisions.list_foreign_hosts(agent, changes, rows)
                if (other := tables.services.get((host, agent.binary))) is not None
                and is_service_up(other, now, service_down_time)
            )
            ends = {
                uuid: tables.claims[uuid].node_id
                for uuid in node_decisions.list_move_claims(changes) & tables.claims.keys()
            }
            decision = node_decisions.decide(agent, changes, rows, hosts_up, ends)
            return _write(tables, agent, now, decision)


def _find_rows(tables: Tables, agent: AgentKey, changes: Sequence[NodeChange]) -> list[LockedRow]:
    """Return every row that a change refers to, like those that the SQL store locks."""
    ids = {change.record.id for change in changes if change.record is not None}
    new = [change for change in changes if change.record is None]
    uuids = {change.uuid for change in new}
    nodenames = {change.nodename for change in new}
    return [
        LockedRow(
            id=record.id,
            uuid=record.uuid,
            host=record.host,
            nodename=record.nodename,
            generation=record.generation,
            epoch=record.epoch,
            created_at=record.created_at,
            updated_at=record.updated_at,
        )
        for record in tables.nodes.values()
        if record.created_at is not None
        and (
            record.id in ids
            or record.uuid in uuids
            or (record.host == agent.host and record.nodename in nodenames)
        )
    ]


def _write(tables: Tables, agent: AgentKey, now: datetime, decision: Decision) -> ApplyResult:
    """Write a decision, in the SQL store's order."""
    written: list[NodeRecord] = []

    def add_history(change: NodeChange, what: ChangeKind, diff: Mapping[str, object]) -> None:
        plain = parse_json(render_json(diff))
        tables.add_history(now, change.host, change.nodename, what, plain)

    for change, row in decision.deletions:
        delete_node(tables, row.id, now)
        add_history(change, ChangeKind.DELETE, change.diff)
    for change, row in decision.moves:
        held = [c for c in tables.claims.values() if c.node_id == row.id and c.is_active]
        written.append(node_decisions.moved_record(change, row, agent, now, held))
        add_history(change, ChangeKind.UPDATE, node_decisions.move_diff(change, row))
    for change, row in decision.updates:
        written.append(node_decisions.updated_record(change, row, agent, now))
        add_history(change, ChangeKind.UPDATE, change.diff)
    written.extend(
        node_decisions.measured_record(change, row, now) for change, row in decision.measures
    )
    for change in decision.creations:
        written.append(node_decisions.created_record(change, tables.next_id(), agent, now))
        add_history(change, ChangeKind.CREATE, change.diff)
    for change, _ in decision.updates:
        tables.claims.update({c.uuid: c for c in node_decisions.stamp_claims(change, now)})
        for move in node_decisions.stamp_moves(change, now):
            known = tables.migrations[move.migration.uuid]
            if known.is_running and not move.migration.is_running:
                tables.migrations[known.uuid] = move.migration
    # Claims and migrations are stored in their own tables.
    tables.nodes.update({r.id: dataclasses.replace(r, claims={}, moves=()) for r in written})
    for node_id in decision.touched & tables.nodes.keys():
        bump_generation(tables, node_id)
    by_nodename = {record.nodename: record for record in written}
    return ApplyResult(copy.deepcopy(by_nodename), tuple(decision.conflicts), decision.refused)
