"""The store port over dicts: what tests and tools use where no database is needed.

It keeps every rule of the SQL store, proved by the same contract suite.
"""

import copy
import dataclasses
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nodetracker.accounting import ledger, moves
from nodetracker.accounting.admission import Admission
from nodetracker.accounting.ledger import LockedNode
from nodetracker.accounting.liveness import is_service_up
from nodetracker.accounting.moves import Ending
from nodetracker.accounting.numa_usage import list_placements
from nodetracker.accounting.pci_pools import pci_columns
from nodetracker.accounting.pci_state import allocate_devices
from nodetracker.accounting.usage import Charge, charge_of_claim, charge_of_guest
from nodetracker.db import codec, decisions
from nodetracker.db.decisions import Decision, Holder, LockedRow
from nodetracker.errors import (
    ClaimRefusedError,
    FencedError,
    NotFoundError,
    RefusedError,
)
from nodetracker.model.change import ChangeKind, HistoryEntry, NodeChange
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, ReleaseReason, SplitBrain
from nodetracker.model.fleet import LedgerNode, LedgerStamp, LedgerStamps
from nodetracker.model.migration import Migration, MigrationStatus, Move
from nodetracker.model.node import HostStamps, NodeRecord, NodeStamp
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import (
    AUTO_PREFIX,
    COMPUTE_BINARY,
    AuditState,
    Incarnation,
    ServiceChange,
    ServiceGate,
    ServiceRecord,
)
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.ports import AgentKey, ApplyResult, LedgerTerms

Clock = Callable[[], datetime]


def _utc_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Tables:
    """All rows, by what makes them unique."""

    nodes: dict[int, NodeRecord] = field(default_factory=dict)
    services: dict[tuple[str, str], ServiceRecord] = field(default_factory=dict)
    warnings: dict[tuple[str, tuple[str, str, str]], WarningRecord] = field(default_factory=dict)
    history: list[HistoryEntry] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    migrations: dict[str, Migration] = field(default_factory=dict)
    last_id: int = 0


class MemoryStore:
    """`nodetracker.ports.Store` in this process's memory; safe to use from several threads.

    Args:
        clock: stands for the database's clock.
        host_clock: the agent's own time, whose skew each heartbeat stores.
    """

    def __init__(self, clock: Clock = _utc_clock, host_clock: Clock | None = None) -> None:
        self._clock = clock
        self._host_clock = host_clock or clock
        self._lock = threading.RLock()
        self._tables = _Tables()

    @contextmanager
    def _reading(self) -> Iterator[_Tables]:
        """Give a copy, so that no caller can change what is stored."""
        with self._lock:
            yield copy.deepcopy(self._tables)

    @contextmanager
    def _writing(self) -> Iterator[_Tables]:
        """Give a copy and keep it, unless the block raises."""
        with self._lock:
            tables = copy.deepcopy(self._tables)
            yield tables
            # Not to share what the caller put in and got out.
            self._tables = copy.deepcopy(tables)

    def load_stamps(self, host: str, binary: str) -> HostStamps:
        """See `Store`."""
        with self._reading() as tables:
            service = tables.services.get((host, binary))
            if service is None:
                raise NotFoundError(f"host {host} has no services row for {binary}")
            stamps = {
                record.nodename: NodeStamp(record.id, record.generation, record.epoch)
                for record in tables.nodes.values()
                if record.host == host
            }
            return HostStamps(self._clock(), service.epoch, service.uuid, stamps)

    def load_nodes(self, host: str, node_ids: Collection[int] | None = None) -> list[NodeRecord]:
        """See `Store`."""
        with self._reading() as tables:
            return sorted(
                (
                    _with_claims(tables, record)
                    for record in tables.nodes.values()
                    if record.host == host and (node_ids is None or record.id in node_ids)
                ),
                key=lambda record: record.nodename,
            )

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
                    decisions.check_unclaimed(nodename, _list_active_uuids(tables, [record]))
                    _delete_node(tables, record.id)
                    tables.history.append(
                        HistoryEntry(self._clock(), host, nodename, ChangeKind.DELETE, {})
                    )
                    return
            raise NotFoundError(f"host {host} has no node {nodename}")

    def apply_changes(
        self, agent: AgentKey, changes: Sequence[NodeChange], service_down_time: int
    ) -> ApplyResult:
        """See `Store`."""
        if not changes:
            return ApplyResult()
        with self._writing() as tables:
            now = self._clock()
            service = tables.services.get((agent.host, agent.binary))
            decisions.check_agent(agent, _holder(service))
            rows = _find_rows(tables, agent, changes)
            hosts_up = frozenset(
                host
                for host in decisions.list_foreign_hosts(agent, changes, rows)
                if (other := tables.services.get((host, agent.binary))) is not None
                and is_service_up(other, now, service_down_time)
            )
            decision = decisions.decide(agent, changes, rows, hosts_up)
            return _write(tables, agent, now, decision)

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> None:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            service = tables.services.get((agent.host, agent.binary))
            decisions.check_agent(agent, _holder(service))
            wanted = {
                _raise_warning(tables, agent.host, warning, now).warning.key for warning in active
            }
            for key, known in tables.warnings.items():
                if (
                    key[0] == agent.host
                    and key[1] not in wanted
                    and known.resolved_at is None
                    and decisions.is_warning_over(known.warning.kind, known.last_seen, now)
                ):
                    tables.warnings[key] = dataclasses.replace(known, resolved_at=now)

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """See `Store`."""
        with self._writing() as tables:
            _raise_warning(tables, host, warning, self._clock())

    def resolve_warnings(self, kind: WarningKind) -> list[WarningRecord]:
        """See `Store`."""
        with self._writing() as tables:
            standing = [
                (key, record)
                for key, record in tables.warnings.items()
                if record.warning.kind is kind and record.resolved_at is None
            ]
            for key, record in standing:
                over = dataclasses.replace(record, resolved_at=self._clock())
                tables.warnings[key] = over
            return [record for _, record in standing]

    def register_agent(
        self,
        host: str,
        binary: str,
        topic: str,
        version: str,
        incarnation: Incarnation,
        seen: ServiceRecord | None,
    ) -> ServiceRecord:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            found = tables.services.get((host, binary))
            decisions.check_seen(seen, found)
            mine = _nodes_of(tables, host) if binary == COMPUTE_BINARY else []
            epochs = [record.epoch for record in mine] + ([found.epoch] if found else [])
            record = found or ServiceRecord(
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
            epoch = max(epochs, default=0) + 1
            record = dataclasses.replace(
                record,
                topic=topic,
                version=version,
                incarnation=incarnation,
                epoch=epoch,
                updated_at=now,
            )
            tables.services[host, binary] = record
            for node in mine:
                tables.nodes[node.id] = dataclasses.replace(node, epoch=epoch)
            return copy.deepcopy(record)

    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """See `Store`."""
        with self._writing() as tables:
            record = _find_service(tables, host, binary)
            columns = codec.encode_service_change(change)
            record = dataclasses.replace(record, updated_at=self._clock(), **columns)
            tables.services[host, binary] = record
            return copy.deepcopy(record)

    def mark_service(self, agent: AgentKey, reason: str | None) -> None:
        """See `Store`."""
        with self._writing() as tables:
            record = tables.services.get((agent.host, agent.binary))
            holder = Holder(agent.agent_id, agent.epoch, agent.service_uuid)
            if record is None or _holder(record) != holder:
                return
            is_own = (record.disabled_reason or "").startswith(AUTO_PREFIX)
            if is_own or (reason is not None and not record.disabled):
                tables.services[agent.host, agent.binary] = dataclasses.replace(
                    record,
                    disabled=reason is not None,
                    disabled_reason=reason,
                    updated_at=self._clock(),
                )

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            decisions.check_deletion(_find_service(tables, host, binary), now, service_down_time)
            del tables.services[host, binary]
            if binary != COMPUTE_BINARY:
                return  # the host's nodes are its agent's
            decisions.check_unclaimed(host, _list_active_uuids(tables, _nodes_of(tables, host)))
            for record in _nodes_of(tables, host):
                _delete_node(tables, record.id)
                tables.history.append(
                    HistoryEntry(now, host, record.nodename, ChangeKind.DELETE, {})
                )
            for key in [key for key in tables.warnings if key[0] == host]:
                del tables.warnings[key]

    def rename_host(self, old: str, new: str, binary: str, seen: ServiceRecord | None) -> int:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            nodes = _nodes_of(tables, old, new)
            found = decisions.check_rename(
                old,
                new,
                [
                    record
                    for key, record in tables.services.items()
                    if key in ((old, binary), (new, binary))
                ],
                [(record.host, record.nodename) for record in nodes],
            )
            decisions.check_seen(seen, found)
            epoch = max([r.epoch for r in nodes] + ([found.epoch] if found else [])) + 1
            if found is not None:
                del tables.services[old, binary]
                tables.services[new, binary] = dataclasses.replace(
                    found, host=new, epoch=epoch, updated_at=now
                )
            for key in [key for key in tables.warnings if key[0] == new]:
                del tables.warnings[key]
            for key in [key for key in tables.warnings if key[0] == old]:
                known = tables.warnings.pop(key)
                warning = known.warning
                if warning.nodename == old:
                    warning = dataclasses.replace(warning, nodename=new)
                tables.warnings[new, warning.key] = dataclasses.replace(
                    known, host=new, warning=warning
                )
            tables.history = [
                dataclasses.replace(
                    entry, host=new, nodename=new if entry.nodename == old else entry.nodename
                )
                if entry.host == old
                else entry
                for entry in tables.history
            ]
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
                diff = decisions.renamed_diff(old, new, record.nodename)
                tables.history.append(HistoryEntry(now, new, nodename, ChangeKind.UPDATE, diff))
            return len(nodes)

    def beat(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
    ) -> None:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            record = tables.services.get((agent.host, agent.binary))
            if (
                record is None
                or _holder(record) != Holder(agent.agent_id, agent.epoch, agent.service_uuid)
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
            )

    def create_claim(
        self, request: ClaimRequest, host: str, nodename: str, terms: LedgerTerms
    ) -> Claim:
        """See `Store`."""
        moves.check_is_no_move(request)
        with self._writing() as tables:
            node = self._lock_node(tables, host, nodename, request.workload.uuid)
            known = _answer_again(tables, request)
            if known is not None:
                return known
            if node is None:
                raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
            return self._grant(tables, request, node, terms)

    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, terms: LedgerTerms
    ) -> Admission:
        """See `Store`."""
        with self._reading() as tables:
            node = self._lock_node(tables, host, nodename, request.workload.uuid)
            if node is None:
                raise NotFoundError(f"there is no node {nodename} on host {host}")
            return self._judge(tables, request, node, terms)

    def confirm_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            node, claim = self._lock_claim(tables, uuid)
            changed = dataclasses.replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
            return _change_active(tables, node, claim, changed)

    def renew_claim(self, uuid: str, terms: LedgerTerms) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            node, claim = self._lock_claim(tables, uuid)
            if claim.state is ClaimState.CONFIRMED:
                return claim
            later = node.now + timedelta(seconds=terms.claim_timeout)
            return _change_active(tables, node, claim, dataclasses.replace(claim, expires_at=later))

    def abort_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            node, claim = self._lock_claim(tables, uuid)
            moved_by = [
                migration.uuid
                for migration in tables.migrations.values()
                if migration.source_claim == uuid and migration.is_running
            ]
            moves.check_not_moving(claim, max(moved_by, default=None))
            if not claim.is_active:
                return claim
            cancelled = tables.migrations.get(claim.migration_uuid or "")
            if cancelled is not None and cancelled.is_open:
                tables.migrations[cancelled.uuid] = dataclasses.replace(
                    cancelled, status=MigrationStatus.CANCELLED, updated_at=node.now
                )
            return _release(tables, node, claim, ReleaseReason.ABORTED)

    def list_claims(
        self,
        host: str | None = None,
        state: ClaimState | None = None,
        uuid: str | None = None,
    ) -> list[Claim]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                claim
                for claim in sorted(tables.claims.values(), key=lambda claim: claim.created_at)
                if host in (None, claim.host)
                and state in (None, claim.state)
                and uuid in (None, claim.uuid)
            ]

    def create_migration(
        self, request: ClaimRequest, host: str, nodename: str, terms: LedgerTerms
    ) -> Migration:
        """See `Store`."""
        wanted = moves.move_of(request)
        with self._writing() as tables:
            again = _answer_again(tables, request)
            if again is not None:
                return _placed(tables, tables.migrations[again.migration_uuid or ""])
            dest = self._lock_node(tables, host, nodename, request.workload.uuid)
            if dest is None:
                raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
            reasons = moves.move_reasons(
                request, tables.claims, tables.migrations.values(), dest.id
            )
            granted = self._grant(tables, request, dest, terms, reasons)
            source = tables.claims[wanted.source_claim]
            migration = moves.make_migration(request, source, granted)
            tables.migrations[migration.uuid] = migration
            if source.node_id != granted.node_id:
                _touch(tables, source.node_id)
            return _placed(tables, migration)

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            migration = _find_migration(tables, uuid)
            return self._end(
                tables, migration, moves.plan_confirm(migration, tables.claims, self._clock())
            )

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            migration = _find_migration(tables, uuid)
            return self._end(
                tables, migration, moves.plan_revert(migration, tables.claims, self._clock())
            )

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            migration = _find_migration(tables, uuid)
            return self._end(tables, migration, moves.plan_status(migration, status, self._clock()))

    def list_migrations(
        self,
        host: str | None = None,
        uuid: str | None = None,
        status: MigrationStatus | None = None,
    ) -> list[Migration]:
        """See `Store`."""
        with self._reading() as tables:
            found = (_placed(tables, migration) for migration in tables.migrations.values())
            return [
                migration
                for migration in sorted(found, key=lambda migration: migration.created_at)
                if host in (None, migration.source_host, migration.dest_host)
                and uuid in (None, migration.uuid)
                and status in (None, migration.status)
            ]

    def _grant(
        self,
        tables: "_Tables",
        request: ClaimRequest,
        node: LockedNode,
        terms: LedgerTerms,
        reasons: Sequence[str] = (),
    ) -> Claim:
        answer = self._judge(tables, request, node, terms)
        if reasons or answer.reasons:
            raise ClaimRefusedError([*reasons, *answer.reasons])
        claim = ledger.make_claim(request, node, answer, terms.claim_timeout)
        tables.claims[claim.uuid] = claim
        added = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
        _charge(tables, node, added, ledger.credit_of(node))
        if claim.devices:
            _set_devices(tables, node, ledger.give_devices(node, claim))
        if node.guest is not None:
            _cover(tables, node, claim.uuid)
        return claim

    def _end(self, tables: "_Tables", migration: Migration, ending: Ending | None) -> Migration:
        if ending is None:
            return _placed(tables, migration)
        ids = _node_ids(tables, migration)
        if ending.confirmed is not None:
            node, _ = self._lock_claim(tables, ending.confirmed.uuid)
            _write_active(tables, node, ending.confirmed)
            ids.discard(node.id)
        if ending.released is not None:
            claim, reason = ending.released
            node, _ = self._lock_claim(tables, claim.uuid)
            _release(tables, node, claim, reason)
            ids.discard(claim.node_id)
        for node_id in ids:
            _touch(tables, node_id)
        tables.migrations[migration.uuid] = ending.migration
        return _placed(tables, ending.migration)

    def _lock_node(
        self, tables: "_Tables", host: str, nodename: str, workload_uuid: str
    ) -> LockedNode | None:
        for record in tables.nodes.values():
            if (record.host, record.nodename) == (host, nodename):
                return self._as_locked(tables, record, workload_uuid)
        return None

    def _lock_claim(self, tables: "_Tables", uuid: str) -> tuple[LockedNode, Claim]:
        claim = tables.claims.get(uuid)
        if claim is None:
            raise NotFoundError(f"there is no claim {uuid}")
        record = tables.nodes[claim.node_id]
        return self._as_locked(tables, record, claim.workload.uuid), claim

    def _as_locked(self, tables: "_Tables", record: NodeRecord, workload_uuid: str) -> LockedNode:
        service = tables.services.get((record.host, COMPUTE_BINARY))
        return LockedNode(
            id=record.id,
            host=record.host,
            nodename=record.nodename,
            values=record.values,
            service=None if service is None else _gate_of(service),
            guest=record.guests.get(workload_uuid),
            now=self._clock(),
            placements=_placements(tables, record.id, workload_uuid),
            devices=record.devices,
        )

    def _judge(
        self,
        tables: "_Tables",
        request: ClaimRequest,
        node: LockedNode,
        terms: LedgerTerms,
    ) -> Admission:
        held: Counter[str] = Counter()
        for claim in tables.claims.values():
            if claim.node_id == node.id and claim.is_active:
                held.update(claim.amounts.resources)
        return ledger.judge_claim(
            request, node, held, terms.service_down_time, terms.is_packing, terms.aliases
        )

    def list_split_brains(self, host: str) -> list[SplitBrain]:
        """See `Store`."""
        with self._reading() as tables:
            active = [claim for claim in tables.claims.values() if claim.is_active]
            tied = {
                frozenset({migration.source_claim, migration.dest_claim})
                for migration in tables.migrations.values()
                if migration.is_open
            }
            found = set()
            for mine in active:
                place = tables.nodes[mine.node_id]
                for other in active if place.host == host else ():
                    if (
                        other.workload.uuid == mine.workload.uuid
                        and other.node_id != mine.node_id
                        and frozenset({mine.uuid, other.uuid}) not in tied
                    ):
                        there = tables.nodes[other.node_id]
                        found.add(
                            SplitBrain(
                                place.nodename, mine.workload.uuid, there.host, there.nodename
                            )
                        )
            return sorted(found)

    def load_ledger_stamps(self) -> LedgerStamps:
        """See `Store`."""
        with self._reading() as tables:
            stamps = tuple(_stamp_of(record) for record in tables.nodes.values())
            hosts = {stamp.host for stamp in stamps}
            services = {
                host: _gate_of(service)
                for (host, binary), service in tables.services.items()
                if binary == COMPUTE_BINARY and host in hosts
            }
            return LedgerStamps(self._clock(), stamps, services)

    def load_ledger_nodes(self, node_ids: Collection[int]) -> list[LedgerNode]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                LedgerNode(
                    _stamp_of(record),
                    record.values,
                    tuple(
                        claim
                        for claim in _with_claims(tables, record).claims.values()
                        if claim.is_active
                    ),
                    {
                        guest.uuid: guest
                        for guest in record.guests.values()
                        if guest.claim_uuid is None
                    },
                    record.devices,
                )
                for record in tables.nodes.values()
                if record.id in node_ids
            ]

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

    def now(self) -> datetime:
        """See `Store`."""
        return self._clock()

    def list_history(
        self,
        host: str,
        nodename: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[HistoryEntry]:
        """See `Store`."""
        with self._reading() as tables:
            found = [
                entry
                for entry in tables.history
                if entry.host == host
                and nodename in (None, entry.nodename)
                and (since is None or entry.at >= since)
            ]
            return found if limit is None else found[max(0, len(found) - limit) :]

    def list_warnings(self, host: str | None = None) -> list[WarningRecord]:
        """See `Store`."""
        with self._reading() as tables:
            found = (record for record in tables.warnings.values() if host in (None, record.host))
            return sorted(found, key=lambda record: record.first_seen)

    def purge(self, before: datetime) -> Mapping[str, int]:
        """See `Store`."""
        with self._writing() as tables:
            history = [entry for entry in tables.history if entry.at >= before]
            warnings = {
                key: record
                for key, record in tables.warnings.items()
                if record.resolved_at is None or record.resolved_at >= before
            }
            migrations = {
                migration.uuid: migration
                for migration in tables.migrations.values()
                if migration.is_open or migration.updated_at >= before
            }
            told = {m.source_claim for m in migrations.values()}
            told |= {m.dest_claim for m in migrations.values()}
            claims = {
                claim.uuid: claim
                for claim in tables.claims.values()
                if claim.is_active or claim.updated_at >= before or claim.uuid in told
            }
            for node_id in {c.node_id for c in tables.claims.values() if c.uuid not in claims}:
                _touch(tables, node_id)
            kept = {
                "history": history,
                "warnings": warnings,
                "migrations": migrations,
                "claims": claims,
            }
            deleted = {name: len(getattr(tables, name)) - len(kept[name]) for name in kept}
            tables.history, tables.warnings = history, warnings
            tables.migrations, tables.claims = migrations, claims
            return deleted

    def close(self) -> None:
        """See `Store`; there is nothing to let go of."""


def _delete_node(tables: _Tables, node_id: int) -> None:
    del tables.nodes[node_id]
    for claim in [claim for claim in tables.claims.values() if claim.node_id == node_id]:
        del tables.claims[claim.uuid]


def _list_active_uuids(tables: _Tables, records: Sequence[NodeRecord]) -> list[str]:
    ids = {record.id for record in records}
    held = [claim for claim in tables.claims.values() if claim.is_active and claim.node_id in ids]
    return [claim.uuid for claim in sorted(held, key=lambda claim: claim.created_at)]


def _answer_again(tables: _Tables, request: ClaimRequest) -> Claim | None:
    known = tables.claims.get(request.uuid)
    return ledger.answer_again([] if known is None else [known], request)


def _find_migration(tables: _Tables, uuid: str) -> Migration:
    try:
        return tables.migrations[uuid]
    except KeyError:
        raise NotFoundError(f"there is no migration {uuid}") from None


def _placed(tables: _Tables, migration: Migration) -> Migration:
    """Return a migration with the places where its claims are now."""
    source, dest = (
        tables.nodes[claim.node_id] if (claim := tables.claims.get(uuid)) else None
        for uuid in (migration.source_claim, migration.dest_claim)
    )
    if source is not None:
        migration = dataclasses.replace(
            migration, source_host=source.host, source_node=source.nodename
        )
    if dest is not None:
        migration = dataclasses.replace(migration, dest_host=dest.host, dest_node=dest.nodename)
    return migration


def _release(tables: _Tables, node: LockedNode, claim: Claim, reason: ReleaseReason) -> Claim:
    released = ledger.release(claim, reason, node.now)
    tables.claims[claim.uuid] = released
    if not claim.is_active:
        _touch(tables, node.id)
        return released
    others = [
        other
        for other in tables.claims.values()
        if (other.node_id, other.workload.uuid) == (node.id, claim.workload.uuid)
        and other.is_active
    ]
    added = Charge()
    if node.guest is not None and node.guest.claim_uuid == claim.uuid:
        if others:
            _cover(tables, node, others[-1].uuid)
        elif node.guest.missing_since is None:
            _cover(tables, node, None)
            added = charge_of_guest(node.guest, node.overhead_mb)
        else:
            _drop_guest(tables, node)
    removed = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    _charge(tables, node, added, removed)
    if claim.devices:
        _set_devices(tables, node, ledger.take_devices(node, claim))
    return released


def _touch(tables: _Tables, node_id: int) -> None:
    record = tables.nodes[node_id]
    tables.nodes[node_id] = dataclasses.replace(record, generation=record.generation + 1)


def _charge(tables: _Tables, node: LockedNode, added: Charge, removed: Charge) -> None:
    record = tables.nodes[node.id]
    columns = ledger.charge_row(node, added, removed)
    columns["numa_topology"] = ledger.topology_column(
        record.values.numa_topology, _placements(tables, node.id)
    )
    tables.nodes[node.id] = dataclasses.replace(
        record,
        generation=record.generation + 1,
        values=dataclasses.replace(record.values, **columns),
    )


def _placements(tables: _Tables, node_id: int, but: str = "") -> tuple[NumaPlacement, ...]:
    return list_placements(
        (claim for claim in tables.claims.values() if claim.node_id == node_id),
        (guest for uuid, guest in tables.nodes[node_id].guests.items() if uuid != but),
    )


def _set_devices(tables: _Tables, node: LockedNode, devices: Mapping[str, TrackedDevice]) -> None:
    record = tables.nodes[node.id]
    values = dataclasses.replace(record.values, **pci_columns(devices.values()))
    tables.nodes[node.id] = dataclasses.replace(record, devices=devices, values=values)


def _cover(tables: _Tables, node: LockedNode, claim_uuid: str | None) -> None:
    assert node.guest is not None
    record = tables.nodes[node.id]
    guest = dataclasses.replace(node.guest, claim_uuid=claim_uuid)
    tables.nodes[node.id] = dataclasses.replace(
        record, guests=dict(record.guests) | {guest.uuid: guest}
    )


def _drop_guest(tables: _Tables, node: LockedNode) -> None:
    assert node.guest is not None
    record = tables.nodes[node.id]
    guests = {uuid: guest for uuid, guest in record.guests.items() if uuid != node.guest.uuid}
    tables.nodes[node.id] = dataclasses.replace(record, guests=guests)


def _change_active(tables: _Tables, node: LockedNode, claim: Claim, changed: Claim) -> Claim:
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
    if changed == claim:
        return claim
    changed = dataclasses.replace(changed, updated_at=node.now)
    _write_active(tables, node, changed)
    return changed


def _write_active(tables: _Tables, node: LockedNode, claim: Claim) -> None:
    tables.claims[claim.uuid] = claim
    _charge(tables, node, Charge(), Charge())
    if claim.devices and claim.state is ClaimState.CONFIRMED:
        _set_devices(tables, node, allocate_devices(node.devices, claim.devices, claim.uuid))


def _with_claims(tables: _Tables, record: NodeRecord) -> NodeRecord:
    """Return a record with the claims that count, and those whose guest may come late."""
    claims = {
        claim.uuid: dataclasses.replace(claim, host=record.host, nodename=record.nodename)
        for claim in sorted(tables.claims.values(), key=lambda claim: claim.created_at)
        if claim.node_id == record.id and (claim.is_active or claim.reason == ReleaseReason.EXPIRED)
    }
    workloads = {claim.workload.uuid for claim in claims.values()}
    found = tuple(
        Move(
            _placed(tables, migration),
            *(
                (claim := tables.claims.get(uuid)) is not None and claim.is_active
                for uuid in (migration.source_claim, migration.dest_claim)
            ),
        )
        for migration in sorted(tables.migrations.values(), key=lambda m: m.created_at)
        if migration.is_open
        and migration.workload_uuid in workloads
        and record.id in _node_ids(tables, migration)
    )
    return dataclasses.replace(record, claims=claims, moves=found)


def _node_ids(tables: _Tables, migration: Migration) -> set[int]:
    """Return the ids of the nodes of a migration's claims, as far as those are there."""
    return {
        claim.node_id
        for uuid in (migration.source_claim, migration.dest_claim)
        if (claim := tables.claims.get(uuid)) is not None
    }


def _stamp_of(record: NodeRecord) -> LedgerStamp:
    assert record.created_at is not None
    return LedgerStamp(
        record.id, record.host, record.nodename, record.generation, record.created_at
    )


def _gate_of(service: ServiceRecord) -> ServiceGate:
    return ServiceGate(
        service.created_at,
        service.last_seen_up,
        service.disabled,
        service.disabled_reason,
        service.maintenance,
        service.forced_down,
    )


def _holder(service: ServiceRecord | None) -> Holder | None:
    if service is None:
        return None
    return Holder(service.incarnation.agent_id, service.epoch, service.uuid)


def _find_service(tables: _Tables, host: str, binary: str) -> ServiceRecord:
    try:
        return tables.services[host, binary]
    except KeyError:
        raise NotFoundError(f"there is no service {binary} on host {host}") from None


def _nodes_of(tables: _Tables, *hosts: str) -> list[NodeRecord]:
    return [record for record in tables.nodes.values() if record.host in hosts]


def _raise_warning(
    tables: _Tables, host: str, warning: HostWarning, now: datetime
) -> WarningRecord:
    """Raise or count again one warning; return it as stored."""
    cut = codec.storable_warning(warning)
    known = tables.warnings.get((host, cut.key))
    record = WarningRecord(
        warning=cut,
        host=host,
        first_seen=known.first_seen if known else now,
        last_seen=now,
        count=known.count + 1 if known else 1,
        resolved_at=None,
    )
    tables.warnings[host, cut.key] = record
    return record


def _find_rows(tables: _Tables, agent: AgentKey, changes: Sequence[NodeChange]) -> list[LockedRow]:
    """Return every row that a change names, as the SQL store locks them."""
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


def _write(tables: _Tables, agent: AgentKey, now: datetime, decision: Decision) -> ApplyResult:
    """Write a decision, in the SQL store's order."""
    written: list[NodeRecord] = []

    def note(change: NodeChange, what: ChangeKind, diff: Mapping[str, object]) -> None:
        plain = codec.parse_json(codec.render_json(diff))
        tables.history.append(HistoryEntry(now, change.host, change.nodename, what, plain))

    for change, row in decision.deletions:
        _delete_node(tables, row.id)
        note(change, ChangeKind.DELETE, change.diff)
    for change, row in decision.moves:
        held = [c for c in tables.claims.values() if c.node_id == row.id and c.is_active]
        written.append(decisions.moved_record(change, row, agent, now, held))
        note(change, ChangeKind.UPDATE, decisions.move_diff(change, row))
    for change, row in decision.updates:
        written.append(decisions.updated_record(change, row, agent, now))
        note(change, ChangeKind.UPDATE, change.diff)
    written.extend(decisions.measured_record(change, row, now) for change, row in decision.measures)
    for change in decision.creations:
        tables.last_id += 1
        written.append(decisions.created_record(change, tables.last_id, agent, now))
        note(change, ChangeKind.CREATE, change.diff)
    for change, _ in decision.updates:
        tables.claims.update({c.uuid: c for c in decisions.stamp_claims(change, now)})
        for move in decisions.stamp_moves(change, now):
            known = tables.migrations[move.migration.uuid]
            if known.is_running and not move.migration.is_running:
                tables.migrations[known.uuid] = move.migration
    # Claims and migrations have tables of their own.
    tables.nodes.update({r.id: dataclasses.replace(r, claims={}, moves=()) for r in written})
    records = {record.nodename: record for record in written}
    return ApplyResult(copy.deepcopy(records), tuple(decision.conflicts), decision.refused)
