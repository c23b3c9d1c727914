"""Compute a node's capacity and usage of each resource class from its row.

Amounts are whole parts of the class's unit: thousandths of a CPU, MiB.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodetracker.accounting.numa.cells import measure_huge_pages
from nodetracker.accounting.pci.admission import PciVerdict
from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS
from nodetracker.accounting.usage import charge_of_row
from nodetracker.accounting.withheld import explain_withheld_gpus
from nodetracker.model.amounts import (
    DISK,
    MEMORY,
    ORDINARY,
    PARTS,
    PCPU,
    VCPU,
    Amounts,
    Missing,
    ReasonParts,
    ResourceVerdict,
    limit_of,
    reserved_amounts,
)
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fact import FactState
from nodetracker.model.fleet import AmountColumns
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import NumaAssignment
from nodetracker.model.text import render_minute
from nodetracker.model.units import MIB_PER_GIB, MILLI, render_amount, round_down

FACTS: Mapping[str, str] = {
    VCPU: "cpu", PCPU: "cpu", MEMORY: "memory", DISK: "storage", GPU_RESOURCE_CLASS: "gpus"
}  # fmt: skip
"""Resource class -> the fact that reports its total."""


class Capacity(NamedTuple):
    """A node's capacity and usage of one resource, in parts.

    Attributes:
        min_unit: the least amount of a claim.
        step_size: amounts of claims are multiples of it.
        max_unit: the largest amount of a claim, None = `total`.
    """

    total: int
    reserved: int
    used: int
    ratio: float
    min_unit: int = 1
    max_unit: int | None = None
    step_size: int = 1

    @property
    def largest(self) -> int:
        """The largest amount of a claim."""
        return self.total if self.max_unit is None else self.max_unit

    @property
    def own_limit(self) -> int:
        """The node's own limit of the total usage: placement's capacity plus the reservation."""
        return limit_of(self.total, self.reserved, self.ratio)

    @property
    def fill(self) -> float:
        """The allocated share of the limit; above 1, more is allocated.

        Of nothing, what is reserved fills it, and what is used beside that exceeds it.
        """
        limit = self.own_limit
        if limit > 0:
            return self.used / limit
        return float((self.used > 0) + (self.used > self.reserved))


@dataclass(frozen=True, slots=True)
class Demand:
    """What a claim takes of one resource, in parts.

    Attributes:
        credited: what its workload is charged already.
        overhead: the part of `requested` that the driver adds.
    """

    requested: int
    credited: int = 0
    overhead: int = 0


def list_capacities(values: AmountColumns) -> dict[str, Capacity]:
    """Return a row's capacity of the resource classes that have columns."""
    reserved = reserved_amounts(values.reserved)
    charge = charge_of_row(values)
    return {
        VCPU: Capacity(
            values.vcpus * MILLI,
            reserved.vcpu_milli,
            reserved.vcpu_milli + charge.vcpu_milli,
            values.cpu_allocation_ratio,
        ),
        PCPU: Capacity(values.pcpus, reserved.pcpus, reserved.pcpus + charge.pcpus, 1.0),
        MEMORY: Capacity(
            values.memory_mb,
            reserved.memory_mb,
            reserved.memory_mb + charge.memory_mb,
            values.ram_allocation_ratio,
        ),
        DISK: Capacity(
            values.local_gb * MIB_PER_GIB,
            reserved.disk_mb,
            reserved.disk_mb + charge.disk_mb,
            values.disk_allocation_ratio,
        ),
    }


def ordinary_capacity(values: NodeValues) -> Capacity | None:
    """Return a row's capacity of memory outside huge pages, None if it limits no claim.

    It is the memory less all huge pages, with the reservation and ratio of the memory, and is
    used by all that is charged but what is on huge pages. It limits claims where the memory
    as a whole would leave them more: what only huge pages can take is not ordinary memory.
    """
    memory, pages = list_capacities(values)[MEMORY], measure_huge_pages(values.numa_topology)
    ordinary = memory._replace(
        total=memory.total - pages.total_mb, used=memory.used - pages.used_mb
    )
    is_tighter = ordinary.own_limit - ordinary.used < memory.own_limit - memory.used
    return ordinary if is_tighter else None


def capacity_of_class(
    values: NodeValues, resource: str, used: Mapping[str, int]
) -> Capacity | None:
    """Return the capacity of a resource class without columns, None when the node lacks it.

    Args:
        used: resource class -> amount that claims hold.
    """
    entry = values.inventory.get(resource)
    if entry is None:
        return None
    reserved = entry.get("reserved", 0)
    return Capacity(
        entry["total"],
        reserved,
        reserved + used.get(resource, 0),
        entry.get("allocation_ratio", 1.0),
        entry.get("min_unit", 1),
        entry.get("max_unit"),
        entry.get("step_size", 1),
    )


class AdmissionCheck(enum.StrEnum):
    """A check that a claim may fail; exclusions of nodes are counted by check."""

    SERVICE = "service"  # the host has a services row
    ENABLED = "enabled"
    MAINTENANCE = "maintenance"
    UP = "up"
    SPARE = "spare"  # of the search alone: a claim that names the host, or an evacuation, passes
    TRAITS = "traits"
    FACTS = "facts"  # a fact that the claim needs is unknown, or guests of its kind are unseen
    CPU = "cpu"
    PCPU = "pcpu"
    RAM = "ram"
    ORDINARY_RAM = "ordinary_ram"  # memory outside huge pages
    DISK = "disk"
    CLASSES = "classes"  # further resource classes
    NUMA = "numa"
    PCI = "pci"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse a claim, and the check that failed.

    Attributes:
        reason: as a sentence.
        parts: of which `render_reason` made it, () for one that was written as it is.
    """

    check: AdmissionCheck
    reason: str
    parts: ReasonParts = ()


AMOUNT_CHECKS = {
    VCPU: AdmissionCheck.CPU,
    PCPU: AdmissionCheck.PCPU,
    MEMORY: AdmissionCheck.RAM,
    ORDINARY: AdmissionCheck.ORDINARY_RAM,
    DISK: AdmissionCheck.DISK,
}
"""Resource class with columns, or second limit -> the check that fails when too little is free."""

_LABELS = {
    VCPU: ("vcpu", " VCPU"),
    MEMORY: ("memory", " MB"),
    ORDINARY: ("memory outside huge pages", " MB"),
    DISK: ("disk", " GB"),
}
"""Resource class -> its name and unit in reasons."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a claim fits a node, and the numbers behind the answer.

    Attributes:
        verdicts: one for each resource.
        refusals: every reason to refuse the claim; empty = it fits.
        numa: host cells of its cells, None when it requests none or none fits.
        numa_reasons: what each host cell lacks, as the refusal has it.
        devices: addresses of the PCI devices it would get.
        pci: the result of each PCI request, None without any.
    """

    verdicts: tuple[ResourceVerdict, ...]
    refusals: tuple[Refusal, ...]
    numa: NumaAssignment | None = None
    numa_reasons: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    pci: PciVerdict | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons for a refusal as text; empty = it fits."""
        return tuple(refusal.reason for refusal in self.refusals)

    @property
    def parts(self) -> tuple[ReasonParts, ...]:
        """The parts of each reason."""
        return tuple(refusal.parts for refusal in self.refusals)

    @property
    def checks(self) -> tuple[AdmissionCheck, ...]:
        """The checks that failed, in their order."""
        failed = {refusal.check for refusal in self.refusals}
        return tuple(check for check in AdmissionCheck if check in failed)


def admit(
    request: ClaimRequest,
    values: NodeValues,
    charge: Amounts,
    credit: Amounts,
    used_resources: Mapping[str, int],
    ordinary: Demand | None = None,
) -> Admission:
    """Evaluate a request against one node's row.

    Limits in the request replace the node's own; an amount equal to what is
    free fits, and so does one that its workload is charged already. Of a class
    without a limit in the request no claim that takes more is larger than the
    node, whatever the allocation ratio.

    Args:
        charge: amounts that the claim takes, the driver's overhead included.
        credit: amounts that the workload's guest is already charged on this
            node beyond its claims; a further claim of it may use them.
        used_resources: further resource class -> amount that claims hold.
        ordinary: the part of memory that the claim takes outside huge pages; None = all.
    """
    capacities = list_capacities(values)
    overhead = charge - request.amounts
    verdicts = []
    for name in PARTS:
        demand = Demand(charge[name], credit[name], overhead[name])
        verdicts.append(_evaluate(name, capacities[name], demand, request.limits))
        capacity = ordinary_capacity(values) if name == MEMORY else None
        if capacity is not None:
            limits = _limits_outside_pages(request, capacities[MEMORY], capacity)
            verdicts.append(_evaluate(ORDINARY, capacity, ordinary or demand, limits))
    refusals = []
    for resource, amount in request.amounts.resources.items():
        capacity = capacity_of_class(values, resource, used_resources)
        if capacity is None:
            reason = f"{resource} is not a resource class of this node"
            refusals.append(Refusal(AdmissionCheck.CLASSES, reason))
        else:
            verdicts.append(_evaluate(resource, capacity, Demand(amount), request.limits))
            refusals += _refuse_units(resource, capacity, amount)
    missing = sorted(set(request.required_traits) - set(values.traits))
    refusals += [Refusal(AdmissionCheck.TRAITS, f"trait {trait} is missing") for trait in missing]
    refusals += [
        Refusal(AdmissionCheck.FACTS, reason)
        for reason in (*_unseen_guests(values, request), *_unknown_facts(values, request, verdicts))
    ]
    refusals += [_refuse(verdict, values) for verdict in verdicts if not verdict.fits]
    return Admission(tuple(verdicts), tuple(refusals))


def _limits_outside_pages(
    request: ClaimRequest, memory: Capacity, ordinary: Capacity
) -> dict[str, int | None]:
    """Return the second limit of memory; a request's limit of memory moves both alike."""
    limit = request.limits.get(MEMORY, memory.own_limit)
    return {ORDINARY: None if limit is None else limit - memory.own_limit + ordinary.own_limit}


def _evaluate(
    resource: str, capacity: Capacity, demand: Demand, limits: Mapping[str, int | None]
) -> ResourceVerdict:
    parts = PARTS.get(resource, 1)
    limit: int | None = capacity.own_limit
    if resource in limits:
        requested_limit = limits[resource]
        limit = None if requested_limit is None else requested_limit * parts
    used = capacity.used - demand.credited
    excess = demand.requested - demand.overhead - capacity.largest
    return ResourceVerdict(
        resource=resource,
        total=capacity.total / parts,
        reserved=capacity.reserved / parts,
        allocation_ratio=capacity.ratio,
        used=used / parts,
        limit=None if limit is None else limit / parts,
        free=None if limit is None else (limit - used) / parts,
        requested=demand.requested / parts,
        excess=excess / parts if excess > 0 and resource not in limits else None,
        max_unit=None if capacity.max_unit is None else capacity.max_unit / parts,
        is_growing=demand.requested > max(0, demand.credited),
    )


def _refuse_units(resource: str, capacity: Capacity, amount: int) -> list[Refusal]:
    """Return the reasons why placement would not accept an amount of a class."""
    reasons = []
    if 0 < amount < capacity.min_unit:
        reasons.append(f"Requested {resource} {amount} < min_unit {capacity.min_unit}")
    if amount % capacity.step_size:
        step = capacity.step_size
        reasons.append(f"Requested {resource} {amount} is not a multiple of step_size {step}")
    return [Refusal(AdmissionCheck.CLASSES, reason) for reason in reasons]


def _refuse(verdict: ResourceVerdict, values: NodeValues) -> Refusal:
    parts: ReasonParts = (verdict,)
    if verdict.resource == GPU_RESOURCE_CLASS and not verdict.is_free:
        parts = (verdict, explain_withheld_gpus(values))
    check = AMOUNT_CHECKS.get(verdict.resource, AdmissionCheck.CLASSES)
    return Refusal(check, render_reason(parts), parts)


def render_reason(parts: ReasonParts) -> str:
    """Return a reason as a sentence, worded as in Nova, whose users parse them.

    >>> render_reason(("nearest: h1/n1 lacks ", Missing(MEMORY, 1536), ", ", Missing(VCPU, 2)))
    'nearest: h1/n1 lacks 1536 MEMORY_MB, 2 VCPU'
    """
    return "".join(part if isinstance(part, str) else _render_part(part) for part in parts)


def _render_part(part: ResourceVerdict | Missing) -> str:
    if isinstance(part, Missing):
        return f"{render_amount(part.amount)} {part.resource}"
    label, suffix = _LABELS.get(part.resource, (part.resource, ""))
    requested = f"{render_amount(part.refused)}{suffix}"
    if part.free is not None and not part.is_free:
        return f"Free {label} {round_down(part.free, 2):.2f}{suffix} < requested {requested}"
    return f"Requested {label} {requested} > max_unit {render_amount(part.largest)}{suffix}"


_PLURAL = frozenset({"guests", "gpus"})
"""Facts whose names are plural."""


def _unknown_facts(
    values: NodeValues, request: ClaimRequest, verdicts: list[ResourceVerdict]
) -> list[str]:
    """Return a reason for each unknown fact that the request needs."""
    needed = {"guests"}
    needed |= {FACTS[v.resource] for v in verdicts if v.requested and v.resource in FACTS}
    if request.numa is not None:
        needed.add("numa")
    if request.pci_requests:
        needed.add("pci")
    return [
        f"{name} {'have' if name in _PLURAL else 'has'} been unknown since "
        f"{render_minute(entry.since)}: {entry.error}"
        for name, entry in sorted(values.facts.items())
        if name in needed and entry.state is FactState.UNKNOWN
    ]


def _unseen_guests(values: NodeValues, request: ClaimRequest) -> list[str]:
    """Return the reason if guests cannot be listed or read that the workload may not fit beside."""
    entry, kind = values.facts.get("guests"), request.workload.kind
    if entry is None or entry.state is FactState.UNKNOWN or kind not in entry.unseen_kinds:
        return []
    is_any = len(entry.unseen_kinds) == len(WorkloadKind)
    what = "guests have not all been read" if is_any else f"{kind}s have not been listed"
    return [f"{what} since {render_minute(entry.since)}: {entry.error}"]
