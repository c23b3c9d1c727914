"""PCI functions and how virtual functions hang below physical ones."""

import enum
import re
from dataclasses import dataclass

ADDRESS_PATTERN = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class PciDeviceType(enum.StrEnum):
    """What a function is, in Nova's words."""

    PCI = "type-PCI"
    PF = "type-PF"
    VF = "type-VF"


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
