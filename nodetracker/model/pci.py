"""PCI functions, how virtual ones hang below physical ones, and who holds them."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

ADDRESS_PATTERN = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

Tags = Mapping[str, str | None]
"""What a device spec says of its devices, e.g. ``{"physical_network": "physnet0"}``."""


class PciDeviceType(enum.StrEnum):
    """What a function is, in Nova's words."""

    PCI = "type-PCI"
    PF = "type-PF"
    VF = "type-VF"


class PciStatus(enum.StrEnum):
    """What may be done with a function, in Nova's words and ``unmanaged``."""

    UNMANAGED = "unmanaged"
    """No device spec names it; it is the host's own."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    """A claim has it whose guest was not seen yet."""

    ALLOCATED = "allocated"
    """A claim has it whose guest is there."""

    UNAVAILABLE = "unavailable"
    """A PF of which a virtual function is in use."""

    UNCLAIMABLE = "unclaimable"
    """A VF whose physical function is in use."""

    REMOVED = "removed"
    """It is gone from the host while a claim has it."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function.

    Attributes:
        address: ``domain:bus:slot.function``; a domain has four digits or
            more (VMD's have five).
        vendor_id, product_id: four lower-case hex digits.
        class_id: six lower-case hex digits, e.g. ``020000``; "" when unknown.
        dev_type: PF when it can make virtual functions, VF when it is one.
        driver: the kernel driver bound to it, "" when none is.
        numa_node: cell id, None when the firmware does not say.
        parent_addr: the physical function's address, for a VF.
        vf_total, vf_count: virtual functions a PF can have, and has.
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
    """A type of mediated devices that a function can make.

    Attributes:
        available: how many more of it can be made now.
    """

    id: str
    name: str
    device_api: str
    available: int


@dataclass(frozen=True, slots=True)
class TrackedDevice(PciDevice):
    """A PCI function as its row knows it: what it is, and what is decided about it.

    Whether a claim has it and whether a spec names it are told by
    `claim_uuid` and `tags`; `status` follows from these and the neighbours',
    see `nodetracker.accounting.pci.state`.

    Attributes:
        claim_uuid: the claim that has it, or the guest where none covers it;
            None when nobody has.
        tags: of the first device spec that names it; None when none does.
    """

    status: PciStatus = PciStatus.UNMANAGED
    claim_uuid: str | None = None
    tags: Tags | None = None

    @property
    def is_managed(self) -> bool:
        """Whether a device spec names it, so that guests may have it."""
        return self.tags is not None

    @property
    def is_held(self) -> bool:
        """Whether a claim has it."""
        return self.claim_uuid is not None

    @property
    def is_available(self) -> bool:
        """Whether a claim may have it now."""
        return self.status is PciStatus.AVAILABLE


_OBSERVED = tuple(item.name for item in dataclasses.fields(PciDevice))


def track_device(
    device: PciDevice,
    status: PciStatus = PciStatus.UNMANAGED,
    claim_uuid: str | None = None,
    tags: Tags | None = None,
) -> TrackedDevice:
    """Return what was observed of a device together with what is decided about it."""
    observed = {name: getattr(device, name) for name in _OBSERVED}
    return TrackedDevice(**observed, status=status, claim_uuid=claim_uuid, tags=tags)
