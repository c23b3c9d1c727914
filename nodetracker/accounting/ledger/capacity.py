"""Compute a node's capacity and usage of each resource class from its row.

Amounts are whole parts of the class's unit: thousandths of a CPU, MiB.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.accounting.pci.gpus import GPU_RESOURCE_CLASS
from nodetracker.accounting.usage import charge_of_row
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.fleet import AmountColumns
from nodetracker.model.node import NodeValues
from nodetracker.model.units import MIB_PER_GIB, MILLI

FACTS: Mapping[str, str] = {
    VCPU: "cpu", PCPU: "cpu", MEMORY: "memory", DISK: "storage", GPU_RESOURCE_CLASS: "gpus"
}  # fmt: skip
"""Resource class -> the fact that reports its total."""


@dataclass(frozen=True, slots=True)
class Capacity:
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
        """The node's own limit of the total usage: placement's capacity plus the reservation.

        Multiplied as placement does: 0.7 of 10 is 7, though the nearest float
        to 0.7 is slightly below it.
        """
        return math.floor((self.total - self.reserved) * self.ratio) + self.reserved


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
    used = charge_of_row(values)
    reserved: Mapping[str, Any] = values.reserved
    vcpu = int(reserved.get("vcpus", 0)) * MILLI
    memory, disk = int(reserved.get("memory_mb", 0)), int(reserved.get("disk_mb", 0))
    return {
        VCPU: Capacity(
            values.vcpus * MILLI, vcpu, vcpu + used.vcpu_milli, values.cpu_allocation_ratio
        ),
        PCPU: Capacity(values.pcpus, 0, used.pcpus, 1.0),
        MEMORY: Capacity(
            values.memory_mb, memory, memory + used.memory_mb, values.ram_allocation_ratio
        ),
        DISK: Capacity(
            values.local_gb * MIB_PER_GIB,
            disk,
            disk + used.disk_mb,
            values.disk_allocation_ratio,
        ),
    }


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
