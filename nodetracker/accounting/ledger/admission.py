"""Admission: does a claim fit a node, by what is stored of it; if not, every reason why.

Pure, so that agent, API, conductor and command line admit by the same rule,
and so that a dry run can show the same numbers.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.accounting.pci.gpus import GPU_RESOURCE_CLASS
from nodetracker.accounting.pci.verdict import PciVerdict
from nodetracker.accounting.usage import Charge, charge_of_row
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, ClaimRequest
from nodetracker.model.fact import FactState
from nodetracker.model.node import NodeValues
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.units import MIB_PER_GIB, MILLI


class AdmissionCheck(enum.StrEnum):
    """What a claim may fail; schedulers filter by the same and name their filters so."""

    SERVICE = "service"  # the host has one at all
    ENABLED = "enabled"
    MAINTENANCE = "maintenance"
    UP = "up"
    TRAITS = "traits"
    FACTS = "facts"  # a fact that matters is not known any more
    CPU = "cpu"
    PCPU = "pcpu"
    RAM = "ram"
    DISK = "disk"
    CLASSES = "classes"  # further resource classes
    NUMA = "numa"
    PCI = "pci"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against a claim, and the check that it comes from."""

    check: AdmissionCheck
    reason: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """How a resource class is counted and told.

    Attributes:
        parts: whole parts in one unit; amounts are whole numbers of parts.
        label, suffix: in reasons, as the field words them.
        fact: the fact that tells its total.
        check: that fails when there is too little.
    """

    parts: int
    label: str
    suffix: str
    fact: str
    check: AdmissionCheck


_UNITS = {
    VCPU: _Unit(MILLI, "vcpu", " VCPU", "cpu", AdmissionCheck.CPU),
    PCPU: _Unit(1, "pcpu", " PCPU", "cpu", AdmissionCheck.PCPU),
    MEMORY: _Unit(1, "memory", " MB", "memory", AdmissionCheck.RAM),
    DISK: _Unit(MIB_PER_GIB, "disk", " GB", "storage", AdmissionCheck.DISK),
}

_FACTS = {resource: unit.fact for resource, unit in _UNITS.items()} | {GPU_RESOURCE_CLASS: "gpus"}
"""Resource class -> the fact that tells its total."""


@dataclass(frozen=True, slots=True)
class ResourceVerdict:
    """One resource of a node against what is asked of it, in the resource class's unit.

    Attributes:
        limit: what may be used in all; None = unlimited.
        used: reserved, claims and unclaimed guests together.
        free: limit - used, may be negative; None = unlimited.
    """

    resource: str
    total: float
    reserved: float
    allocation_ratio: float
    used: float
    limit: float | None
    free: float | None
    requested: float

    @property
    def fits(self) -> bool:
        """True when there is enough; nothing asked for always fits."""
        return not self.requested or self.free is None or self.requested <= self.free


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer: what each resource says, and why not.

    Attributes:
        refusals: all that speaks against it; empty = it fits.
        numa: where its cells would be, None when it asks for none or finds none.
        numa_reasons: what each host cell lacks, for who wants to know more.
        devices: addresses of the PCI devices it would have.
        pci: what each PCI request found, None when there is none.
    """

    verdicts: tuple[ResourceVerdict, ...]
    refusals: tuple[Refusal, ...]
    numa: NumaPlacement | None = None
    numa_reasons: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    pci: PciVerdict | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons for a refusal, in words; empty = it fits."""
        return tuple(refusal.reason for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class _Stock:
    """What a node has of one resource, in parts."""

    total: int
    reserved: int
    used: int
    ratio: float

    @property
    def own_limit(self) -> int:
        """What may be used in all by the node's own word: placement's capacity and the reserved.

        Multiplied as placement does: 0.7 of 10 is 7, though the nearest float
        to 0.7 is a hair below it.
        """
        return math.floor((self.total - self.reserved) * self.ratio) + self.reserved


def admit(
    request: ClaimRequest,
    values: NodeValues,
    charge: Charge,
    credit: Charge,
    used_resources: Mapping[str, int],
) -> Admission:
    """Judge a request against one node's row.

    Limits that the request brings stand for the node's own; equality passes.

    Args:
        charge: what the claim costs, the driver's overhead included.
        credit: what the workload's guest is charged on this node already while
            no claim covers it; it makes room for its own claim.
        used_resources: further resource class -> what claims hold of it.
    """
    stocks = _stocks(values)
    amounts = {
        VCPU: (charge.vcpu_milli, credit.vcpu_milli),
        PCPU: (charge.pcpus, credit.pcpus),
        MEMORY: (charge.memory_mb, credit.memory_mb),
        DISK: (charge.disk_mb, credit.disk_mb),
    }
    verdicts = [
        _evaluate(resource, stocks[resource], requested, credited, request.limits)
        for resource, (requested, credited) in amounts.items()
    ]
    refusals = []
    for resource, amount in request.amounts.resources.items():
        entry = values.inventory.get(resource)
        if entry is None:
            reason = f"{resource} is not a resource class of this node"
            refusals.append(Refusal(AdmissionCheck.CLASSES, reason))
            continue
        stock = _Stock(
            entry["total"],
            entry.get("reserved", 0),
            entry.get("reserved", 0) + used_resources.get(resource, 0),
            entry.get("allocation_ratio", 1.0),
        )
        verdicts.append(_evaluate(resource, stock, amount, 0, request.limits))
    lacking = sorted(set(request.required_traits) - set(values.traits))
    refusals += [Refusal(AdmissionCheck.TRAITS, f"trait {trait} is missing") for trait in lacking]
    refusals += [
        Refusal(AdmissionCheck.FACTS, reason)
        for reason in _unknown_facts(values, request, verdicts)
    ]
    refusals += [_refuse(verdict) for verdict in verdicts if not verdict.fits]
    return Admission(tuple(verdicts), tuple(refusals))


def free_amounts(values: NodeValues) -> Charge:
    """Return what a node can still give by its own word, whatever limits a request brings.

    Negative where more is promised than there is.
    """
    free = {name: stock.own_limit - stock.used for name, stock in _stocks(values).items()}
    return Charge(
        vcpu_milli=free[VCPU], memory_mb=free[MEMORY], disk_mb=free[DISK], pcpus=free[PCPU]
    )


def _evaluate(
    resource: str, stock: _Stock, requested: int, credited: int, limits: Mapping[str, int | None]
) -> ResourceVerdict:
    parts = _UNITS[resource].parts if resource in _UNITS else 1
    limit: int | None = stock.own_limit
    if resource in limits:
        given = limits[resource]
        limit = None if given is None else given * parts
    used = stock.used - credited
    return ResourceVerdict(
        resource=resource,
        total=stock.total / parts,
        reserved=stock.reserved / parts,
        allocation_ratio=stock.ratio,
        used=used / parts,
        limit=None if limit is None else limit / parts,
        free=None if limit is None else (limit - used) / parts,
        requested=requested / parts,
    )


def _refuse(verdict: ResourceVerdict) -> Refusal:
    unit = _UNITS.get(verdict.resource)
    label, suffix = (unit.label, unit.suffix) if unit else (verdict.resource, "")
    assert verdict.free is not None
    return Refusal(
        unit.check if unit else AdmissionCheck.CLASSES,
        f"Free {label} {verdict.free:.2f}{suffix} < requested {verdict.requested:g}{suffix}",
    )


def _unknown_facts(
    values: NodeValues, request: ClaimRequest, verdicts: list[ResourceVerdict]
) -> list[str]:
    """Say which of the facts that matter nobody knows any more."""
    wanted = {"guests"}
    wanted |= {_FACTS[v.resource] for v in verdicts if v.requested and v.resource in _FACTS}
    if request.numa is not None:
        wanted.add("numa")
    if request.pci_requests:
        wanted.add("pci")
    return [
        f"{name} is unknown since {entry.since.isoformat(timespec='seconds')}: {entry.error}"
        for name, entry in sorted(values.facts.items())
        if name in wanted and entry.state is FactState.UNKNOWN
    ]


def _stocks(values: NodeValues) -> dict[str, _Stock]:
    """Return what a row has of the classes that it has columns for."""
    promised = charge_of_row(values)
    reserved: Mapping[str, Any] = values.reserved
    vcpu = int(reserved.get("vcpus", 0)) * MILLI
    memory, disk = int(reserved.get("memory_mb", 0)), int(reserved.get("disk_mb", 0))
    return {
        VCPU: _Stock(
            values.vcpus * MILLI, vcpu, vcpu + promised.vcpu_milli, values.cpu_allocation_ratio
        ),
        PCPU: _Stock(values.pcpus, 0, promised.pcpus, 1.0),
        MEMORY: _Stock(
            values.memory_mb, memory, memory + promised.memory_mb, values.ram_allocation_ratio
        ),
        DISK: _Stock(
            values.local_gb * MIB_PER_GIB,
            disk,
            disk + promised.disk_mb,
            values.disk_allocation_ratio,
        ),
    }
