"""Read the host's PCI functions; nothing is cached, as devices may be hot-plugged."""

import re
from pathlib import Path

from nodetracker.errors import HostDataError
from nodetracker.host.roots import (
    Roots,
    list_directory,
    parse_integer,
    path_exists,
    read_link_name,
    read_optional_text,
    read_text,
)
from nodetracker.model.pci import ADDRESS_PATTERN, MdevType, PciDevice, PciDeviceType

_HEX = re.compile(r"0x([0-9a-fA-F]{1,8})")
_VF_LINK = re.compile(r"virtfn[0-9]+")
_ID_DIGITS = 4
_CLASS_DIGITS = 6


def parse_pci_address(text: str, source: str) -> str:
    """Return an address in lower case, e.g. ``0000:5e:00.0`` or VMD's ``10000:e1:00.0``.

    Raises:
        HostDataError: the text is not an address of domain, bus, slot and function.

    >>> parse_pci_address("0000:5E:00.0", "nvml")
    '0000:5e:00.0'
    """
    address = text.strip().lower()
    if not ADDRESS_PATTERN.fullmatch(address):
        raise HostDataError(source, "is not a PCI address")
    return address


def parse_pci_id(text: str, digits: int, source: str) -> str:
    r"""Parse a vendor, product or class id as sysfs writes it.

    Args:
        text: e.g. ``"0x8086\n"``.
        digits: maximum number of hex digits.
        source: the file, for the error.

    Returns:
        Lower-case hex digits without ``0x``, exactly `digits` of them.

    Raises:
        HostDataError: the text is not such a number.

    >>> parse_pci_id("0x10FB\n", 4, "device")
    '10fb'
    """
    match = _HEX.fullmatch(text.strip())
    if match is None or len(match[1]) > digits:
        raise HostDataError(source, f"is not a number of {digits} hex digits")
    return match[1].lower().rjust(digits, "0")


def read_pci_devices(roots: Roots) -> tuple[PciDevice, ...]:
    """Return every PCI function in ascending address; none without a PCI bus.

    A device that is removed while it is being read is left out.

    Raises:
        HostDataError: a device exists and one of its files is unreadable or
            malformed; ``source`` names the file, the fact is held.

    Source: Linux Documentation/ABI/testing/sysfs-bus-pci.
    """
    base = roots.sysfs / "bus/pci/devices"
    devices = []
    for name in list_directory(base) or ():
        address = parse_pci_address(name, str(base / name))
        device = _read_device(base / name, address)
        if device is not None:
            devices.append(device)
    return tuple(sorted(devices, key=_sort_key))


def read_netdevs(roots: Roots) -> dict[str, str]:
    """Return the network interfaces that are PCI functions: name -> address.

    Raises:
        HostDataError: the directory exists and cannot be read.

    Source: Linux Documentation/ABI/testing/sysfs-class-net.
    """
    base = roots.sysfs / "class/net"
    found = {}
    for name in list_directory(base) or ():
        address = read_link_name(base / name / "device")
        if address is not None and ADDRESS_PATTERN.fullmatch(address):
            found[name] = address
    return found


def read_mdev_types(roots: Roots) -> dict[str, tuple[MdevType, ...]]:
    """Return the mediated device types that PCI functions support, by function address.

    Raises:
        HostDataError: a file exists and is unreadable or malformed.

    Source: Linux Documentation/ABI/testing/sysfs-bus-vfio-mdev.
    """
    base = roots.sysfs / "class/mdev_bus"
    found = {}
    for address in list_directory(base) or ():
        if not ADDRESS_PATTERN.fullmatch(address):
            continue
        kinds = base / address / "mdev_supported_types"
        found[address] = tuple(
            MdevType(
                id=name,
                name=(read_optional_text(kinds / name / "name") or "").strip(),
                device_api=(read_optional_text(kinds / name / "device_api") or "").strip(),
                available=_read_integer(kinds / name / "available_instances"),
            )
            for name in list_directory(kinds) or ()
        )
    return {address: kinds for address, kinds in found.items() if kinds}


def _sort_key(device: PciDevice) -> tuple[int, str]:
    domain, _, rest = device.address.partition(":")
    return int(domain, 16), rest


def _read_device(directory: Path, address: str) -> PciDevice | None:
    """Return one function, None when it has been removed."""
    names = list_directory(directory)
    if names is None:
        return None
    try:
        return _read_present_device(directory, address, frozenset(names))
    except HostDataError:
        if not path_exists(directory):
            return None
        raise


def _read_present_device(directory: Path, address: str, names: frozenset[str]) -> PciDevice | None:
    numa_node = _read_integer(directory / "numa_node") if "numa_node" in names else -1
    physfn = directory / "physfn"
    parent = read_link_name(physfn) if "physfn" in names else None
    if parent is None and "physfn" in names:  # the kernel unlinks a function before it removes it
        return None
    vf_links = sum(1 for name in names if _VF_LINK.fullmatch(name))
    vf_total = vf_count = vf_links  # kernels before Linux 3.8 have only the links
    if "sriov_totalvfs" in names:
        vf_total = _read_integer(directory / "sriov_totalvfs")
        if "sriov_numvfs" in names:
            vf_count = _read_integer(directory / "sriov_numvfs")
    dev_type = PciDeviceType.PCI
    if parent is not None:
        dev_type = PciDeviceType.VF
        vf_total = vf_count = 0
    elif vf_total > 0:
        dev_type = PciDeviceType.PF
    return PciDevice(
        address=address,
        vendor_id=_read_id(directory / "vendor", _ID_DIGITS),
        product_id=_read_id(directory / "device", _ID_DIGITS),
        class_id=_read_id(directory / "class", _CLASS_DIGITS) if "class" in names else "",
        dev_type=dev_type,
        driver=(read_link_name(directory / "driver") or "") if "driver" in names else "",
        numa_node=numa_node if numa_node >= 0 else None,
        parent_addr=None if parent is None else parse_pci_address(parent, str(physfn)),
        vf_total=vf_total,
        vf_count=vf_count,
        iommu_group=_read_group(directory / "iommu_group") if "iommu_group" in names else None,
    )


def _read_integer(path: Path) -> int:
    return parse_integer(read_text(path), str(path))


def _read_id(path: Path, digits: int) -> str:
    return parse_pci_id(read_text(path), digits, str(path))


def _read_group(path: Path) -> int | None:
    name = read_link_name(path)
    return None if name is None else parse_integer(name, str(path))
