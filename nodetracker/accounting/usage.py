"""Compute the usage of a node: the sum of its workloads' charges, and the columns of its row.

Amounts are whole MiB and thousandths of a CPU until they are written to the
row, so adding and removing workloads in any order leads back to the same values.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.model.amounts import Amounts, reserved_amounts
from nodetracker.model.claim import Claim
from nodetracker.model.fleet import AmountColumns
from nodetracker.model.guest import Guest, GuestPins, PowerState, WorkloadKind
from nodetracker.model.serializer import encode
from nodetracker.model.units import (
    MIB_PER_GIB,
    MILLI,
    capacity_gib_from_mib,
    usage_gib_from_mib,
    usage_units_from_milli,
)

INACTIVE = "inactive"
"""In `Guest.details`: what a guest that is off would take if it ran, where that is left out."""

_STOPPED = {PowerState.SHUTDOWN, PowerState.CRASHED, PowerState.NOSTATE}


def leave_out(guest: Guest) -> Guest:
    """Return an instance that is off as one that takes only its disk; others as they are.

    What it would take when it runs is kept in its details.
    """
    if guest.kind is not WorkloadKind.INSTANCE or guest.power_state is not PowerState.SHUTDOWN:
        return guest
    if is_left_out(guest):
        return guest
    defined = {
        "vcpu_milli": guest.vcpu_milli,
        "memory_mb": guest.memory_mb,
        "pins": encode(guest.pins),
    }
    return replace(
        guest,
        vcpu_milli=0,
        memory_mb=0,
        pins=GuestPins(),
        details={**(guest.details or {}), INACTIVE: defined},
    )


def is_left_out(guest: Guest) -> bool:
    """Return whether a guest takes only its disk, as it is off; a row may have no details."""
    return INACTIVE in (guest.details or {})


def charge_of_guest(guest: Guest, overhead_mb: int) -> Amounts:
    """Return the charge of a guest by its own size, equal to that of a claim with its amounts.

    A powered-off guest is charged like a running one, as it may be started at
    any time without a claim, unless its host leaves out what it would take. Pinned CPUs are
    charged as dedicated CPUs. Those that move among dedicated CPUs are charged by the node,
    see `numa.cells.count_named`.
    """
    if is_left_out(guest):
        return Amounts(disk_mb=guest.disk_mb)
    pcpus = guest.pins.pcpus
    shared = max(0, guest.vcpu_milli - pcpus * MILLI - guest.pins.dedicated_milli)
    amounts = Amounts(shared, pcpus, guest.memory_mb, guest.disk_mb)
    return charge_of_claim(amounts, guest.kind, overhead_mb)


def charge_of_claim(amounts: Amounts, kind: WorkloadKind, overhead_mb: int) -> Amounts:
    """Return the charge of a claim: its amounts plus, for an instance, the driver's overhead.

    A container is a process of the host and needs no emulator.
    """
    overhead = overhead_mb if kind is WorkloadKind.INSTANCE else 0
    return Amounts(amounts.vcpu_milli, amounts.pcpus, amounts.memory_mb + overhead, amounts.disk_mb)


def charge_of_claims(claims: Iterable[Claim], overhead_mb: int) -> Amounts:
    """Return the total charge of those claims that are active."""
    charges = (
        charge_of_claim(claim.amounts, claim.workload.kind, overhead_mb)
        for claim in claims
        if claim.is_active
    )
    return sum(charges, Amounts())


def charge_of_workload(claimed: Amounts, guest: Guest | None, overhead_mb: int) -> Amounts:
    """Return the charge of a workload on a node: the larger of its claims and its guest.

    Memory, disk and CPUs are compared separately, each in full. Of a guest
    with more CPUs than its claims, shared and dedicated ones together, as many
    count as dedicated as either has; those that it is pinned to beside its claims are
    charged by the node, see `numa.cells.count_named`. A guest to which no claim is assigned
    is charged in addition to the claims.

    Args:
        claimed: the charge of the workload's active claims on the node.
        guest: the workload's guest on the node; a missing one does not count.

    >>> guest = Guest("u", "web", WorkloadKind.INSTANCE, 4000, 1024, 0, claim_uuid="c")
    >>> charge_of_workload(Amounts(1000, 2, 2048), guest, 0).in_units()
    {'vcpus': 2, 'pcpus': 2, 'memory_mb': 2048, 'disk_gb': 0}
    """
    if guest is None or guest.missing_since is not None:
        return claimed
    own = charge_of_guest(guest, overhead_mb)
    if guest.claim_uuid is None:
        return claimed + own
    larger = claimed | own
    if own.cpu_milli <= claimed.cpu_milli:
        return replace(larger, vcpu_milli=claimed.vcpu_milli, pcpus=claimed.pcpus)
    shared = own.cpu_milli - larger.pcpus * MILLI
    return replace(larger, vcpu_milli=shared, pcpus=claimed.pcpus)


@dataclass(frozen=True, slots=True)
class NodeWorkload:
    """A workload on a node: its active claims with the guest that is assigned to one, or a guest.

    Attributes:
        claims: in the node's order, empty for an unclaimed guest.
        charge: what it takes of the node.
    """

    uuid: str
    claims: tuple[Claim, ...]
    guest: Guest | None
    charge: Amounts


def list_node_workloads(
    claims: Iterable[Claim], guests: Mapping[str, Guest], overhead_mb: int
) -> list[NodeWorkload]:
    """Return a node's workloads; an unclaimed guest is one of its own, even with a claim's uuid.

    Args:
        guests: uuid -> guest.
    """
    by_workload: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.is_active:
            by_workload.setdefault(claim.workload.uuid, []).append(claim)
    assigned = {uuid: guest for uuid, guest in guests.items() if guest.claim_uuid is not None}
    found: list[tuple[str, tuple[Claim, ...], Guest | None]] = [
        (uuid, tuple(mine), assigned.get(uuid)) for uuid, mine in by_workload.items()
    ]
    found += [
        (uuid, (), guest)
        for uuid, guest in guests.items()
        if uuid not in assigned or uuid not in by_workload
    ]
    return [
        NodeWorkload(
            uuid,
            mine,
            guest,
            charge_of_workload(charge_of_claims(mine, overhead_mb), guest, overhead_mb),
        )
        for uuid, mine, guest in found
    ]


def charge_of_ledger(
    claims: Iterable[Claim], guests: Mapping[str, Guest], overhead_mb: int
) -> Amounts:
    """Return the total charge of a node's workloads.

    Args:
        guests: uuid -> guest.
    """
    workloads = list_node_workloads(claims, guests, overhead_mb)
    return sum((item.charge for item in workloads), Amounts())


def usage_columns(
    total: Amounts, reserved: Mapping[str, Any], memory_mb: int, local_disk_gb: int
) -> dict[str, Any]:
    """Build the usage columns of a row: reserved amounts plus charges, and the free amounts.

    Args:
        reserved: the row's column of that name.
        memory_mb, local_disk_gb: the node's capacity, as in its row.

    Returns:
        Column -> value; free amounts may be negative.
    """
    used = reserved_amounts(reserved) + total
    return {
        "pcpus_used": used.pcpus,
        "vcpus_used": usage_units_from_milli(used.vcpu_milli),
        "memory_mb_used": used.memory_mb,
        "local_gb_used": usage_gib_from_mib(used.disk_mb),
        "free_ram_mb": memory_mb - used.memory_mb,
        "free_disk_gb": capacity_gib_from_mib(local_disk_gb * MIB_PER_GIB - used.disk_mb),
        "cpu_used": total.vcpu_milli / MILLI,
        "disk_used": total.disk_mb / MIB_PER_GIB,
    }


def overhead_of(values: AmountColumns) -> int:
    """Return the memory that the driver adds to each instance, in MiB."""
    return int(values.overhead.get("memory_mb", 0))


def charge_of_row(values: AmountColumns) -> Amounts:
    """Return the total charge in a row's usage columns, without reserved amounts.

    The result is exact, as the columns have thousandths and whole MiB: adding
    a claim to a row and removing it again restores the row.
    """
    return Amounts(
        round(values.cpu_used * MILLI),
        values.pcpus_used,
        values.memory_mb_used - reserved_amounts(values.reserved).memory_mb,
        round(values.disk_used * MIB_PER_GIB),
    )


def count_columns(guests: Iterable[Guest]) -> dict[str, Any]:
    """Build the columns that count guests: Nova's instances and Zun's containers.

    For containers, total = running + paused + stopped. Guests that vanished are not counted.
    """
    by_kind_state: Counter[tuple[WorkloadKind, PowerState]] = Counter()
    by_project: Counter[str] = Counter()
    listed = [guest for guest in guests if guest.missing_since is None]
    for guest in listed:
        by_kind_state[guest.kind, guest.power_state] += 1
        if guest.kind is WorkloadKind.INSTANCE and guest.project_id:
            by_project[guest.project_id] += 1
    instances = {
        state: count
        for (kind, state), count in by_kind_state.items()
        if kind is WorkloadKind.INSTANCE
    }
    containers = {
        state: count
        for (kind, state), count in by_kind_state.items()
        if kind is WorkloadKind.CONTAINER
    }
    total = sum(containers.values())
    stopped = sum(count for state, count in containers.items() if state in _STOPPED)
    running = containers.get(PowerState.RUNNING, 0)
    stats: dict[str, Any] = {"num_instances": sum(instances.values()), "io_workload": 0}
    left_out = sum(map(is_left_out, listed))
    stats |= {"num_vm_left_out": left_out} if left_out else {}
    stats |= {f"num_vm_{state}": count for state, count in sorted(instances.items())}
    stats |= {f"num_proj_{project}": count for project, count in sorted(by_project.items())}
    return {
        "running_vms": sum(instances.values()),
        "stats": stats,
        "total_containers": total,
        "running_containers": running,
        "paused_containers": total - running - stopped,
        "stopped_containers": stopped,
    }
