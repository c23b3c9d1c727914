"""Screen nodes for a claim by the numbers of their rows, before the ledger decides.

It excludes only nodes that the ledger would refuse; NUMA cells, PCI devices and
the amounts of further resource classes are left to the ledger. A database screens
all nodes in one statement, by the columns of `NodeLimits` and those that count
usage.
"""

from dataclasses import dataclass

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.capacity import Capacity, list_capacities
from nodetracker.accounting.pci.gpus import GPU_RESOURCE_CLASS
from nodetracker.accounting.usage import charge_of_row
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, Amounts, ClaimRequest
from nodetracker.model.fact import FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.units import MIB_PER_GIB, MILLI

MOST = 2**53
"""Larger amounts are stored as this one; doubles are exact up to it."""

UNTRACKED = 1
"""Flag of a node whose driver does not track resources: no claim is refused for its size."""

FACT_FLAGS = {
    "guests": 2,
    "cpu": 4,
    "memory": 8,
    "storage": 16,
    "gpus": 32,
    "numa": 64,
    "pci": 128,
}
"""Name of a fact -> flag of a node on which it is unknown."""

_UNSEEN_FLAGS = {WorkloadKind.INSTANCE: 256, WorkloadKind.CONTAINER: 512}


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """What screening needs of a row's JSON columns, as columns of its own.

    Attributes:
        vcpu_milli_limit: limit of ``cpu_used``, in thousandths.
        memory_mb_limit: limit of ``memory_mb_used``.
        disk_mb_limit: limit of ``disk_used``, in MiB.
        overhead_mb: memory that the driver adds to each instance.
        admission_flags: `UNTRACKED`, one for each unknown fact and for each
            kind of guests that cannot be listed.
    """

    vcpu_milli_limit: int
    memory_mb_limit: int
    disk_mb_limit: int
    overhead_mb: int
    admission_flags: int


def limits_of(values: NodeValues) -> NodeLimits:
    """Return the limits of a row."""
    capacities = list_capacities(values)
    cpu, memory, disk = (capacities[name] for name in (VCPU, MEMORY, DISK))
    return NodeLimits(
        vcpu_milli_limit=_bound(cpu.own_limit - cpu.reserved),
        memory_mb_limit=_bound(memory.own_limit),
        disk_mb_limit=_bound(disk.own_limit - disk.reserved),
        overhead_mb=_bound(int(values.overhead.get("memory_mb", 0))),
        admission_flags=_flags_of(values),
    )


def free_of(values: NodeValues) -> Amounts:
    """Return the amounts that are free by the node's own limits; may be negative."""
    limits, used = limits_of(values), charge_of_row(values)
    return Amounts(
        vcpu_milli=limits.vcpu_milli_limit - used.vcpu_milli,
        pcpus=values.pcpus - used.pcpus,
        memory_mb=limits.memory_mb_limit - values.memory_mb_used,
        disk_mb=limits.disk_mb_limit - used.disk_mb,
    )


@dataclass(frozen=True, slots=True)
class AmountScreen:
    """The amount that a request takes of one resource, and what limits it.

    Attributes:
        amount: without the driver's overhead.
        limit: of the total usage, in parts, from the request.
        is_limited: False if the request removes the limit.
        has_own_limit: the node's own limits count: the request brings none.
    """

    amount: int
    limit: int = 0
    is_limited: bool = True
    has_own_limit: bool = True


_PARTS = {VCPU: MILLI, PCPU: 1, MEMORY: 1, DISK: MIB_PER_GIB}


def list_amounts(request: ClaimRequest) -> dict[str, AmountScreen]:
    """Return what to screen for, by resource class."""
    amounts = {
        VCPU: request.amounts.vcpu_milli,
        PCPU: request.amounts.pcpus,
        MEMORY: request.amounts.memory_mb,
        DISK: request.amounts.disk_mb,
    }
    return {name: _screen_of(request, name, amount) for name, amount in amounts.items()}


def _screen_of(request: ClaimRequest, name: str, amount: int) -> AmountScreen:
    if name not in request.limits:
        return AmountScreen(min(amount, MOST))
    limit = request.limits[name]
    return AmountScreen(
        min(amount, MOST),
        limit=0 if limit is None else min(limit * _PARTS[name], MOST),
        is_limited=limit is not None,
        has_own_limit=False,
    )


def refusing_flags(request: ClaimRequest) -> int:
    """Return the flags each of which makes a node refuse the request."""
    amounts = request.amounts
    needed = {
        "guests": True,
        "cpu": amounts.vcpu_milli or amounts.pcpus,
        "memory": amounts.memory_mb,
        "storage": amounts.disk_mb,
        "gpus": amounts.resources.get(GPU_RESOURCE_CLASS),
        "numa": request.numa is not None,
        "pci": request.pci_requests,
    }
    flags = sum(FACT_FLAGS[name] for name, is_needed in needed.items() if is_needed)
    return flags | _UNSEEN_FLAGS[request.workload.kind]


def screen(request: ClaimRequest, values: NodeValues, has_guest: bool) -> set[AdmissionCheck]:
    """Return the checks that a request fails by the numbers of a row.

    Args:
        has_guest: the node has a guest of the workload, which is charged
            already: amounts are left to the ledger.
    """
    limits = limits_of(values)
    if limits.admission_flags & UNTRACKED:
        return set()
    failed = set()
    if limits.admission_flags & refusing_flags(request):
        failed.add(AdmissionCheck.FACTS)
    if set(request.required_traits) - set(values.traits):
        failed.add(AdmissionCheck.TRAITS)
    if request.amounts.resources.keys() - values.inventory.keys():
        failed.add(AdmissionCheck.CLASSES)
    if not has_guest:
        failed |= _screen_amounts(request, values, limits)
    return failed


def _screen_amounts(
    request: ClaimRequest, values: NodeValues, limits: NodeLimits
) -> set[AdmissionCheck]:
    amounts, capacities = list_amounts(request), list_capacities(values)
    is_instance = request.workload.kind is WorkloadKind.INSTANCE
    free = free_of(values)
    rows = (
        (AdmissionCheck.CPU, VCPU, free.vcpu_milli, 0),
        (AdmissionCheck.PCPU, PCPU, free.pcpus, 0),
        (AdmissionCheck.RAM, MEMORY, free.memory_mb, limits.overhead_mb if is_instance else 0),
        (AdmissionCheck.DISK, DISK, free.disk_mb, 0),
    )
    return {
        check
        for check, name, unused, overhead in rows
        if not _fits(amounts[name], capacities[name], unused, overhead)
    }


def _fits(screened: AmountScreen, capacity: Capacity, free: int, overhead: int) -> bool:
    wanted = screened.amount + overhead
    if wanted == 0 or not screened.is_limited:
        return True
    if screened.has_own_limit:
        return wanted <= free and screened.amount <= capacity.total
    return wanted <= screened.limit - capacity.used


def _flags_of(values: NodeValues) -> int:
    flags = 0 if values.tracks_resources else UNTRACKED
    for name, flag in FACT_FLAGS.items():
        entry = values.facts.get(name)
        if entry is not None and entry.state is FactState.UNKNOWN:
            flags |= flag
    for kind in () if (guests := values.facts.get("guests")) is None else guests.unseen_kinds:
        flags |= _UNSEEN_FLAGS[kind]
    return flags


def _bound(amount: int) -> int:
    return max(-MOST, min(amount, MOST))
