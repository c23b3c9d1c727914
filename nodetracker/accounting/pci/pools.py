"""Pools: the available PCI devices of a node, those alike together, as ``pci_stats`` shows them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nodetracker.model.pci import PciDeviceType, TrackedDevice
from nodetracker.model.pci_spec import REMOTE_MANAGED_TAG

_TAGS_OF_PLACEMENT = frozenset({"resource_class", "traits"})


@dataclass(frozen=True, slots=True)
class PciPool:
    """What devices of one pool have in common.

    Attributes:
        numa_node: cell id, None when the firmware does not say.
        tags: (key, value) in ascending key; placement's own are left out.
    """

    vendor_id: str
    product_id: str
    dev_type: PciDeviceType
    numa_node: int | None
    tags: tuple[tuple[str, str | None], ...] = ()

    def __str__(self) -> str:
        """Say it in a line's part, e.g. ``8086:10ed type-VF on cell 1``."""
        where = "on no cell" if self.numa_node is None else f"on cell {self.numa_node}"
        return f"{self.vendor_id}:{self.product_id} {self.dev_type} {where}"

    @property
    def order(self) -> tuple[Any, ...]:
        """What pools are sorted by: those with the fewest keys first, as Nova does."""
        return (
            len(self.tags),
            self.vendor_id,
            self.product_id,
            self.dev_type,
            -1 if self.numa_node is None else self.numa_node,
            [(key, value or "") for key, value in self.tags],
        )


def pool_of(device: TrackedDevice) -> PciPool:
    """Return the pool that a managed device belongs to, whatever its status."""
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
    """Count the available devices of each pool, in the pools' order; empty pools are left out."""
    counts = Counter(pool_of(device) for device in devices if device.is_available)
    return {pool: counts[pool] for pool in sorted(counts, key=lambda pool: pool.order)}


def pci_columns(devices: Iterable[TrackedDevice]) -> dict[str, Any]:
    """Return the column ``pci_stats``: a flat dict a pool, in Nova's keys."""
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
