"""Derive the columns of a row by which the database screens nodes for a claim."""

from dataclasses import dataclass

from nodetracker.accounting.ledger.admission import list_capacities, ordinary_capacity
from nodetracker.accounting.usage import overhead_of
from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fact import FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues

MAX_EXACT = 2**53
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
        huge_mb_unused: the part of what ``memory_mb_limit`` leaves that only huge pages can
            take, 0 if the memory outside them limits no claim; see `ordinary_capacity`.
        disk_mb_limit: limit of ``disk_used``, in MiB.
        overhead_mb: memory that the driver adds to each instance.
        admission_flags: `UNTRACKED`, one for each unknown fact and for each
            kind of guests that cannot be listed.
    """

    vcpu_milli_limit: int
    memory_mb_limit: int
    huge_mb_unused: int
    disk_mb_limit: int
    overhead_mb: int
    admission_flags: int


def limits_of(values: NodeValues) -> NodeLimits:
    """Return the limits of a row."""
    capacities = list_capacities(values)
    cpu, memory, disk = (capacities[name] for name in (VCPU, MEMORY, DISK))
    ordinary = ordinary_capacity(values) or memory
    unused = memory.own_limit - memory.used - (ordinary.own_limit - ordinary.used)
    return NodeLimits(
        vcpu_milli_limit=_bound(cpu.own_limit - cpu.reserved),
        memory_mb_limit=_bound(memory.own_limit),
        huge_mb_unused=_bound(unused),
        disk_mb_limit=_bound(disk.own_limit - disk.reserved),
        overhead_mb=_bound(overhead_of(values)),
        admission_flags=_flags_of(values),
    )


def refusing_flags(request: ClaimRequest) -> int:
    """Return the flags each of which makes a node refuse the request.

    Whether it needs the GPUs to be known, or memory for an overhead, depends on the node.
    """
    amounts = request.amounts
    needed = {
        "guests": True,
        "cpu": amounts.vcpu_milli or amounts.pcpus,
        "memory": amounts.memory_mb,
        "storage": amounts.disk_mb,
        "numa": request.numa is not None,
        "pci": request.pci_requests,
    }
    flags = sum(FACT_FLAGS[name] for name, is_needed in needed.items() if is_needed)
    return flags | _UNSEEN_FLAGS[request.workload.kind]


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
    return max(-MAX_EXACT, min(amount, MAX_EXACT))
