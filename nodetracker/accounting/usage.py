"""What is promised on a node: the sum of its charges, and the columns that show it.

Amounts are whole MiB and thousandths of a CPU until they reach the row, so
adding and removing a workload in any order comes back to the same numbers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.claim import Amounts, Claim
from nodetracker.model.guest import Guest, PowerState, WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.units import (
    MIB_PER_GIB,
    MILLI,
    capacity_gib_from_mib,
    usage_gib_from_mib,
    usage_units_from_milli,
)

_STOPPED = {PowerState.SHUTDOWN, PowerState.CRASHED, PowerState.NOSTATE}


@dataclass(frozen=True, slots=True)
class Charge:
    """What one workload costs its node."""

    vcpu_milli: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    pcpus: int = 0

    def __add__(self, other: "Charge") -> "Charge":
        """Return both together."""
        return Charge(
            self.vcpu_milli + other.vcpu_milli,
            self.memory_mb + other.memory_mb,
            self.disk_mb + other.disk_mb,
            self.pcpus + other.pcpus,
        )

    def __sub__(self, other: "Charge") -> "Charge":
        """Return what is left without the other."""
        return Charge(
            self.vcpu_milli - other.vcpu_milli,
            self.memory_mb - other.memory_mb,
            self.disk_mb - other.disk_mb,
            self.pcpus - other.pcpus,
        )


def charge_of_guest(guest: Guest, overhead_mb: int) -> Charge:
    """Return what an unclaimed guest costs: what a claim of its amounts would.

    Powered-off guests cost the same as running ones: they may be started at
    any time without asking. CPUs that are pinned are charged as such.
    """
    amounts = Amounts(
        vcpu_milli=max(0, guest.vcpu_milli - guest.pins.pcpus * MILLI),
        pcpus=guest.pins.pcpus,
        memory_mb=guest.memory_mb,
        disk_mb=guest.disk_mb,
    )
    return charge_of_claim(amounts, guest.kind, overhead_mb)


def charge_of_claim(amounts: Amounts, kind: WorkloadKind, overhead_mb: int) -> Charge:
    """Return what a claim costs: its amounts and, for an instance, its driver's overhead.

    A container is a process of the host and has no emulator beside it.
    """
    overhead = overhead_mb if kind is WorkloadKind.INSTANCE else 0
    return Charge(amounts.vcpu_milli, amounts.memory_mb + overhead, amounts.disk_mb, amounts.pcpus)


def charge_of_ledger(claims: Iterable[Claim], guests: Iterable[Guest], overhead_mb: int) -> Charge:
    """Return what is promised: active claims, and the guests that none of them covers."""
    return sum_charges(
        [
            *(
                charge_of_claim(claim.amounts, claim.workload.kind, overhead_mb)
                for claim in claims
                if claim.is_active
            ),
            *(charge_of_guest(guest, overhead_mb) for guest in guests if guest.claim_uuid is None),
        ]
    )


def sum_charges(charges: Iterable[Charge]) -> Charge:
    """Add charges up; none is nothing."""
    total = Charge()
    for charge in charges:
        total = total + charge
    return total


def usage_columns(
    total: Charge, reserved: Mapping[str, Any], memory_mb: int, local_disk_gb: int
) -> dict[str, Any]:
    """Build the usage columns of a row: reserved and charges together, and what is left.

    Args:
        reserved: the row's column of that name.
        memory_mb, local_disk_gb: the node's capacity as its row shows it.

    Returns:
        Column -> value; free amounts may be negative and are shown so.
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


def charge_of_row(values: NodeValues) -> Charge:
    """Return what a row's usage columns say is promised, without what is reserved.

    Exact, as they hold thousandths and whole MiB: adding a claim to a row and
    taking it off again comes back to the same row.
    """
    return Charge(
        round(values.cpu_used * MILLI),
        values.memory_mb_used - int(values.reserved.get("memory_mb", 0)),
        round(values.disk_used * MIB_PER_GIB),
        values.pcpus_used,
    )


def count_columns(guests: Iterable[Guest]) -> dict[str, Any]:
    """Build the columns that count guests: Nova's instances and Zun's containers.

    Container counts add up: total = running + paused + stopped.
    """
    by_kind_state: Counter[tuple[WorkloadKind, PowerState]] = Counter()
    by_project: Counter[str] = Counter()
    for guest in guests:
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
