"""Compute the usage of a node: the sum of its workloads' charges, and the columns of its row.

Amounts are whole MiB and thousandths of a CPU until they are written to the
row, so adding and removing workloads in any order leads back to the same values.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.claim import Amounts, Claim
from nodetracker.model.fleet import AmountColumns
from nodetracker.model.guest import Guest, PowerState, WorkloadKind
from nodetracker.model.units import (
    MIB_PER_GIB,
    MILLI,
    capacity_gib_from_mib,
    usage_gib_from_mib,
    usage_units_from_milli,
)

_STOPPED = {PowerState.SHUTDOWN, PowerState.CRASHED, PowerState.NOSTATE}


@dataclass(frozen=True, slots=True)
class Charge:
    """The amounts that a workload takes of its node."""

    vcpu_milli: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    pcpus: int = 0

    @property
    def cpu_milli(self) -> int:
        """Shared and dedicated CPUs together, in thousandths."""
        return self.vcpu_milli + self.pcpus * MILLI

    def __add__(self, other: "Charge") -> "Charge":
        """Return the sum."""
        return Charge(
            self.vcpu_milli + other.vcpu_milli,
            self.memory_mb + other.memory_mb,
            self.disk_mb + other.disk_mb,
            self.pcpus + other.pcpus,
        )

    def __sub__(self, other: "Charge") -> "Charge":
        """Return the difference."""
        return Charge(
            self.vcpu_milli - other.vcpu_milli,
            self.memory_mb - other.memory_mb,
            self.disk_mb - other.disk_mb,
            self.pcpus - other.pcpus,
        )


def charge_of_guest(guest: Guest, overhead_mb: int) -> Charge:
    """Return the charge of a guest by its own size, equal to that of a claim with its amounts.

    A powered-off guest is charged like a running one, as it may be started at
    any time without a claim. Pinned CPUs are charged as dedicated CPUs.
    """
    amounts = Amounts(
        vcpu_milli=max(0, guest.vcpu_milli - guest.pins.pcpus * MILLI),
        pcpus=guest.pins.pcpus,
        memory_mb=guest.memory_mb,
        disk_mb=guest.disk_mb,
    )
    return charge_of_claim(amounts, guest.kind, overhead_mb)


def charge_of_claim(amounts: Amounts, kind: WorkloadKind, overhead_mb: int) -> Charge:
    """Return the charge of a claim: its amounts plus, for an instance, the driver's overhead.

    A container is a process of the host and needs no emulator.
    """
    overhead = overhead_mb if kind is WorkloadKind.INSTANCE else 0
    return Charge(amounts.vcpu_milli, amounts.memory_mb + overhead, amounts.disk_mb, amounts.pcpus)


def charge_of_claims(claims: Iterable[Claim], overhead_mb: int) -> Charge:
    """Return the total charge of those claims that are active."""
    return sum_charges(
        charge_of_claim(claim.amounts, claim.workload.kind, overhead_mb)
        for claim in claims
        if claim.is_active
    )


def charge_of_workload(claimed: Charge, guest: Guest | None, overhead_mb: int) -> Charge:
    """Return the charge of a workload on a node: the larger of its claims and its guest.

    Memory, disk and CPUs are compared separately, each in full. Of a guest
    with more CPUs than its claims, shared and dedicated ones together, as many
    count as dedicated as either has. A guest to which no claim is assigned is
    charged in addition to the claims.

    Args:
        claimed: the charge of the workload's active claims on the node.
        guest: the workload's guest on the node; a missing one does not count.

    >>> guest = Guest("u", "web", WorkloadKind.INSTANCE, 4000, 1024, 0, claim_uuid="c")
    >>> charge_of_workload(Charge(vcpu_milli=1000, memory_mb=2048, pcpus=2), guest, 0)
    Charge(vcpu_milli=2000, memory_mb=2048, disk_mb=0, pcpus=2)
    """
    if guest is None or guest.missing_since is not None:
        return claimed
    own = charge_of_guest(guest, overhead_mb)
    if guest.claim_uuid is None:
        return claimed + own
    vcpu_milli, pcpus = claimed.vcpu_milli, claimed.pcpus
    if own.cpu_milli > claimed.cpu_milli:
        pcpus = max(claimed.pcpus, own.pcpus)
        vcpu_milli = own.cpu_milli - pcpus * MILLI
    return Charge(
        vcpu_milli,
        max(claimed.memory_mb, own.memory_mb),
        max(claimed.disk_mb, own.disk_mb),
        pcpus,
    )


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
    charge: Charge


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
) -> Charge:
    """Return the total charge of a node's workloads.

    Args:
        guests: uuid -> guest.
    """
    return sum_charges(item.charge for item in list_node_workloads(claims, guests, overhead_mb))


def sum_charges(charges: Iterable[Charge]) -> Charge:
    """Return the sum of charges."""
    total = Charge()
    for charge in charges:
        total = total + charge
    return total


def usage_columns(
    total: Charge, reserved: Mapping[str, Any], memory_mb: int, local_disk_gb: int
) -> dict[str, Any]:
    """Build the usage columns of a row: reserved amounts plus charges, and the free amounts.

    Args:
        reserved: the row's column of that name.
        memory_mb, local_disk_gb: the node's capacity, as in its row.

    Returns:
        Column -> value; free amounts may be negative.
    """
    memory_used = int(reserved.get("memory_mb", 0)) + total.memory_mb
    disk_used_mb = int(reserved.get("disk_mb", 0)) + total.disk_mb
    vcpu_milli = int(reserved.get("vcpus", 0)) * MILLI + total.vcpu_milli
    return {
        "pcpus_used": total.pcpus,
        "vcpus_used": usage_units_from_milli(vcpu_milli),
        "memory_mb_used": memory_used,
        "local_gb_used": usage_gib_from_mib(disk_used_mb),
        "free_ram_mb": memory_mb - memory_used,
        "free_disk_gb": capacity_gib_from_mib(local_disk_gb * MIB_PER_GIB - disk_used_mb),
        "cpu_used": total.vcpu_milli / MILLI,
        "disk_used": total.disk_mb / MIB_PER_GIB,
    }


def charge_of_row(values: AmountColumns) -> Charge:
    """Return the total charge in a row's usage columns, without reserved amounts.

    The result is exact, as the columns have thousandths and whole MiB: adding
    a claim to a row and removing it again restores the row.
    """
    return Charge(
        round(values.cpu_used * MILLI),
        values.memory_mb_used - int(values.reserved.get("memory_mb", 0)),
        round(values.disk_used * MIB_PER_GIB),
        values.pcpus_used,
    )


def count_columns(guests: Iterable[Guest]) -> dict[str, Any]:
    """Build the columns that count guests: Nova's instances and Zun's containers.

    For containers, total = running + paused + stopped. Guests that vanished are not counted.
    """
    by_kind_state: Counter[tuple[WorkloadKind, PowerState]] = Counter()
    by_project: Counter[str] = Counter()
    for guest in guests:
        if guest.missing_since is not None:
            continue
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
