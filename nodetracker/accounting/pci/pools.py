"""Group the available PCI devices of a node into pools, as in the column ``pci_stats``."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.pci import REMOTE_MANAGED_TAG, PciDeviceType, TrackedDevice

_TAGS_OF_PLACEMENT = frozenset({"resource_class", "traits"})


@dataclass(frozen=True, slots=True)
class PciPool:
    """The common properties of a pool's devices.

    Attributes:
        numa_node: cell id, None when unknown.
        tags: (key, value) in ascending key, without those meant for placement.
    """

    vendor_id: str
    product_id: str
    dev_type: PciDeviceType
    numa_node: int | None
    tags: tuple[tuple[str, str | None], ...] = ()

    def __str__(self) -> str:
        """Return a description for messages, e.g. ``8086:10ed type-VF on cell 1``."""
        where = "without a cell" if self.numa_node is None else f"on cell {self.numa_node}"
        return f"{self.vendor_id}:{self.product_id} {self.dev_type} {where}"

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key of pools: those with the fewest tags first, as in Nova."""
        return (
            len(self.tags),
            self.vendor_id,
            self.product_id,
            self.dev_type,
            -1 if self.numa_node is None else self.numa_node,
            [(key, value or "") for key, value in self.tags],
        )


def pool_of(device: TrackedDevice) -> PciPool:
    """Return the pool of a managed device, independent of its status."""
    tags = {
        key: value for key, value in (device.tags or {}).items() if key not in _TAGS_OF_PLACEMENT
    }
    if device.dev_type is not PciDeviceType.PCI:
        tags.setdefault(REMOTE_MANAGED_TAG, "false")
    return PciPool(
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        dev_type=device.dev_type,
        numa_node=device.numa_node,
        tags=tuple(sorted(tags.items())),
    )


def count_pools(devices: Iterable[TrackedDevice]) -> dict[PciPool, int]:
    """Count the available devices of each pool, in the pools' order; empty pools are omitted."""
    counts = Counter(pool_of(device) for device in devices if device.is_available)
    return {pool: counts[pool] for pool in sorted(counts, key=lambda pool: pool.order)}


def count_by_cell(pci_stats: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return cell id -> number of available devices, from the column ``pci_stats``.

    >>> count_by_cell([{"numa_node": 1, "count": 2}, {"numa_node": None, "count": 4}])
    {1: 2}
    """
    counts: Counter[int] = Counter()
    for pool in pci_stats:
        if pool["numa_node"] is not None:
            counts[pool["numa_node"]] += pool["count"]
    return dict(counts)


def pci_columns(devices: Iterable[TrackedDevice]) -> dict[str, Any]:
    """Return the column ``pci_stats``: one flat dict per pool, with Nova's keys."""
    return {
        "pci_stats": [
            {
                "vendor_id": pool.vendor_id,
                "product_id": pool.product_id,
                "dev_type": pool.dev_type.value,
                "numa_node": pool.numa_node,
                **dict(pool.tags),
                "count": count,
            }
            for pool, count in count_pools(devices).items()
        ]
    }
