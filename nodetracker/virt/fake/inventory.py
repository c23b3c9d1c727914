"""Parses the fake driver's YAML file into snapshots; what does not parse is named."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from nodetracker.errors import HostDataError
from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.fact import fresh
from nodetracker.model.guest import Guest, GuestListing, PowerState, WorkloadKind
from nodetracker.model.host import (
    CpuInfo,
    Filesystem,
    HypervisorInfo,
    MemoryInfo,
    StorageInfo,
    SystemInfo,
)
from nodetracker.model.identifier import parse_uuid
from nodetracker.model.node import HostSnapshot
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.model.pci import ADDRESS_PATTERN, PciDevice, PciDeviceType
from nodetracker.units import MIB_PER_GIB, MILLI

HANG = "hang"
ALL_NODES = "*"

_NODE_KEYS = {
    "nodename", "uuid", "vcpus", "memory_mb", "disk_gb", "cells", "pci_devices", "guests",
    "tracks_resources",
}  # fmt: skip
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FakeInventory:
    """The file as it stands.

    Attributes:
        snapshots: nodename -> its reading.
        errors: nodename -> why its entry cannot be read.
        nameless: one line for each entry that does not even tell its node;
            while there is one, the list of nodes is not complete.
        fail: nodename or ``*`` -> message, or ``hang``.
    """

    is_ready: bool = True
    snapshots: Mapping[str, HostSnapshot] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    fail: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodenames(self) -> tuple[str, ...]:
        """Every node that the file names, readable or not."""
        return tuple(self.snapshots) + tuple(self.errors)

    def failure_of(self, nodename: str) -> str | None:
        """Return what the file wants this node's reading to fail with, or None."""
        return self.fail.get(nodename, self.fail.get(ALL_NODES))


class _EntryError(Exception):
    """An entry that cannot be used; the text begins with the path of the key."""


def parse_inventory(text: str, source: str) -> FakeInventory:
    """Read the whole file.

    Args:
        source: what facts and errors call the file.

    Raises:
        HostDataError: the file as a whole is no inventory.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  a SafeLoader either way
    except yaml.YAMLError as error:
        raise HostDataError(source, f"is no YAML: {_yaml_problem(error)}") from error
    if document is None:
        raise HostDataError(source, "is empty")
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise HostDataError(source, "has no list 'nodes'")
    unknown = sorted(str(key) for key in document.keys() - {"nodes", "ready", "fail"})
    if unknown:
        raise HostDataError(source, f"has an unknown key {unknown[0]!r}")
    is_ready = document.get("ready", True)
    if not isinstance(is_ready, bool):
        raise HostDataError(source, "ready: is neither true nor false")
    return _parse_nodes(document["nodes"], source, is_ready, _parse_fail(document, source))


def _parse_nodes(
    entries: list[Any], source: str, is_ready: bool, fail: Mapping[str, str]
) -> FakeInventory:
    snapshots: dict[str, HostSnapshot] = {}
    errors: dict[str, str] = {}
    nameless = []
    for index, entry in enumerate(entries):
        where = f"nodes[{index}]"
        nodename = entry.get("nodename") if isinstance(entry, dict) else None
        if not isinstance(nodename, str) or not 0 < len(nodename) <= 255:
            nameless.append(f"{source}: {where}: has no nodename")
            continue
        if nodename in snapshots or nodename in errors:
            raise HostDataError(source, f"{where}: nodename {nodename!r} stands twice")
        try:
            snapshots[nodename] = _parse_node(entry, nodename, where, source)
        except _EntryError as error:
            errors[nodename] = str(error)
    return FakeInventory(is_ready, snapshots, errors, tuple(nameless), fail)


def _parse_fail(document: Mapping[str, Any], source: str) -> dict[str, str]:
    fail = document.get("fail") or {}
    if not isinstance(fail, dict):
        raise HostDataError(source, "fail: is no mapping of nodename to message")
    return {str(name): str(message) for name, message in fail.items()}


def _parse_node(entry: Mapping[str, Any], nodename: str, where: str, source: str) -> HostSnapshot:
    _refuse_unknown(entry, _NODE_KEYS, where)
    vcpus = _integer(entry, "vcpus", where)
    memory_mb = _integer(entry, "memory_mb", where)
    disk_mb = _integer(entry, "disk_gb", where) * MIB_PER_GIB
    uuid = _uuid(entry, where) if "uuid" in entry else None
    cells = tuple(
        _parse_cell(item, f"{where}.cells[{index}]")
        for index, item in enumerate(_list(entry, "cells", where))
    )
    if len({cell.id for cell in cells}) != len(cells):
        raise _EntryError(f"{where}.cells: an id stands twice")
    devices = tuple(
        _parse_device(item, f"{where}.pci_devices[{index}]")
        for index, item in enumerate(_list(entry, "pci_devices", where))
    )
    if len({device.address for device in devices}) != len(devices):
        raise _EntryError(f"{where}.pci_devices: an address stands twice")
    tracks_resources = entry.get("tracks_resources", True)
    if not isinstance(tracks_resources, bool):
        raise _EntryError(f"{where}.tracks_resources: is neither true nor false")
    return HostSnapshot(
        nodename=nodename,
        uuid=uuid,
        hypervisor=fresh(source, HypervisorInfo("fake", 1_000_000, (("x86_64", "fake", "hvm"),))),
        cpu=fresh(source, _cpu_info(vcpus, cells, where)),
        memory=fresh(source, MemoryInfo(memory_mb, memory_mb)),
        numa=fresh(source, NumaTopology(tuple(sorted(cells, key=lambda cell: cell.id)))),
        storage=fresh(source, StorageInfo(Filesystem("", disk_mb, 0, disk_mb))),
        pci=fresh(source, devices),
        gpus=fresh(source, ()),
        system=fresh(source, SystemInfo(nodename, "linux", "fake", "")),
        guests=fresh(source, _parse_guests(entry, where)),
        tracks_resources=tracks_resources,
        netdevs=_parse_netdevs(entry, where),
    )


def _parse_netdevs(entry: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the devices' network interfaces, name -> address."""
    netdevs: dict[str, str] = {}
    for index, item in enumerate(_list(entry, "pci_devices", where)):
        name = item.get("devname")
        if name is not None:
            place = f"{where}.pci_devices[{index}]"
            if not isinstance(name, str) or not name or name in netdevs:
                raise _EntryError(f"{place}.devname: {name!r} is no name of its own")
            netdevs[name] = _address(item["address"], f"{place}.address")
    return netdevs


def _cpu_info(vcpus: int, cells: tuple[NumaCell, ...], where: str) -> CpuInfo:
    online: CpuSet = frozenset().union(*(cell.cpus for cell in cells))
    if online and len(online) != vcpus:
        raise _EntryError(f"{where}: vcpus is {vcpus}, but its cells have {len(online)} CPUs")
    online = online or frozenset(range(vcpus))
    siblings = tuple(group for cell in cells for group in cell.siblings)
    paired = frozenset().union(*siblings)
    siblings += tuple(frozenset({cpu}) for cpu in sorted(online - paired))
    return CpuInfo(
        online=online,
        sockets=len({cell.socket for cell in cells if cell.socket is not None}) or 1,
        cores=len(siblings),
        threads=max((len(group) for group in siblings), default=1),
        siblings=tuple(sorted(siblings, key=min)),
        architecture="x86_64",
    )


def _parse_cell(item: Any, where: str) -> NumaCell:
    entry = _mapping(item, where)
    _refuse_unknown(
        entry, {"id", "cpus", "memory_mb", "socket", "siblings", "pages", "distances"}, where
    )
    try:
        cpus = parse_cpu_set(str(entry.get("cpus", "")))
        siblings = tuple(
            frozenset(int(cpu) for cpu in group) for group in _list(entry, "siblings", where)
        )
        pages = tuple(
            PagePool(int(size), int(total))
            for size, total in sorted(_mapping(entry.get("pages", {}), where).items())
        )
        distances = {
            int(cell): int(value)
            for cell, value in _mapping(entry.get("distances", {}), where).items()
        }
    except (TypeError, ValueError) as error:
        raise _EntryError(f"{where}: {error}") from error
    if not frozenset().union(*siblings) <= cpus:
        raise _EntryError(f"{where}.siblings: name CPUs that the cell does not have")
    paired = frozenset().union(*siblings)
    siblings += tuple(frozenset({cpu}) for cpu in cpus - paired)
    return NumaCell(
        id=_integer(entry, "id", where),
        cpus=cpus,
        memory_mb=_integer(entry, "memory_mb", where),
        siblings=tuple(sorted(siblings, key=min)),
        pages=pages,
        socket=_integer(entry, "socket", where) if entry.get("socket") is not None else None,
        distances=distances,
    )


def _parse_device(item: Any, where: str) -> PciDevice:
    entry = _mapping(item, where)
    _refuse_unknown(
        entry,
        {
            "address",
            "vendor_id",
            "product_id",
            "dev_type",
            "numa_node",
            "parent_addr",
            "devname",
        },
        where,
    )
    try:
        dev_type = PciDeviceType(entry.get("dev_type", PciDeviceType.PCI))
    except ValueError as error:
        raise _EntryError(f"{where}.dev_type: {error}") from error
    parent = entry.get("parent_addr")
    return PciDevice(
        address=_address(entry.get("address"), f"{where}.address"),
        vendor_id=_text(entry, "vendor_id", where),
        product_id=_text(entry, "product_id", where),
        dev_type=dev_type,
        numa_node=_integer(entry, "numa_node", where) if entry.get("numa_node") is not None
        else None,
        parent_addr=None if parent is None else _address(parent, f"{where}.parent_addr"),
    )  # fmt: skip


def _parse_guests(entry: Mapping[str, Any], where: str) -> GuestListing:
    guests: dict[str, Guest] = {}
    unreadable = []
    for index, item in enumerate(_list(entry, "guests", where)):
        place = f"{where}.guests[{index}]"
        try:
            guest = _parse_guest(item, place)
            if guest.uuid in guests:
                raise _EntryError(f"{place}.uuid: {guest.uuid} stands twice")
        except _EntryError as error:
            unreadable.append(str(error))
        else:
            guests[guest.uuid] = guest
    return GuestListing(tuple(guests.values()), tuple(unreadable))


def _parse_guest(item: Any, where: str) -> Guest:
    entry = _mapping(item, where)
    _refuse_unknown(
        entry,
        {"uuid", "name", "kind", "vcpus", "memory_mb", "disk_gb", "power_state", "project_id"},
        where,
    )
    uuid = _uuid(entry, where)
    try:
        kind = WorkloadKind(entry.get("kind", WorkloadKind.INSTANCE))
        power_state = PowerState(entry.get("power_state", PowerState.RUNNING))
    except ValueError as error:
        raise _EntryError(f"{where}: {error}") from error
    vcpus = entry.get("vcpus")
    if isinstance(vcpus, bool) or not isinstance(vcpus, (int, float)) or not 0 <= vcpus <= 65536:
        raise _EntryError(f"{where}.vcpus: {vcpus!r} is no amount of CPUs")
    return Guest(
        uuid=uuid,
        name=str(entry.get("name", uuid)),
        kind=kind,
        vcpu_milli=round(vcpus * MILLI),
        memory_mb=_integer(entry, "memory_mb", where),
        disk_mb=_integer(entry, "disk_gb", where) * MIB_PER_GIB,
        power_state=power_state,
        project_id=str(entry.get("project_id", "")),
    )


def _mapping(item: Any, where: str) -> dict[Any, Any]:
    if not isinstance(item, dict):
        raise _EntryError(f"{where}: is no mapping")
    return item


def _list(entry: Mapping[str, Any], key: str, where: str) -> list[Any]:
    items = entry.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise _EntryError(f"{where}.{key}: is no list")
    return items


def _integer(entry: Mapping[str, Any], key: str, where: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        problem = "is missing" if key not in entry else f"{value!r} is no whole number >= 0"
        raise _EntryError(f"{where}.{key}: {problem}")
    return value


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise _EntryError(f"{where}.{key}: {value!r} is no text")
    return value.lower()


def _uuid(entry: Mapping[str, Any], where: str) -> str:
    value = entry.get("uuid")
    try:
        return parse_uuid(value)
    except ValueError as error:
        raise _EntryError(f"{where}.uuid: {error}") from error


def _address(value: Any, where: str) -> str:
    text = str(value).lower()
    if not ADDRESS_PATTERN.fullmatch(text):
        raise _EntryError(f"{where}: {value!r} is no PCI address")
    return text


def _refuse_unknown(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise _EntryError(f"{where}: has an unknown key {unknown[0]!r}")


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"{problem} in line {mark.line + 1}" if mark is not None else str(problem)


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
