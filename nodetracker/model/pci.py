"""PCI functions, their parents, and their assignment to claims and guests."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

ADDRESS_PATTERN = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

Tags = Mapping[str, str | None]
"""Tags that a device spec adds to its devices, e.g. ``{"physical_network": "physnet0"}``."""


class PciDeviceType(enum.StrEnum):
    """The type of a function, with Nova's values."""

    PCI = "type-PCI"
    PF = "type-PF"
    VF = "type-VF"


class PciStatus(enum.StrEnum):
    """The status of a function: Nova's values and ``unmanaged``."""

    UNMANAGED = "unmanaged"
    """No device spec matches it; it belongs to the host."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    """Assigned to a claim whose guest has not been listed yet."""

    ALLOCATED = "allocated"
    """Assigned to a claim whose guest exists."""

    UNAVAILABLE = "unavailable"
    """A PF with a virtual function in use."""

    UNCLAIMABLE = "unclaimable"
    """A VF whose physical function is in use."""

    REMOVED = "removed"
    """Removed from the host while assigned to a claim."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function.

    Attributes:
        address: ``domain:bus:slot.function``; a domain has at least four
            digits (VMD's have five).
        vendor_id, product_id: four lower-case hex digits.
        class_id: six lower-case hex digits, e.g. ``020000``; "" when unknown.
        dev_type: PF when it supports virtual functions, VF when it is one.
        driver: the kernel driver bound to it, "" for none.
        numa_node: cell id, None when unknown.
        parent_addr: the physical function's address, for a VF.
        vf_total, vf_count: maximum and current number of virtual functions of a PF.
        iommu_group: group number, None without an IOMMU.
    """

    address: str
    vendor_id: str
    product_id: str
    class_id: str = ""
    dev_type: PciDeviceType = PciDeviceType.PCI
    driver: str = ""
    numa_node: int | None = None
    parent_addr: str | None = None
    vf_total: int = 0
    vf_count: int = 0
    iommu_group: int | None = None


@dataclass(frozen=True, slots=True)
class MdevType:
    """A type of mediated devices that a function supports.

    Attributes:
        available: number of devices that can still be created.
    """

    id: str
    name: str
    device_api: str
    available: int


@dataclass(frozen=True, slots=True)
class TrackedDevice(PciDevice):
    """A PCI function as stored: its properties, assignment and status.

    `claim_uuid` and `tags` state its assignment and whether it is managed.
    `status` is derived from these and from related functions, see
    `nodetracker.accounting.pci.state`.

    Attributes:
        claim_uuid: the claim that it is assigned to, or an unclaimed guest's
            uuid; None when it is free.
        tags: tags of the first device spec that matches it; None when none does.
    """

    status: PciStatus = PciStatus.UNMANAGED
    claim_uuid: str | None = None
    tags: Tags | None = None

    @property
    def is_managed(self) -> bool:
        """Whether a device spec matches it, so that guests may use it."""
        return self.tags is not None

    @property
    def is_assigned(self) -> bool:
        """Whether it is assigned to a claim or guest."""
        return self.claim_uuid is not None

    @property
    def is_available(self) -> bool:
        """Whether it can be assigned to a claim now."""
        return self.status is PciStatus.AVAILABLE


_OBSERVED = tuple(item.name for item in dataclasses.fields(PciDevice))


def track_device(
    device: PciDevice,
    status: PciStatus = PciStatus.UNMANAGED,
    claim_uuid: str | None = None,
    tags: Tags | None = None,
) -> TrackedDevice:
    """Return an observed device with its status, assignment and tags."""
    observed = {name: getattr(device, name) for name in _OBSERVED}
    return TrackedDevice(**observed, status=status, claim_uuid=claim_uuid, tags=tags)
