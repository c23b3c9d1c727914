"""Read the host's PCI functions; nothing is cached, as devices may be hot-plugged."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from nodetracker.model.errors import HostDataError
from nodetracker.model.pci import ADDRESS_PATTERN, MdevType, PciDevice, PciDeviceType, address_key
from nodetracker.virt.host.roots import (
    Partial,
    Problems,
    Roots,
    list_directory,
    parse_integer,
    path_exists,
    read_integer,
    read_label,
    read_link_name,
    read_text,
)

_HEX = re.compile(r"0x([0-9a-fA-F]{1,8})")
_VF_LINK = re.compile(r"virtfn[0-9]+")
_ID_DIGITS = 4
_CLASS_DIGITS = 6

T = TypeVar("T")


def parse_pci_address(text: str, source: str) -> str:
    """Return an address in lower case, e.g. ``0000:5e:00.0`` or VMD's ``10000:e1:00.0``.

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
        digits: maximum number of hex digits.

    Returns:
        Lower-case hex digits without ``0x``, exactly `digits` of them.

    >>> parse_pci_id("0x10FB\n", 4, "device")
    '10fb'
    """
    match = _HEX.fullmatch(text.strip())
    if match is None or len(match[1]) > digits:
        raise HostDataError(source, f"is not a number of {digits} hex digits")
    return match[1].lower().rjust(digits, "0")


def read_pci_devices(roots: Roots) -> Partial[tuple[PciDevice, ...]]:
    """Return every PCI function in ascending address; none without a PCI bus.

    A device that is removed while it is being read is left out. One with a
    file that cannot be used is read once more after all others, as it may be
    about to be removed; if its identity is still unknown, it is left out with a problem.

    Raises:
        HostDataError: the directory exists and cannot be listed; the fact is held.

    Source: Linux Documentation/ABI/testing/sysfs-bus-pci.
    """
    base = roots.sysfs / "bus/pci/devices"
    devices = []
    again = []
    for name in list_directory(base) or ():
        first = Problems(base)
        device = first.attempt(partial(_read_device, base / name, first), None, "")
        if first.list_all():
            again.append(name)
        else:
            devices.append(device)
    problems = Problems(base)
    for name in again:
        read = partial(_read_device, base / name, problems)
        devices.append(problems.attempt(read, None, "the device is left out"))
    found = {device.address: device for device in devices if device is not None}
    in_order = tuple(found[address] for address in sorted(found, key=address_key))
    return Partial(in_order, problems.list_all())


def read_netdevs(roots: Roots) -> Partial[dict[str, str]]:
    """Return the network interfaces that are PCI functions: name -> address.

    Raises:
        HostDataError: the directory exists and cannot be read.

    Source: Linux Documentation/ABI/testing/sysfs-class-net.
    """
    base = roots.sysfs / "class/net"
    problems = Problems(base)
    found = {}
    for name in list_directory(base) or ():
        read = partial(read_link_name, base / name / "device")
        address = problems.attempt(read, None, "no device is selected by this interface")
        if address is not None and ADDRESS_PATTERN.fullmatch(address):
            found[name] = address
    return Partial(found, problems.list_all())


def read_mdev_types(roots: Roots) -> Partial[dict[str, tuple[MdevType, ...]]]:
    """Return the mediated device types that PCI functions support, by function address.

    Source: Linux Documentation/ABI/testing/sysfs-bus-vfio-mdev.
    """
    base = roots.sysfs / "class/mdev_bus"
    problems = Problems(base)
    found = {}
    for address in _list_optional(base, problems):
        if ADDRESS_PATTERN.fullmatch(address):
            directory = base / address / "mdev_supported_types"
            names = _list_optional(directory, problems)
            kinds = (_read_mdev_type(directory / name, problems) for name in names)
            found[address] = tuple(kind for kind in kinds if kind is not None)
    return Partial(
        {address: kinds for address, kinds in found.items() if kinds}, problems.list_all()
    )


def _list_optional(directory: Path, problems: Problems) -> tuple[str, ...]:
    cost = "its mediated devices are left out"
    return problems.attempt(partial(list_directory, directory), None, cost) or ()


def _read_mdev_type(directory: Path, problems: Problems) -> MdevType | None:
    path = directory / "available_instances"
    available = problems.attempt(partial(read_integer, path), None, "the type is left out")
    if available is None:
        return None
    return MdevType(
        id=directory.name,
        name=read_label(directory / "name"),
        device_api=read_label(directory / "device_api"),
        available=available,
    )


def _read_device(directory: Path, problems: Problems) -> PciDevice | None:
    """Return one function, None when it has been removed."""
    names = list_directory(directory)
    if names is None:
        return None
    try:
        return _DeviceFiles(directory, frozenset(names), problems).read()
    except HostDataError:
        if not path_exists(directory):
            return None
        raise


class _DeviceFiles:
    """The files of one function; those that only describe it may be unusable."""

    def __init__(self, directory: Path, names: frozenset[str], problems: Problems) -> None:
        self._directory = directory
        self._names = names
        self._problems = problems

    def read(self) -> PciDevice | None:
        directory, names = self._directory, self._names
        address = parse_pci_address(directory.name, str(directory))
        physfn = directory / "physfn"
        parent = read_link_name(physfn) if "physfn" in names else None
        if parent is None and "physfn" in names:
            return None  # the kernel unlinks a function before it removes it
        vf_total, vf_count = (0, 0) if parent is not None else self._count_functions()
        numa_node = self._optional("numa_node", read_integer, -1)
        dev_type = PciDeviceType.PF if vf_total > 0 else PciDeviceType.PCI
        return PciDevice(
            address=address,
            vendor_id=_read_id(directory / "vendor", _ID_DIGITS),
            product_id=_read_id(directory / "device", _ID_DIGITS),
            class_id=self._optional("class", lambda path: _read_id(path, _CLASS_DIGITS), ""),
            dev_type=dev_type if parent is None else PciDeviceType.VF,
            driver=self._optional("driver", read_link_name, None) or "",
            numa_node=numa_node if numa_node >= 0 else None,
            parent_addr=None if parent is None else parse_pci_address(parent, str(physfn)),
            vf_total=vf_total,
            vf_count=vf_count,
            iommu_group=self._optional("iommu_group", _read_group, None),
        )

    def _count_functions(self) -> tuple[int, int]:
        """Return the possible and the present number of virtual functions."""
        links = sum(1 for name in self._names if _VF_LINK.fullmatch(name))
        if "sriov_totalvfs" not in self._names:  # kernels before Linux 3.8 have only the links
            return links, links
        total = self._optional("sriov_totalvfs", read_integer, links)
        return total, self._optional("sriov_numvfs", read_integer, links)

    def _optional(self, name: str, read: Callable[[Path], T], default: T) -> T:
        if name not in self._names:
            return default
        read_file = partial(read, self._directory / name)
        return self._problems.attempt(read_file, default, "the device is listed without it")


def _read_id(path: Path, digits: int) -> str:
    return parse_pci_id(read_text(path), digits, str(path))


def _read_group(path: Path) -> int | None:
    name = read_link_name(path)
    return None if name is None else parse_integer(name, str(path))
