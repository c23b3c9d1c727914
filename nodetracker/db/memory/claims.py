"""Claims over dicts."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from nodetracker.accounting.ledger import grants, moves
from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.grants import LockedNode
from nodetracker.accounting.numa.usage import list_placements
from nodetracker.accounting.pci.pools import pci_columns
from nodetracker.accounting.pci.state import allocate_devices
from nodetracker.accounting.usage import Charge, charge_of_claim, charge_of_guest
from nodetracker.db.memory.split_brains import find_split_brains
from nodetracker.db.memory.tables import MemoryRows, Tables, bump_generation
from nodetracker.errors import ClaimRefusedError, NotFoundError, RefusedError
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, ReleaseReason, SplitBrain
from nodetracker.model.migration import MigrationStatus
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.ports import AdmissionPolicy


class MemoryClaims(MemoryRows):
    """The part of `nodetracker.ports.Store` that decides about claims."""

    def create_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Claim:
        """See `Store`."""
        moves.check_is_no_move(request)
        with self._writing() as tables:
            node = self._lock_node(tables, host, nodename, request.workload.uuid)
            known = find_existing_grant(tables, request)
            if known is not None:
                return known
            if node is None:
                raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
            return self._grant(tables, request, node, policy)

    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Admission:
        """See `Store`."""
        with self._reading() as tables:
            node = self._lock_node(tables, host, nodename, request.workload.uuid)
            if node is None:
                raise NotFoundError(f"there is no node {nodename} on host {host}")
            return self._evaluate(tables, request, node, policy)

    def confirm_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            node, claim = self._lock_claim(tables, uuid)
            changed = dataclasses.replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
            return _change_active(tables, node, claim, changed)

    def renew_claim(self, uuid: str, policy: AdmissionPolicy) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            node, claim = self._lock_claim(tables, uuid)
            if claim.state is ClaimState.CONFIRMED:
                return claim
            later = node.now + timedelta(seconds=policy.claim_timeout)
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
            return release(tables, node, claim, ReleaseReason.ABORTED)

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

    def list_split_brains(self, host: str) -> list[SplitBrain]:
        """See `Store`."""
        with self._reading() as tables:
            return find_split_brains(tables, host)

    def _grant(
        self,
        tables: Tables,
        request: ClaimRequest,
        node: LockedNode,
        policy: AdmissionPolicy,
        reasons: Sequence[str] = (),
    ) -> Claim:
        answer = self._evaluate(tables, request, node, policy)
        if reasons or answer.reasons:
            raise ClaimRefusedError([*reasons, *answer.reasons])
        claim = grants.make_claim(request, node, answer, policy.claim_timeout)
        tables.claims[claim.uuid] = claim
        added = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
        inventory = grants.inventory_given(node, claim)
        _update_usage(tables, node, added, grants.credit_of(node), inventory)
        if claim.devices:
            _set_devices(tables, node, grants.assign_devices(node, claim))
        if node.guest is not None:
            _assign_claim(tables, node, claim.uuid)
        return claim

    def _evaluate(
        self,
        tables: Tables,
        request: ClaimRequest,
        node: LockedNode,
        policy: AdmissionPolicy,
    ) -> Admission:
        held: Counter[str] = Counter()
        for claim in tables.claims.values():
            if claim.node_id == node.id and claim.is_active:
                held.update(claim.amounts.resources)
        return grants.evaluate_claim(
            request, node, held, policy.service_down_time, policy.is_packing, policy.aliases
        )

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
            service=None if service is None else service.availability,
            guest=record.guests.get(workload_uuid),
            now=self._clock(),
            placements=_placements(tables, record.id, workload_uuid),
            devices=record.devices,
        )


def find_existing_grant(tables: Tables, request: ClaimRequest) -> Claim | None:
    """See `grants.find_existing_grant`."""
    known = tables.claims.get(request.uuid)
    return grants.find_existing_grant([] if known is None else [known], request)


def _change_active(tables: Tables, node: LockedNode, claim: Claim, changed: Claim) -> Claim:
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
    if changed == claim:
        return claim
    changed = dataclasses.replace(changed, updated_at=node.now)
    write_active(tables, node, changed)
    return changed


def write_active(tables: Tables, node: LockedNode, claim: Claim) -> None:
    """Write another state of a claim that counts before and after."""
    tables.claims[claim.uuid] = claim
    _update_usage(tables, node, Charge(), Charge())
    if claim.devices and claim.state is ClaimState.CONFIRMED:
        _set_devices(tables, node, allocate_devices(node.devices, claim.devices, claim.uuid))


def release(tables: Tables, node: LockedNode, claim: Claim, reason: ReleaseReason) -> Claim:
    """Release a claim on its locked node; what it covered counts by itself again."""
    released = grants.release(claim, reason, node.now)
    tables.claims[claim.uuid] = released
    if not claim.is_active:
        bump_generation(tables, node.id)
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
            _assign_claim(tables, node, others[-1].uuid)
        elif node.guest.missing_since is None:
            _assign_claim(tables, node, None)
            added = charge_of_guest(node.guest, node.overhead_mb)
        else:
            _drop_guest(tables, node)
    removed = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    _update_usage(tables, node, added, removed, grants.inventory_taken(node, claim, others))
    if claim.devices:
        _set_devices(tables, node, grants.return_devices(node, claim))
    return released


def _update_usage(
    tables: Tables,
    node: LockedNode,
    added: Charge,
    removed: Charge,
    inventory: Mapping[str, Any] | None = None,
) -> None:
    record = tables.nodes[node.id]
    columns = grants.charge_row(node, added, removed, inventory)
    columns["numa_topology"] = grants.topology_column(
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


def _assign_claim(tables: Tables, node: LockedNode, claim_uuid: str | None) -> None:
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
