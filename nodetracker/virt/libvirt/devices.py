"""Read the node's PCI functions; documents are cached until an event or their maximum age."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from xml.etree.ElementTree import Element

from nodetracker.model.errors import HostDataError
from nodetracker.model.pci import (
    UNKNOWN_DRIVER,
    MdevType,
    PciDevice,
    PciDeviceType,
    address_key,
)
from nodetracker.virt.host.gpu import is_gpu
from nodetracker.virt.host.roots import Partial, Problems
from nodetracker.virt.libvirt.xml import (
    ADDRESS_PARTS,
    format_address,
    parse_address,
    parse_document,
    parse_int,
    parse_text,
)

REREAD_SECONDS = 600.0
_NAME = re.compile("pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")
"""What libvirt calls the node devices of PCI functions."""


@dataclass(frozen=True, slots=True)
class _Function:
    device: PciDevice
    mdev_types: tuple[MdevType, ...]


class DeviceReader:
    """Reads PCI functions and caches one connection's documents between readings.

    Args:
        read_xml: returns a node device's document, None when the device does not exist any more;
            raises HostDataError when it cannot be read for this device only.
    """

    def __init__(
        self,
        read_xml: Callable[[str], str | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_xml = read_xml
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, _Function] = {}
        self._read_at: float | None = None
        self._is_stale = False

    def read(self, names: Sequence[str], have_changed: bool) -> Partial[tuple[PciDevice, ...]]:
        """Return all PCI functions, ordered by address.

        One whose document is invalid or cannot be read is left out, and read
        again next time.

        Args:
            have_changed: a device had an event, so all documents are read again.
        """
        problems = Problems("node devices")
        with self._lock:
            now = self._monotonic()
            have_changed, self._is_stale = have_changed or self._is_stale, False
            if have_changed or self._read_at is None or now - self._read_at >= REREAD_SECONDS:
                self._known, self._read_at = {}, None
            known = {}
            for name in names:
                function = self._known.get(name) or self._read_one(name, problems)
                if function is not None:
                    known[name] = function
            self._known = known
            self._read_at = now if self._read_at is None else self._read_at
            devices = sorted(
                _mark_unknown([function.device for function in known.values()]),
                key=lambda device: address_key(device.address),
            )
            return Partial(tuple(devices), problems.list_all())

    def refresh(self) -> None:
        """Let the next reading read all documents again."""
        self._is_stale = True

    def mdev_types(self) -> dict[str, tuple[MdevType, ...]]:
        """Return the mediated device types of functions as last read, by address."""
        with self._lock:
            return {
                function.device.address: function.mdev_types
                for function in self._known.values()
                if function.mdev_types
            }

    def _read_one(self, name: str, problems: Problems) -> _Function | None:
        return problems.attempt(partial(self._read_function, name), None, "the device is left out")

    def _read_function(self, name: str) -> _Function | None:
        text, source = self._read_xml(name), f"node device {name}"
        if text is None:
            return None
        device = parse_pci_device(text, source)
        named = _NAME.fullmatch(name)
        if named and device.address != format_address(*(int(part, 16) for part in named.groups())):
            raise HostDataError(source, f"has the document of {device.address}")
        return _Function(device, parse_mdev_types(text, source))


def _mark_unknown(devices: Sequence[PciDevice]) -> list[PciDevice]:
    """Return the functions, GPUs with an unknown driver where none has one.

    On real machines some function always has one; libvirt's test driver reports none (seen
    with 9.0).
    """
    if any(device.driver for device in devices):
        return list(devices)
    return [replace(item, driver=UNKNOWN_DRIVER) if is_gpu(item) else item for item in devices]


def parse_pci_device(text: str, source: str = "node device") -> PciDevice:
    """Parse one PCI function.

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
        address=format_address(
            *(
                parse_int(parse_text(pci, part, source), f"<{part}>", source, most)
                for part, most in ADDRESS_PARTS.items()
            )
        ),
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
                parse_text(kind, "availableInstances", source).strip(),
                "<availableInstances>",
                source,
            ),
        )
        for kind in found
    )


def _parse_id(pci: Element, name: str, source: str) -> str:
    element = pci.find(name)
    if element is None:
        raise HostDataError(source, f"has no <{name}>")
    return f"{parse_int(element.get('id'), f'<{name} id>', source):04x}"
