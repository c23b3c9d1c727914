"""Columns of a row that follow from its PCI devices and GPUs: pools of devices, and PGPU.

A GPU is available in only one way. If a device spec matches it or one of its
virtual functions, or a claim has one of these as a PCI device, the GPU does
not count as PGPU, nor does one without a driver that something can compute with. Any other
GPU does, and is reserved while a guest is bound
to it, or it is withheld. If the guest has claims of PGPU, they account for as many of its
GPUs, which are then not reserved in addition.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodetracker.accounting.withheld import Withholding
from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.pci import (
    REMOTE_MANAGED_TAG,
    UNKNOWN_DRIVER,
    PciDeviceType,
    TrackedDevice,
)
from nodetracker.model.serializer import pick

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


def count_by_cell(
    pci_stats: Iterable[Mapping[str, Any]], near: Mapping[int, Collection[int]]
) -> dict[int, int]:
    """Return cell id -> number of available devices near it, from the column ``pci_stats``.

    Args:
        near: see `find_near_cells`.

    >>> stats = [{"numa_node": 1, "count": 2}, {"numa_node": None, "count": 4}]
    >>> count_by_cell(stats, {0: {0}, 1: {0}})
    {0: 2}
    """
    counts: Counter[int] = Counter()
    for pool in pci_stats:
        for cell in near.get(pool["numa_node"], ()):
            counts[cell] += pool["count"]
    return dict(counts)


def pci_columns(devices: Iterable[TrackedDevice]) -> dict[str, Any]:
    """Return the column ``pci_stats``: one flat dict per pool, with Nova's keys."""
    return {
        "pci_stats": [
            {
                **pick(pool, "vendor_id", "product_id", "dev_type", "numa_node"),
                **dict(pool.tags),
                "count": count,
            }
            for pool, count in count_pools(devices).items()
        ]
    }


GPU_RESOURCE_CLASS = "PGPU"
NOTHING_WITHHELD: Mapping[str, Collection[Withholding]] = {}


def ledger_gpu_columns(
    gpus: Sequence[Mapping[str, Any]],
    inventory: Mapping[str, Any],
    claims: Collection[Claim],
    guests: Collection[Guest],
    devices: Mapping[str, TrackedDevice],
    withheld: Mapping[str, Collection[Withholding]] = NOTHING_WITHHELD,
) -> dict[str, Any]:
    """Build the columns ``gpus``, with each GPU's resource class and guests, and ``inventory``.

    Args:
        gpus, inventory: the current columns; the parts built here are ignored.
        claims: inactive ones are ignored.
        devices: the node's PCI devices, which show what is managed and their parents.
        withheld: address of each GPU that is withheld -> why.
    """
    active = [claim for claim in claims if claim.is_active]
    gpu_of = map_gpu_addresses(gpus, devices)
    as_pci = {address for claim in active for address in claim.devices}
    as_pci |= {device.address for device in devices.values() if device.is_managed}
    not_counted = {gpu for address, gpu in gpu_of.items() if address in as_pci}
    not_counted |= {gpu for gpu in gpu_of.values() if not _can_compute(devices.get(gpu))}
    bound = _find_bound(guests, gpu_of)
    shown = [
        dict(gpu)
        | {
            "resource_class": None if gpu["address"] in not_counted else GPU_RESOURCE_CLASS,
            "guests": sorted(bound.get(gpu["address"], ())),
            "withheld_by": sorted({item.guest_uuid for item in withheld.get(gpu["address"], ())}),
        }
        for gpu in gpus
    ]
    counted = [gpu for gpu in shown if gpu["resource_class"] is not None]
    rest = {name: entry for name, entry in inventory.items() if name != GPU_RESOURCE_CLASS}
    if not counted:
        return {"gpus": shown, "inventory": rest}
    claimed = _sum_gpus(active)
    bound_by_claims = sum(
        min(count_bound(shown, guest.uuid), claimed[guest.uuid])
        for guest in guests
        if guest.claim_uuid is not None
    )
    used = sum(bool(gpu["guests"] or gpu["withheld_by"] or gpu.get("problem")) for gpu in counted)
    entry = {
        "total": len(counted),
        "reserved": max(0, used - bound_by_claims),
        "min_unit": 1,
        "max_unit": len(counted),
        "step_size": 1,
        "allocation_ratio": 1.0,
    }
    return {"gpus": shown, "inventory": rest | {GPU_RESOURCE_CLASS: entry}}


_COMPUTE_DRIVERS = {
    "10de": frozenset({"nvidia"}), "1002": frozenset({"amdgpu"}), "8086": frozenset({"i915", "xe"}),
}  # fmt: skip
"""Vendor -> the drivers with which something can compute on its GPUs."""

_OTHER_DRIVERS = frozenset({"", "pci-stub", "xen-pciback", "pciback", "uio_pci_generic"})


def _can_compute(device: TrackedDevice | None) -> bool:
    """Return whether a GPU has a driver with which something on the host computes.

    One that ``vfio-pci`` has is for guests only, and one whose function is not visible, in
    a container, is known by its driver.
    """
    if device is None:
        return True
    drivers = _COMPUTE_DRIVERS.get(device.vendor_id)
    if drivers is not None:
        return device.driver in drivers or device.driver == UNKNOWN_DRIVER
    return device.driver not in _OTHER_DRIVERS and "vfio" not in device.driver


def map_gpu_addresses(
    gpus: Iterable[Mapping[str, Any]], devices: Mapping[str, TrackedDevice]
) -> dict[str, str]:
    """Return the address of a GPU or of a function of it -> the GPU's address."""
    gpu_of = {gpu["address"]: gpu["address"] for gpu in gpus}
    return gpu_of | {
        address: str(device.parent_addr)
        for address, device in devices.items()
        if device.parent_addr in gpu_of
    }


def _find_bound(guests: Iterable[Guest], gpu_of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return a GPU's address -> uuids of the guests that are bound to it."""
    bound: dict[str, set[str]] = {}
    for guest in guests:
        for address in guest.pins.devices if guest.missing_since is None else ():
            if address in gpu_of:
                bound.setdefault(gpu_of[address], set()).add(guest.uuid)
    return bound


def count_bound(gpus: Iterable[Mapping[str, Any]], workload_uuid: str) -> int:
    """Return the number of GPUs that count as PGPU and that a workload's guest is bound to.

    Of those that are withheld for it, any may be its own.

    Args:
        gpus: the column built by `ledger_gpu_columns`.
    """
    return sum(
        gpu.get("resource_class") == GPU_RESOURCE_CLASS
        and (workload_uuid in gpu["guests"] or workload_uuid in gpu.get("withheld_by", ()))
        for gpu in gpus
    )


def inventory_after_claims(
    inventory: Mapping[str, Any],
    gpus: Iterable[Mapping[str, Any]],
    workload_uuid: str,
    before: Iterable[Claim],
    after: Iterable[Claim],
) -> dict[str, Any] | None:
    """Return the column ``inventory`` after a change of a workload's claims.

    Args:
        before, after: the workload's active claims on the node.

    Returns:
        None without a change.
    """
    entry, bound = inventory.get(GPU_RESOURCE_CLASS), count_bound(gpus, workload_uuid)
    lost = min(bound, _sum_gpus(before)[workload_uuid])
    gained = min(bound, _sum_gpus(after)[workload_uuid])
    if entry is None or lost == gained:
        return None
    reserved = max(0, entry["reserved"] + lost - gained)
    return dict(inventory) | {GPU_RESOURCE_CLASS: dict(entry) | {"reserved": reserved}}


def _sum_gpus(claims: Iterable[Claim]) -> Counter[str]:
    """Return the number of PGPUs that each workload has claimed."""
    held: Counter[str] = Counter()
    for claim in claims:
        held[claim.workload.uuid] += claim.amounts.resources.get(GPU_RESOURCE_CLASS, 0)
    return held
