"""Parse a node device's document: one PCI function, a virtual one with its physical function."""

from xml.etree.ElementTree import Element

from nodetracker.model.errors import HostDataError
from nodetracker.model.pci import MdevType, PciDevice, PciDeviceType
from nodetracker.virt.libvirt.domain import parse_address
from nodetracker.virt.libvirt.xml import parse_document, parse_int, parse_text


def parse_pci_device(text: str, source: str = "node device") -> PciDevice:
    """Parse one PCI function.

    Args:
        source: name of the document in errors, e.g. ``node device pci_0000_81_00_0``.

    Raises:
        HostDataError: the device is not a PCI function, or a value is invalid.

    Source: libvirt's formatnode, capability ``pci``.
    """
    root = parse_document(text, "device", source)
    pci = root.find("capability[@type='pci']")
    if pci is None:
        raise HostDataError(source, "is not a PCI device")
    physical = pci.find("capability[@type='phys_function']/address")
    virtual = pci.find("capability[@type='virt_functions']")
    dev_type, parent = PciDeviceType.PCI, None
    if physical is not None:
        dev_type, parent = PciDeviceType.VF, parse_address(physical, source)
    elif virtual is not None:
        dev_type = PciDeviceType.PF
    count = 0 if virtual is None else len(virtual.findall("address"))
    max_count = None if virtual is None else virtual.get("maxCount")
    numa = pci.find("numa")
    group = pci.find("iommuGroup")
    return PciDevice(
        address=_parse_own_address(pci, source),
        vendor_id=_parse_id(pci, "vendor", source),
        product_id=_parse_id(pci, "product", source),
        class_id=f"{parse_int(pci.findtext('class') or '0x0', '<class>', source):06x}"
        if pci.find("class") is not None
        else "",
        dev_type=dev_type,
        driver=(root.findtext("driver/name") or "").strip(),
        numa_node=None if numa is None else parse_int(numa.get("node"), "<numa node>", source),
        parent_addr=parent,
        vf_total=count if max_count is None else parse_int(max_count, "maxCount", source),
        vf_count=count,
        iommu_group=None
        if group is None
        else parse_int(group.get("number"), "<iommuGroup>", source),
    )


def parse_mdev_types(text: str, source: str = "node device") -> tuple[MdevType, ...]:
    """Parse the mediated device types of a PCI function.

    Raises: as `parse_pci_device`.

    Source: libvirt's formatnode, capability ``mdev_types``.
    """
    root = parse_document(text, "device", source)
    found = root.findall("capability[@type='pci']/capability[@type='mdev_types']/type")
    return tuple(
        MdevType(
            id=kind.get("id", ""),
            name=(kind.findtext("name") or "").strip(),
            device_api=(kind.findtext("deviceAPI") or "").strip(),
            available=parse_int(
                parse_text(kind, "availableInstances", source), "<availableInstances>", source
            ),
        )
        for kind in found
    )


def _parse_own_address(pci: Element, source: str) -> str:
    parts = [
        parse_int(parse_text(pci, part, source), f"<{part}>", source)
        for part in ("domain", "bus", "slot", "function")
    ]
    domain, bus, slot, function = parts
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _parse_id(pci: Element, name: str, source: str) -> str:
    element = pci.find(name)
    if element is None:
        raise HostDataError(source, f"has no <{name}>")
    return f"{parse_int(element.get('id'), f'<{name} id>', source):04x}"
