"""Store services in dicts: the agent that holds a host, and its heartbeats."""

import copy
import dataclasses
import uuid
from datetime import datetime

from nodetracker.accounting.liveness import has_ended, is_service_up
from nodetracker.db import checks, codec
from nodetracker.db.checks import Holder
from nodetracker.db.memory.provider_removals import rename_removals
from nodetracker.db.memory.tables import (
    MemoryRows,
    Tables,
    delete_node,
    holder_of,
    list_active_uuids,
    nodes_of,
)
from nodetracker.model.change import ChangeKind, removed_diff
from nodetracker.model.errors import FencedError, NotFoundError
from nodetracker.model.service import (
    COMPUTE_BINARY,
    AuditState,
    Incarnation,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.warning import WHOLE_HOST
from nodetracker.ports import AgentKey


class MemoryServices(MemoryRows):
    """The part of `nodetracker.ports.Store` that stores services."""

    def register_agent(
        self,
        host: str,
        binary: str,
        topic: str,
        version: str,
        incarnation: Incarnation,
        expected: ServiceRecord | None,
        held_epoch: int = 0,
    ) -> ServiceRecord:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            found = tables.services.get((host, binary))
            checks.check_expected(expected, found)
            nodes = nodes_of(tables, host) if binary == COMPUTE_BINARY else []
            epochs = [record.epoch for record in nodes] + ([found.epoch] if found else [])
            record = found or ServiceRecord(
                id=tables.next_id(),
                uuid=str(uuid.uuid4()),
                host=host,
                binary=binary,
                topic=topic,
                version=version,
                incarnation=incarnation,
                epoch=0,
                report_count=0,
                created_at=now,
            )
            epoch = max([*epochs, held_epoch]) + 1
            record = dataclasses.replace(
                record,
                topic=topic,
                version=version,
                incarnation=incarnation,
                epoch=epoch,
                updated_at=now,
            )
            tables.services[host, binary] = record
            for node in nodes:
                tables.nodes[node.id] = dataclasses.replace(node, epoch=epoch)
            return copy.deepcopy(record)

    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """See `Store`."""
        with self._writing() as tables:
            record = _find_service(tables, host, binary)
            now = self._clock()
            columns = codec.encode_service_change(change)
            if change.disabled and not record.is_disabled_by_administrator:
                columns |= codec.encode_disabling(change.disabled_by, now)
            record = dataclasses.replace(record, updated_at=now, **columns)
            tables.services[host, binary] = record
            return copy.deepcopy(record)

    def mark_service(self, agent: AgentKey, reason: str | None) -> None:
        """See `Store`."""
        with self._writing() as tables:
            record = tables.services.get((agent.host, agent.binary))
            if record is None or not _is_held_by(record, agent):
                return
            is_own = record.disabled and not record.is_disabled_by_administrator
            if not is_own and (reason is None or record.disabled):
                return
            now = self._clock()
            tables.services[agent.host, agent.binary] = dataclasses.replace(
                record,
                disabled=reason is not None,
                disabled_reason=reason,
                updated_at=now,
                disabled_at=None if reason is None else record.disabled_at if is_own else now,
                disabled_by=None,
            )

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            checks.check_deletion(_find_service(tables, host, binary), now, service_down_time)
            service = tables.services.pop((host, binary))
            if binary != COMPUTE_BINARY:
                return  # the host's nodes belong to its agent
            checks.check_unclaimed(
                f"host {host}", list_active_uuids(tables, nodes_of(tables, host))
            )
            for record in nodes_of(tables, host):
                delete_node(tables, record.id, now)
                tables.add_history(now, host, record.nodename, ChangeKind.DELETE)
            tables.add_history(now, host, WHOLE_HOST, ChangeKind.DELETE, removed_diff(service))
            for key in [key for key in tables.warnings if key[0] == host]:
                del tables.warnings[key]

    def rename_host(self, old: str, new: str, binary: str, expected: ServiceRecord | None) -> int:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            nodes = nodes_of(tables, old, new)
            found = checks.check_rename(
                old,
                new,
                [
                    record
                    for key, record in tables.services.items()
                    if key in ((old, binary), (new, binary))
                ],
                [(record.host, record.nodename) for record in nodes],
            )
            checks.check_expected(expected, found)
            epoch = max([r.epoch for r in nodes] + ([found.epoch] if found else [])) + 1
            if found is not None:
                del tables.services[old, binary]
                tables.services[new, binary] = dataclasses.replace(
                    found,
                    host=new,
                    epoch=epoch,
                    ended_epoch=epoch if has_ended(found) else found.ended_epoch,
                    updated_at=now,
                )
            _rename_warnings(tables, old, new)
            _rename_history(tables, old, new)
            rename_removals(tables, old, new)
            for record in nodes:
                nodename = new if record.nodename == old else record.nodename
                tables.nodes[record.id] = dataclasses.replace(
                    record,
                    host=new,
                    nodename=nodename,
                    epoch=epoch,
                    generation=record.generation + 1,
                    updated_at=now,
                )
                diff = checks.renamed_diff(old, new, record.nodename)
                tables.add_history(now, new, nodename, ChangeKind.UPDATE, diff)
            if found is not None:
                tables.add_history(
                    now, old, WHOLE_HOST, ChangeKind.DELETE, removed_diff(found, new)
                )
            return len(nodes)

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
        is_last: bool = False,
    ) -> None:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            record = tables.services.get((agent.host, agent.binary))
            if (
                record is None
                or not _is_held_by(record, agent)
                or record.report_count >= report_count
            ):
                raise FencedError(
                    f"host {agent.host} is no longer held by agent {agent.agent_id}, "
                    f"epoch {agent.epoch}"
                )
            skew = ((host_time or self._host_clock()) - now).total_seconds()
            tables.services[agent.host, agent.binary] = dataclasses.replace(
                record,
                report_count=report_count,
                last_seen_up=now,
                updated_at=now,
                clock_skew_ms=round(skew * 1000),
                last_audit=codec.encode_audit_state(state),
                ended_epoch=agent.epoch if is_last else record.ended_epoch,
            )

    def list_services(
        self, host: str | None = None, binary: str | None = None, agent_id: str | None = None
    ) -> list[ServiceRecord]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                record
                for key, record in sorted(tables.services.items())
                if host in (None, key[0])
                and binary in (None, key[1])
                and agent_id in (None, record.incarnation.agent_id)
            ]

    def list_outage_services(
        self, service_down_time: int, host: str | None = None
    ) -> list[ServiceRecord]:
        """See `Store`."""
        with self._reading() as tables:
            now = self._clock()
            return [
                record
                for key, record in sorted(tables.services.items())
                if key[1] != COMPUTE_BINARY
                or (host in (None, key[0]) and not is_service_up(record, now, service_down_time))
            ]


def _find_service(tables: Tables, host: str, binary: str) -> ServiceRecord:
    try:
        return tables.services[host, binary]
    except KeyError:
        raise NotFoundError(f"no such service: {binary} on host {host}") from None


def _is_held_by(record: ServiceRecord, agent: AgentKey) -> bool:
    holder = Holder(agent.agent_id, agent.epoch, agent.service_uuid)
    return holder_of(record) == holder and record.report_count >= agent.report_count


def _rename_warnings(tables: Tables, old: str, new: str) -> None:
    for key in [key for key in tables.warnings if key[0] == new]:
        del tables.warnings[key]
    for key in [key for key in tables.warnings if key[0] == old]:
        known = tables.warnings.pop(key)
        warning = known.warning
        if warning.nodename == old:
            warning = dataclasses.replace(warning, nodename=new)
        tables.warnings[new, warning.key] = dataclasses.replace(known, host=new, warning=warning)


def _rename_history(tables: Tables, old: str, new: str) -> None:
    tables.history = [
        dataclasses.replace(
            entry, host=new, nodename=new if entry.nodename == old else entry.nodename
        )
        if entry.host == old
        else entry
        for entry in tables.history
    ]
