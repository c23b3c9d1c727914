"""Claims and migrations over dicts, and what the schedulers read."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from nodetracker.accounting import ledger, moves
from nodetracker.accounting.admission import Admission
from nodetracker.accounting.ledger import LockedNode
from nodetracker.accounting.moves import Ending
from nodetracker.accounting.numa_usage import list_placements
from nodetracker.accounting.pci_pools import pci_columns
from nodetracker.accounting.pci_state import allocate_devices
from nodetracker.accounting.usage import Charge, charge_of_claim, charge_of_guest
from nodetracker.db.memory.tables import (
    MemoryRows,
    Tables,
    node_ids_of,
    place_migration,
    touch,
    with_claims,
)
from nodetracker.errors import ClaimRefusedError, NotFoundError, RefusedError
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, ReleaseReason, SplitBrain
from nodetracker.model.fleet import LedgerNode, LedgerStamp, LedgerStamps
from nodetracker.model.migration import Migration, MigrationStatus
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, ServiceGate, ServiceRecord
from nodetracker.ports import LedgerTerms


class MemoryLedger(MemoryRows):
    """The part of `nodetracker.ports.Store` that decides about claims and moves."""

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
                return place_migration(tables, tables.migrations[again.migration_uuid or ""])
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
                touch(tables, source.node_id)
            return place_migration(tables, migration)

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
            found = (place_migration(tables, migration) for migration in tables.migrations.values())
            return [
                migration
                for migration in sorted(found, key=lambda migration: migration.created_at)
                if host in (None, migration.source_host, migration.dest_host)
                and uuid in (None, migration.uuid)
                and status in (None, migration.status)
            ]

    def _grant(
        self,
        tables: Tables,
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
        inventory = ledger.inventory_given(node, claim)
        _charge(tables, node, added, ledger.credit_of(node), inventory)
        if claim.devices:
            _set_devices(tables, node, ledger.give_devices(node, claim))
        if node.guest is not None:
            _cover(tables, node, claim.uuid)
        return claim

    def _end(self, tables: Tables, migration: Migration, ending: Ending | None) -> Migration:
        if ending is None:
            return place_migration(tables, migration)
        ids = node_ids_of(tables, migration)
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
            touch(tables, node_id)
        tables.migrations[migration.uuid] = ending.migration
        return place_migration(tables, ending.migration)

    def _lock_node(
        self, tables: Tables, host: str, nodename: str, workload_uuid: str
    ) -> LockedNode | None:
        for record in tables.nodes.values():
            if (record.host, record.nodename) == (host, nodename):
                return self._as_locked(tables, record, workload_uuid)
        return None

    def _lock_claim(self, tables: Tables, uuid: str) -> tuple[LockedNode, Claim]:
        claim = tables.claims.get(uuid)
        if claim is None:
            raise NotFoundError(f"there is no claim {uuid}")
        record = tables.nodes[claim.node_id]
        return self._as_locked(tables, record, claim.workload.uuid), claim

    def _as_locked(self, tables: Tables, record: NodeRecord, workload_uuid: str) -> LockedNode:
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
        tables: Tables,
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
                        for claim in with_claims(tables, record).claims.values()
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


def _answer_again(tables: Tables, request: ClaimRequest) -> Claim | None:
    known = tables.claims.get(request.uuid)
    return ledger.answer_again([] if known is None else [known], request)


def _find_migration(tables: Tables, uuid: str) -> Migration:
    try:
        return tables.migrations[uuid]
    except KeyError:
        raise NotFoundError(f"there is no migration {uuid}") from None


def _release(tables: Tables, node: LockedNode, claim: Claim, reason: ReleaseReason) -> Claim:
    released = ledger.release(claim, reason, node.now)
    tables.claims[claim.uuid] = released
    if not claim.is_active:
        touch(tables, node.id)
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
    _charge(tables, node, added, removed, ledger.inventory_taken(node, claim, others))
    if claim.devices:
        _set_devices(tables, node, ledger.take_devices(node, claim))
    return released


def _charge(
    tables: Tables,
    node: LockedNode,
    added: Charge,
    removed: Charge,
    inventory: Mapping[str, Any] | None = None,
) -> None:
    record = tables.nodes[node.id]
    columns = ledger.charge_row(node, added, removed, inventory)
    columns["numa_topology"] = ledger.topology_column(
        record.values.numa_topology, _placements(tables, node.id)
    )
    tables.nodes[node.id] = dataclasses.replace(
        record,
        generation=record.generation + 1,
        values=dataclasses.replace(record.values, **columns),
    )


def _placements(tables: Tables, node_id: int, but: str = "") -> tuple[NumaPlacement, ...]:
    return list_placements(
        (claim for claim in tables.claims.values() if claim.node_id == node_id),
        (guest for uuid, guest in tables.nodes[node_id].guests.items() if uuid != but),
    )


def _set_devices(tables: Tables, node: LockedNode, devices: Mapping[str, TrackedDevice]) -> None:
    record = tables.nodes[node.id]
    values = dataclasses.replace(record.values, **pci_columns(devices.values()))
    tables.nodes[node.id] = dataclasses.replace(record, devices=devices, values=values)


def _cover(tables: Tables, node: LockedNode, claim_uuid: str | None) -> None:
    assert node.guest is not None
    record = tables.nodes[node.id]
    guest = dataclasses.replace(node.guest, claim_uuid=claim_uuid)
    tables.nodes[node.id] = dataclasses.replace(
        record, guests=dict(record.guests) | {guest.uuid: guest}
    )


def _drop_guest(tables: Tables, node: LockedNode) -> None:
    assert node.guest is not None
    record = tables.nodes[node.id]
    guests = {uuid: guest for uuid, guest in record.guests.items() if uuid != node.guest.uuid}
    tables.nodes[node.id] = dataclasses.replace(record, guests=guests)


def _change_active(tables: Tables, node: LockedNode, claim: Claim, changed: Claim) -> Claim:
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
    if changed == claim:
        return claim
    changed = dataclasses.replace(changed, updated_at=node.now)
    _write_active(tables, node, changed)
    return changed


def _write_active(tables: Tables, node: LockedNode, claim: Claim) -> None:
    tables.claims[claim.uuid] = claim
    _charge(tables, node, Charge(), Charge())
    if claim.devices and claim.state is ClaimState.CONFIRMED:
        _set_devices(tables, node, allocate_devices(node.devices, claim.devices, claim.uuid))


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
