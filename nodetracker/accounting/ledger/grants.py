"""What a ledger transaction does to one node: pure, on what was read under the lock."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.ledger.admission import Admission, AdmissionCheck, Refusal, admit
from nodetracker.accounting.liveness import is_service_up
from nodetracker.accounting.numa.fit import NumaRefusal, fit_numa
from nodetracker.accounting.numa.usage import decode_host_cells, sum_usage, topology_with_usage
from nodetracker.accounting.pci.admission import PciAdmission
from nodetracker.accounting.pci.gpus import GPU_RESOURCE_CLASS, count_bound, covered_inventory
from nodetracker.accounting.pci.state import allocate_devices, claim_devices, free_devices
from nodetracker.accounting.usage import (
    Charge,
    charge_of_claim,
    charge_of_guest,
    charge_of_row,
    usage_columns,
)
from nodetracker.errors import ClaimConflictError, RefusedError
from nodetracker.model.claim import Claim, ClaimKind, ClaimRequest, ClaimState, ReleaseReason
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.pci_request import Alias
from nodetracker.model.service import ServiceAvailability


@dataclass(frozen=True, slots=True)
class LockedNode:
    """A node as a ledger transaction reads it, its row locked.

    Attributes:
        values: only what admission and usage need; the rest is as a new row's.
        service: of the host's agent, None when there is none.
        guest: of the workload in question as stored, None when there is none.
        placements: of the node's active claims, and of unclaimed guests but the
            workload's own, on NUMA cells; read only where the claim in
            question has one or asks for one, or the guest has one.
        devices: its PCI devices by address; read only where the claim in
            question has one or asks for one.
        now: the database's time.
    """

    id: int
    host: str
    nodename: str
    values: NodeValues
    service: ServiceAvailability | None
    guest: Guest | None
    now: datetime
    placements: tuple[NumaPlacement, ...] = ()
    devices: Mapping[str, TrackedDevice] = field(default_factory=dict)

    @property
    def overhead_mb(self) -> int:
        """Memory that the driver adds to each instance, in MiB."""
        overhead: Any = self.values.overhead.get("memory_mb", 0)
        return int(overhead)


def evaluate_claim(
    request: ClaimRequest,
    node: LockedNode,
    used_resources: Mapping[str, int],
    service_down_time: int,
    is_packing: bool,
    aliases: Mapping[str, Alias],
) -> Admission:
    """Judge a claim on a node: whether the node takes any now, and whether it fits.

    A node whose driver cannot tell what is taken refuses none for its size.
    """
    if not node.values.tracks_resources:
        return Admission((), tuple(_evaluate_service(node, service_down_time)))
    charge = charge_of_claim(request.amounts, request.workload.kind, node.overhead_mb)
    used = dict(used_resources)
    used[GPU_RESOURCE_CLASS] = used.get(GPU_RESOURCE_CLASS, 0) - _gpu_credit_of(node)
    answer = admit(request, node.values, charge, credit_of(node), used)
    refusals = [*_evaluate_service(node, service_down_time), *answer.refusals]
    unknown = sorted({r.alias for r in request.pci_requests} - aliases.keys())
    refusals += [Refusal(AdmissionCheck.PCI, f"{alias} is no PCI alias") for alias in unknown]
    if unknown:
        return replace(answer, refusals=tuple(refusals))
    topology = node.values.numa_topology
    pci = PciAdmission(
        own_devices(node),
        request.pci_requests,
        aliases,
        {cell["id"]: cell.get("socket") for cell in topology.get("cells", ())},
    )
    placement: NumaPlacement | None = None
    numa_reasons: tuple[str, ...] = ()
    if request.numa is not None:
        cells = decode_host_cells(topology)
        found = fit_numa(
            request.numa,
            cells,
            sum_usage(cells, node.placements),
            limits=request.numa_limits,
            is_packing=is_packing,
            accepts=pci.accepts if request.pci_requests else None,
        )
        if isinstance(found, NumaRefusal):
            refusals.append(Refusal(AdmissionCheck.NUMA, found.summary))
            numa_reasons = found.reasons
        else:
            placement = found
    if not request.pci_requests:
        return replace(answer, refusals=tuple(refusals), numa=placement, numa_reasons=numa_reasons)
    verdict = pci.evaluate([cell.host_cell for cell in placement.cells] if placement else ())
    return replace(
        answer,
        refusals=(*refusals, *(Refusal(AdmissionCheck.PCI, reason) for reason in verdict.reasons)),
        numa=placement,
        numa_reasons=numa_reasons,
        devices=verdict.all_addresses,
        pci=verdict,
    )


def credit_of(node: LockedNode) -> Charge:
    """Return what the workload's guest is charged already while no claim covers it."""
    guest = node.guest
    if guest is None or guest.claim_uuid is not None:
        return Charge()
    return charge_of_guest(guest, node.overhead_mb)


def _gpu_credit_of(node: LockedNode) -> int:
    """Return how many GPUs are reserved for the workload's guest while no claim covers it."""
    guest = node.guest
    if guest is None or guest.claim_uuid is not None:
        return 0
    return count_bound(node.values.gpus, guest.uuid)


def make_claim(
    request: ClaimRequest, node: LockedNode, answer: Admission, claim_timeout: int
) -> Claim:
    """Build the claim of a request that was admitted; one whose guest is there is confirmed."""
    is_there = node.guest is not None and node.guest.missing_since is None
    return Claim(
        uuid=request.uuid,
        node_id=node.id,
        host=node.host,
        nodename=node.nodename,
        workload=request.workload,
        kind=ClaimKind.CREATE if request.migration is None else ClaimKind.MOVE,
        state=ClaimState.CONFIRMED if is_there else ClaimState.HELD,
        amounts=request.amounts,
        request_hash=request.request_hash,
        created_at=node.now,
        updated_at=node.now,
        expires_at=None if is_there else node.now + timedelta(seconds=claim_timeout),
        numa=answer.numa,
        devices=tuple(sorted(answer.devices)),
        migration_uuid=None if request.migration is None else request.migration.uuid,
    )


def release(claim: Claim, reason: ReleaseReason, now: datetime) -> Claim:
    """Return a claim as it is once released."""
    return replace(
        claim,
        state=ClaimState.RELEASED,
        reason=reason.value,
        expires_at=None,
        updated_at=now,
    )


def charge_row(
    node: LockedNode, added: Charge, removed: Charge, inventory: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the usage columns after something was charged and something taken off.

    Args:
        inventory: the column from now on, None when it stays.
    """
    values = node.values
    total = charge_of_row(values) + added - removed
    columns = usage_columns(total, values.reserved, values.memory_mb, values.local_gb)
    return columns if inventory is None else columns | {"inventory": inventory}


def inventory_given(node: LockedNode, claim: Claim) -> dict[str, Any] | None:
    """Return the column ``inventory`` once a claim covers the workload's guest, None if it stays.

    Where another claim covers it already the next audit tells.
    """
    guest = node.guest
    if guest is None or guest.claim_uuid is not None:
        return None
    return covered_inventory(node.values.inventory, node.values.gpus, guest.uuid, (), (claim,))


def inventory_taken(
    node: LockedNode, claim: Claim, others: Sequence[Claim]
) -> dict[str, Any] | None:
    """Return the column ``inventory`` once a claim is released, None if it stays.

    Args:
        others: the workload's other active claims on this node.
    """
    guest = node.guest
    if guest is None or guest.missing_since is not None:
        return None
    return covered_inventory(
        node.values.inventory, node.values.gpus, guest.uuid, (claim, *others), others
    )


def assign_devices(node: LockedNode, claim: Claim) -> dict[str, TrackedDevice]:
    """Return the node's devices once a claim that was admitted has its own."""
    give = allocate_devices if claim.state is ClaimState.CONFIRMED else claim_devices
    return _leave_guest_its(give(own_devices(node), claim.devices, claim.uuid), node)


def return_devices(node: LockedNode, claim: Claim) -> dict[str, TrackedDevice]:
    """Return the node's devices once a claim has given its own back; a guest keeps what it has."""
    return _leave_guest_its(free_devices(node.devices, claim.uuid), node)


def own_devices(node: LockedNode) -> Mapping[str, TrackedDevice]:
    """Return the devices as a claim of the workload may have them: its guest's are its own."""
    return node.devices if node.guest is None else free_devices(node.devices, node.guest.uuid)


def _leave_guest_its(
    devices: Mapping[str, TrackedDevice], node: LockedNode
) -> dict[str, TrackedDevice]:
    left = dict(devices)
    if node.guest is None or node.guest.missing_since is not None:
        return left
    for address in node.guest.pins.devices:
        if address in left and left[address].is_available:
            left = allocate_devices(left, [address], node.guest.uuid)
    return left


def topology_column(
    column: Mapping[str, Any], placements: Iterable[NumaPlacement]
) -> dict[str, Any]:
    """Return the column ``numa_topology`` with what placements take of each cell."""
    return topology_with_usage(column, sum_usage(decode_host_cells(column), placements))


def find_existing_grant(found: Sequence[Claim], request: ClaimRequest) -> Claim | None:
    """Return the claim that a request was granted before, None when it was not.

    Args:
        found: the claim with the request's uuid, if there is one.

    Raises:
        ClaimConflictError: it stands for another request.
    """
    for claim in found:
        if claim.request_hash != request.request_hash:
            raise ClaimConflictError(f"claim {request.uuid} stands for another request")
        return claim
    return None


def require_active(claim: Claim) -> Claim:
    """Return a claim that a request was granted, now or before, if it holds anything.

    The ledger answers a request again whatever became of its claim; whoever
    begins something on the strength of the answer asks this, too.

    Raises:
        RefusedError: it is released.
    """
    if not claim.is_active:
        raise RefusedError(
            f"claim {claim.uuid} was granted before and is released ({claim.reason}); "
            "ask with another uuid"
        )
    return claim


def _evaluate_service(node: LockedNode, service_down_time: int) -> list[Refusal]:
    """Say why a node takes no claim whatever it asks for."""
    service, host = node.service, f"host {node.host}"
    if service is None:
        return [Refusal(AdmissionCheck.SERVICE, f"{host} has no service")]
    refusals = []
    if service.disabled:
        why = f": {service.disabled_reason}" if service.disabled_reason else ""
        refusals.append(Refusal(AdmissionCheck.ENABLED, f"{host} is disabled{why}"))
    if service.maintenance:
        refusals.append(Refusal(AdmissionCheck.MAINTENANCE, f"{host} is in maintenance"))
    if not is_service_up(service, node.now, service_down_time):
        refusals.append(Refusal(AdmissionCheck.UP, f"{host} is down"))
    return refusals
