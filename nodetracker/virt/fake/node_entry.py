"""Parse one node's entry of the inventory file into a snapshot."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

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
from nodetracker.model.node import HostSnapshot
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.model.pci import PciDevice, PciDeviceType
from nodetracker.model.rendering import count_noun
from nodetracker.model.units import MIB_PER_GIB, MILLI
from nodetracker.virt.fake.values import (
    EntryError,
    parse_address,
    parse_entry_uuid,
    parse_integer,
    parse_list,
    parse_mapping,
    parse_pci_id,
    parse_time,
    reject_unknown_keys,
)

_NODE_KEYS = {
    "nodename", "uuid", "vcpus", "memory_mb", "disk_gb", "cells", "pci_devices", "guests",
    "tracks_resources", "booted_at",
}  # fmt: skip

BOOTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""Boot time of nodes whose entry has none."""


def parse_node(entry: Mapping[str, Any], nodename: str, where: str, source: str) -> HostSnapshot:
    """Return the snapshot of a node's entry.

    Args:
        where: path of the entry.
        source: name of the file in facts.

    Raises:
        EntryError: the entry is invalid. An invalid guest is reported in the
            guest listing instead.
    """
    reject_unknown_keys(entry, _NODE_KEYS, where)
    vcpus = parse_integer(entry, "vcpus", where)
    memory_mb = parse_integer(entry, "memory_mb", where)
    disk_mb = parse_integer(entry, "disk_gb", where) * MIB_PER_GIB
    uuid = parse_entry_uuid(entry, where) if "uuid" in entry else None
    cells = tuple(
        _parse_cell(item, f"{where}.cells[{index}]")
        for index, item in enumerate(parse_list(entry, "cells", where))
    )
    if len({cell.id for cell in cells}) != len(cells):
        raise EntryError(f"{where}.cells: duplicate id")
    devices = tuple(
        _parse_device(item, f"{where}.pci_devices[{index}]")
        for index, item in enumerate(parse_list(entry, "pci_devices", where))
    )
    if len({device.address for device in devices}) != len(devices):
        raise EntryError(f"{where}.pci_devices: duplicate address")
    tracks_resources = entry.get("tracks_resources", True)
    if not isinstance(tracks_resources, bool):
        raise EntryError(f"{where}.tracks_resources: expected true or false")
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
        system=fresh(source, _system_info(entry, nodename, where)),
        guests=fresh(source, _parse_guests(entry, where)),
        tracks_resources=tracks_resources,
        netdevs=_parse_netdevs(entry, where),
    )


def _parse_netdevs(entry: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the devices' network interfaces, name -> address."""
    netdevs: dict[str, str] = {}
    for index, item in enumerate(parse_list(entry, "pci_devices", where)):
        name = item.get("devname")
        if name is not None:
            place = f"{where}.pci_devices[{index}]"
            if not isinstance(name, str) or not name or name in netdevs:
                raise EntryError(f"{place}.devname: {name!r} is not a valid unique name")
            netdevs[name] = parse_address(item["address"], f"{place}.address")
    return netdevs


def _system_info(entry: Mapping[str, Any], nodename: str, where: str) -> SystemInfo:
    booted_at = parse_time(entry, "booted_at", where) or BOOTED_AT
    return SystemInfo(nodename, "linux", "fake", "", booted_at=booted_at)


def _cpu_info(vcpus: int, cells: tuple[NumaCell, ...], where: str) -> CpuInfo:
    online: CpuSet = frozenset().union(*(cell.cpus for cell in cells))
    if online and len(online) != vcpus:
        cpus = count_noun(len(online), "CPU")
        raise EntryError(f"{where}: vcpus is {vcpus}, but its cells have {cpus}")
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
        socket_of={c: cell.socket for cell in cells if cell.socket is not None for c in cell.cpus},
        architecture="x86_64",
    )


def _parse_cell(item: Any, where: str) -> NumaCell:
    entry = parse_mapping(item, where)
    reject_unknown_keys(
        entry, {"id", "cpus", "memory_mb", "socket", "siblings", "pages", "distances"}, where
    )
    try:
        cpus = parse_cpu_set(str(entry.get("cpus", "")))
        siblings = tuple(
            frozenset(int(cpu) for cpu in group) for group in parse_list(entry, "siblings", where)
        )
        pages = tuple(
            PagePool(int(size), int(total))
            for size, total in sorted(parse_mapping(entry.get("pages", {}), where).items())
        )
        distances = {
            int(cell): int(value)
            for cell, value in parse_mapping(entry.get("distances", {}), where).items()
        }
    except (TypeError, ValueError) as error:
        raise EntryError(f"{where}: {error}") from error
    if not frozenset().union(*siblings) <= cpus:
        raise EntryError(f"{where}.siblings: CPUs are not in the cell")
    paired = frozenset().union(*siblings)
    siblings += tuple(frozenset({cpu}) for cpu in cpus - paired)
    return NumaCell(
        id=parse_integer(entry, "id", where),
        cpus=cpus,
        memory_mb=parse_integer(entry, "memory_mb", where),
        siblings=tuple(sorted(siblings, key=min)),
        pages=pages,
        socket=parse_integer(entry, "socket", where) if entry.get("socket") is not None else None,
        distances=distances,
    )


def _parse_device(item: Any, where: str) -> PciDevice:
    entry = parse_mapping(item, where)
    reject_unknown_keys(
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
        raise EntryError(f"{where}.dev_type: {error}") from error
    parent = entry.get("parent_addr")
    return PciDevice(
        address=parse_address(entry.get("address"), f"{where}.address"),
        vendor_id=parse_pci_id(entry, "vendor_id", where),
        product_id=parse_pci_id(entry, "product_id", where),
        dev_type=dev_type,
        numa_node=parse_integer(entry, "numa_node", where) if entry.get("numa_node") is not None
        else None,
        parent_addr=None if parent is None else parse_address(parent, f"{where}.parent_addr"),
    )  # fmt: skip


def _parse_guests(entry: Mapping[str, Any], where: str) -> GuestListing:
    guests: dict[str, Guest] = {}
    unreadable = []
    for index, item in enumerate(parse_list(entry, "guests", where)):
        place = f"{where}.guests[{index}]"
        try:
            guest = _parse_guest(item, place)
            if guest.uuid in guests:
                raise EntryError(f"{place}.uuid: duplicate uuid {guest.uuid}")
        except EntryError as error:
            unreadable.append(str(error))
        else:
            guests[guest.uuid] = guest
    return GuestListing(tuple(guests.values()), tuple(unreadable))


def _parse_guest(item: Any, where: str) -> Guest:
    entry = parse_mapping(item, where)
    reject_unknown_keys(
        entry,
        {"uuid", "name", "kind", "vcpus", "memory_mb", "disk_gb", "power_state", "project_id"},
        where,
    )
    uuid = parse_entry_uuid(entry, where)
    try:
        kind = WorkloadKind(entry.get("kind", WorkloadKind.INSTANCE))
        power_state = PowerState(entry.get("power_state", PowerState.RUNNING))
    except ValueError as error:
        raise EntryError(f"{where}: {error}") from error
    vcpus = entry.get("vcpus")
    if isinstance(vcpus, bool) or not isinstance(vcpus, (int, float)) or not 0 <= vcpus <= 65536:
        raise EntryError(f"{where}.vcpus: {vcpus!r} is not a valid number of CPUs")
    return Guest(
        uuid=uuid,
        name=str(entry.get("name", uuid)),
        kind=kind,
        vcpu_milli=round(vcpus * MILLI),
        memory_mb=parse_integer(entry, "memory_mb", where),
        disk_mb=parse_integer(entry, "disk_gb", where) * MIB_PER_GIB,
        power_state=power_state,
        project_id=str(entry.get("project_id", "")),
    )
