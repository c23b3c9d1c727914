"""Amounts of resources: one vector for what claims request, workloads take and nodes have.

Amounts are whole parts of a resource class's unit, so adding and removing them in any order
leads back to the same values.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units

VCPU = "VCPU"
PCPU = "PCPU"
MEMORY = "MEMORY_MB"
DISK = "DISK_GB"

ORDINARY = f"{MEMORY} outside huge pages"
"""Name of the second limit of memory, which is not a resource class; see `ordinary_capacity`."""

PARTS: Mapping[str, int] = {VCPU: MILLI, PCPU: 1, MEMORY: 1, DISK: MIB_PER_GIB}
"""Resource class with columns of its own -> parts of its unit, in the order of all lists.

Amounts of any other class are in its unit.
"""

_FIELDS = dict(zip(PARTS, ("vcpu_milli", "pcpus", "memory_mb", "disk_mb"), strict=True))


def limit_of(total: int, reserved: int, ratio: float) -> int:
    """Return what may be allocated of a node's resource, reserved amounts included.

    Multiplied as placement does: 0.7 of 10 is 7, though the nearest float to 0.7 is
    slightly below it.
    """
    return math.floor((total - reserved) * ratio) + reserved


class Sized(Protocol):
    """What has an amount of each class with columns, such as a row of a claim."""

    @property
    def vcpu_milli(self) -> int:
        """Shared CPUs in thousandths."""

    @property
    def pcpus(self) -> int:
        """Dedicated CPUs."""

    @property
    def memory_mb(self) -> int:
        """MiB."""

    @property
    def disk_mb(self) -> int:
        """MiB."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """An amount of each resource class, in parts; may be negative.

    Attributes:
        vcpu_milli: shared CPUs in thousandths.
        pcpus: dedicated CPUs.
        memory_mb, disk_mb: MiB.
        resources: further resource classes of the node's inventory.

    >>> Amounts(1500, memory_mb=512) + Amounts(500, 1) == Amounts(2000, 1, 512)
    True
    >>> (Amounts(1500, memory_mb=512) | Amounts(500, 1))[VCPU]
    1500
    """

    vcpu_milli: int = 0
    pcpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, item: Sized) -> "Amounts":
        """Return the amounts of what has them as attributes."""
        return cls(item.vcpu_milli, item.pcpus, item.memory_mb, item.disk_mb)

    @property
    def cpu_milli(self) -> int:
        """Shared and dedicated CPUs together, in thousandths."""
        return self.vcpu_milli + self.pcpus * MILLI

    @property
    def vcpus(self) -> float:
        """Shared CPUs."""
        return whole_units(self.vcpu_milli, MILLI)

    @property
    def disk_gb(self) -> float:
        """Disk space in GiB."""
        return whole_units(self.disk_mb, MIB_PER_GIB)

    def in_units(self) -> dict[str, float]:
        """Return the amounts of the classes with columns in their units, as they are shown."""
        return {
            "vcpus": self.vcpus,
            "pcpus": self.pcpus,
            "memory_mb": self.memory_mb,
            "disk_gb": self.disk_gb,
        }

    def __getitem__(self, resource: str) -> int:
        """Return the amount of a resource class, 0 of one that is not named."""
        name = _FIELDS.get(resource)
        amount: int = self.resources.get(resource, 0) if name is None else getattr(self, name)
        return amount

    def __add__(self, other: "Amounts") -> "Amounts":
        """Return the sum."""
        return self._combine(operator.add, other)

    def __sub__(self, other: "Amounts") -> "Amounts":
        """Return the difference."""
        return self._combine(operator.sub, other)

    def __or__(self, other: "Amounts") -> "Amounts":
        """Return the larger amount of each class, as `collections.Counter` does."""
        return self._combine(max, other)

    def _combine(self, combine: Callable[[int, int], int], other: "Amounts") -> "Amounts":
        further = {**self.resources, **other.resources}
        return Amounts(
            combine(self.vcpu_milli, other.vcpu_milli),
            combine(self.pcpus, other.pcpus),
            combine(self.memory_mb, other.memory_mb),
            combine(self.disk_mb, other.disk_mb),
            {name: combine(self[name], other[name]) for name in further},
        )


def reserved_amounts(reserved: Mapping[str, Any]) -> Amounts:
    """Return the amounts in a row's column ``reserved``: the operator's and the driver's."""
    vcpus, memory_mb, disk_mb = map(reserved.get, ("vcpus", "memory_mb", "disk_mb"), (0, 0, 0))
    return Amounts(int(vcpus) * MILLI, 0, int(memory_mb), int(disk_mb))


@dataclass(frozen=True, slots=True)
class ResourceVerdict:
    """One resource of a node compared with the requested amount, in the resource class's unit.

    Attributes:
        resource: its class, or `ORDINARY`.
        limit: the most that may be used in total; None = unlimited.
        used: by the reservation and all workloads together.
        free: limit - used, may be negative; None = unlimited.
        excess: how much more than `max_unit` the claim requests, without the
            driver's overhead; None if it does not, or brings a limit, null included.
        max_unit: the largest amount of one claim, None = the total.
        is_growing: whether the claim takes more than its workload is charged already.
    """

    resource: str
    total: float
    reserved: float
    allocation_ratio: float
    used: float
    limit: float | None
    free: float | None
    requested: float
    excess: float | None = None
    max_unit: float | None = None
    is_growing: bool = True

    @property
    def is_free(self) -> bool:
        """True when enough is free."""
        return self.free is None or self.requested <= self.free

    @property
    def largest(self) -> float:
        """The largest amount of one claim."""
        return self.total if self.max_unit is None else self.max_unit

    @property
    def refused(self) -> float:
        """The amount that is too large: for what is free, or without overhead for one claim."""
        return self.largest + (self.excess or 0) if self.is_free else self.requested

    @property
    def fits(self) -> bool:
        """True when enough is free for a claim of this size.

        A claim that takes no more than its workload is charged already always
        fits, as on a node that is overcommitted with its guest.
        """
        return not self.is_growing or (self.is_free and self.excess is None)


@dataclass(frozen=True, slots=True)
class Missing:
    """An amount of a resource class, or of `ORDINARY`, that a node lacks for a claim."""

    resource: str
    amount: float


ReasonParts = tuple[str | ResourceVerdict | Missing, ...]
"""A reason to refuse a claim in its pieces: the values in it, and the text between them."""
