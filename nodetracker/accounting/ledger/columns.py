"""Build the columns of a node that follow from its claims, guests and devices."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nodetracker.accounting.numa.usage import (
    decode_host_cells,
    list_placements,
    sum_usage,
    topology_with_usage,
)
from nodetracker.accounting.pci.gpus import ledger_gpu_columns
from nodetracker.accounting.pci.pools import pci_columns
from nodetracker.accounting.usage import charge_of_ledger, usage_columns
from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import NumaPlacement
from nodetracker.model.pci import TrackedDevice


def ledger_columns(
    values: NodeValues,
    claims: Collection[Claim],
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
) -> dict[str, Any]:
    """Build the columns from all claims and guests, independently of their stored values.

    Args:
        values: the rest of the row, mainly capacity and overhead.
        guests: by uuid, each with the claim that is assigned to it.
        devices: each with the claim or guest that it is assigned to.
    """
    total = charge_of_ledger(claims, guests, int(values.overhead.get("memory_mb", 0)))
    return {
        "numa_topology": topology_column(
            values.numa_topology, list_placements(claims, guests.values())
        ),
        **pci_columns(devices.values()),
        **ledger_gpu_columns(values.gpus, values.inventory, claims, guests.values(), devices),
        **usage_columns(total, values.reserved, values.memory_mb, values.local_gb),
    }


def topology_column(
    column: Mapping[str, Any], placements: Iterable[NumaPlacement]
) -> dict[str, Any]:
    """Return the column ``numa_topology`` with the usage of each cell by placements."""
    return topology_with_usage(column, sum_usage(decode_host_cells(column), placements))
