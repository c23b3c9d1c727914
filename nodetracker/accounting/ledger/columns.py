"""What is promised of a node: the columns that follow from its claims, guests and devices."""

from collections.abc import Collection, Mapping
from typing import Any

from nodetracker.accounting.ledger.grants import topology_column
from nodetracker.accounting.numa.usage import list_placements
from nodetracker.accounting.pci.gpus import ledger_gpu_columns
from nodetracker.accounting.pci.pools import pci_columns
from nodetracker.accounting.usage import charge_of_ledger, usage_columns
from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import TrackedDevice


def ledger_columns(
    values: NodeValues,
    claims: Collection[Claim],
    guests: Collection[Guest],
    devices: Mapping[str, TrackedDevice],
) -> dict[str, Any]:
    """Build the columns anew from all that is promised, whatever they said before.

    Args:
        values: the rest of the row, capacity and overhead above all.
        guests: each with the claim that covers it.
        devices: with their holders.
    """
    total = charge_of_ledger(claims, guests, int(values.overhead.get("memory_mb", 0)))
    return {
        "numa_topology": topology_column(values.numa_topology, list_placements(claims, guests)),
        **pci_columns(devices.values()),
        **ledger_gpu_columns(values.gpus, values.inventory, claims, guests, devices),
        **usage_columns(total, values.reserved, values.memory_mb, values.local_gb),
    }
