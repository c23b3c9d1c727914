"""Parse the fake driver's YAML file into snapshots.

An invalid value invalidates only its entry, and the error names the value by
its path, the argument ``where``. yaml is imported by the first reading, as
importing a plugin must be cheap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.errors import HostDataError
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
from nodetracker.model.pci import ADDRESS_PATTERN, PciDevice, PciDeviceType
from nodetracker.model.text import count_noun, parse_uuid
from nodetracker.model.units import MIB_PER_GIB, MILLI

HANG = "hang"
ALL_NODES = "*"
_MAX_INTEGER = 2**31 - 1
_FILE_KEYS = {"nodes", "ready", "fail"}
_NODE_KEYS = {
    "nodename", "uuid", "vcpus", "memory_mb", "disk_gb", "cells", "pci_devices", "guests",
    "tracks_resources", "booted_at",
}  # fmt: skip
_CELL_KEYS = {"id", "cpus", "memory_mb", "socket", "siblings", "pages", "distances"}
_DEVICE_KEYS = {
    "address", "vendor_id", "product_id", "dev_type", "numa_node", "parent_addr", "devname",
}  # fmt: skip
_GUEST_KEYS = {
    "uuid", "name", "kind", "vcpus", "memory_mb", "disk_gb", "power_state", "project_id",
}  # fmt: skip

BOOTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""Boot time of nodes whose entry has none."""


class EntryError(Exception):
    """An entry is invalid; the text starts with the path of the key."""


@dataclass(frozen=True, slots=True)
class FakeInventory:
    """The parsed file.

    Attributes:
        is_ready: False: the driver reports that it is not ready.
        errors: nodename -> why its entry is invalid.
        unnamed: one line for each entry without a nodename; the list of nodes
            is incomplete while there is one.
        fail: nodename or ``*`` -> message, or ``hang``.
    """

    is_ready: bool = True
    snapshots: Mapping[str, HostSnapshot] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()
    fail: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodenames(self) -> tuple[str, ...]:
        return tuple(self.snapshots) + tuple(self.errors)

    def get_failure(self, nodename: str) -> str | None:
        """Return the failure that the file demands for this node, None without one."""
        return self.fail.get(nodename, self.fail.get(ALL_NODES))


def parse_inventory(text: str, source: str) -> FakeInventory:
    """Parse the whole file.

    Args:
        source: name of the file in facts and errors.

    Raises:
        HostDataError: the file as a whole is not an inventory.
    """
    document = _load_yaml(text, source)
    if document is None:
        raise HostDataError(source, "is empty")
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise HostDataError(source, "has no list 'nodes'")
    unknown = sorted(str(key) for key in document.keys() - _FILE_KEYS)
    if unknown:
        raise HostDataError(source, f"unknown key {unknown[0]!r}")
    is_ready, fail = document.get("ready", True), document.get("fail") or {}
    if not isinstance(is_ready, bool):
        raise HostDataError(source, "ready: expected true or false")
    if not isinstance(fail, dict):
        raise HostDataError(source, "fail: expected a mapping of nodename to message")
    snapshots: dict[str, HostSnapshot] = {}
    errors: dict[str, str] = {}
    unnamed = []
    for index, entry in enumerate(document["nodes"]):
        where = f"nodes[{index}]"
        nodename = entry.get("nodename") if isinstance(entry, dict) else None
        if not isinstance(nodename, str) or not 0 < len(nodename) <= 255:
            unnamed.append(f"{source}: {where}: has no nodename")
            continue
        if nodename in snapshots or nodename in errors:
            raise HostDataError(source, f"{where}: duplicate nodename {nodename!r}")
        try:
            snapshots[nodename] = _parse_node(entry, nodename, where, source)
        except EntryError as error:
            errors[nodename] = str(error)
    failures = {str(name): str(message) for name, message in fail.items()}
    return FakeInventory(is_ready, snapshots, errors, tuple(unnamed), failures)


def _load_yaml(text: str, source: str) -> Any:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506  a SafeLoader either way
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or type(error).__name__
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise HostDataError(source, f"not valid YAML: {problem}{place}") from error


# Entries: an invalid one raises EntryError.


def _parse_node(entry: Mapping[str, Any], nodename: str, where: str, source: str) -> HostSnapshot:
    """Return the snapshot of a node; an invalid guest is reported in its guest listing."""
    _reject_unknown_keys(entry, _NODE_KEYS, where)
    vcpus = _integer(entry, "vcpus", where)
    memory_mb = _integer(entry, "memory_mb", where)
    disk_mb = _integer(entry, "disk_gb", where) * MIB_PER_GIB
    uuid = _uuid(entry, where) if "uuid" in entry else None
    cells = tuple(_parse_cell(item, place) for item, place in _items(entry, "cells", where))
    if len({cell.id for cell in cells}) != len(cells):
        raise EntryError(f"{where}.cells: duplicate id")
    devices = tuple(
        _parse_device(item, place) for item, place in _items(entry, "pci_devices", where)
    )
    if len({device.address for device in devices}) != len(devices):
        raise EntryError(f"{where}.pci_devices: duplicate address")
    tracks_resources = entry.get("tracks_resources", True)
    if not isinstance(tracks_resources, bool):
        raise EntryError(f"{where}.tracks_resources: expected true or false")
    booted_at = _time(entry, "booted_at", where) or BOOTED_AT
    return HostSnapshot(
        nodename=nodename,
        uuid=uuid,
        hypervisor=fresh(source, HypervisorInfo("fake", 1_000_000, (("x86_64", "fake", "hvm"),))),
        cpu=fresh(source, _build_cpu_info(vcpus, cells, where)),
        memory=fresh(source, MemoryInfo(memory_mb, memory_mb)),
        numa=fresh(source, NumaTopology(tuple(sorted(cells, key=lambda cell: cell.id)))),
        storage=fresh(source, StorageInfo(Filesystem("", disk_mb, 0, disk_mb))),
        pci=fresh(source, devices),
        gpus=fresh(source, ()),
        system=fresh(source, SystemInfo(nodename, "linux", "fake", "", booted_at=booted_at)),
        guests=fresh(source, _parse_guests(entry, where)),
        tracks_resources=tracks_resources,
        netdevs=_parse_netdevs(entry, where),
    )


def _build_cpu_info(vcpus: int, cells: tuple[NumaCell, ...], where: str) -> CpuInfo:
    online: CpuSet = frozenset().union(*(cell.cpus for cell in cells))
    if online and len(online) != vcpus:
        cpus = count_noun(len(online), "CPU")
        raise EntryError(f"{where}: vcpus is {vcpus}, but its cells have {cpus}")
    online = online or frozenset(range(vcpus))
    siblings = _complete_siblings((group for cell in cells for group in cell.siblings), online)
    return CpuInfo(
        online=online,
        sockets=len({cell.socket for cell in cells if cell.socket is not None}) or 1,
        cores=len(siblings),
        threads=max((len(group) for group in siblings), default=1),
        siblings=siblings,
        socket_of={c: cell.socket for cell in cells if cell.socket is not None for c in cell.cpus},
        architecture="x86_64",
    )


def _parse_cell(item: Any, where: str) -> NumaCell:
    entry = _mapping(item, where)
    _reject_unknown_keys(entry, _CELL_KEYS, where)
    try:
        cpus = parse_cpu_set(str(entry.get("cpus", "")))
        siblings = [
            frozenset(int(cpu) for cpu in group) for group, _ in _items(entry, "siblings", where)
        ]
        pages = tuple(
            PagePool(size, total)
            for size, total in sorted(
                (int(size), int(total))
                for size, total in _mapping(entry.get("pages", {}), where).items()
            )
        )
        distances = {
            int(cell): int(value)
            for cell, value in _mapping(entry.get("distances", {}), where).items()
        }
    except (TypeError, ValueError) as error:
        raise EntryError(f"{where}: {error}") from error
    if not frozenset().union(*siblings) <= cpus:
        raise EntryError(f"{where}.siblings: CPUs are not in the cell")
    return NumaCell(
        id=_integer(entry, "id", where),
        cpus=cpus,
        memory_mb=_integer(entry, "memory_mb", where),
        siblings=_complete_siblings(siblings, cpus),
        pages=pages,
        socket=_optional_integer(entry, "socket", where),
        distances=distances,
    )


def _complete_siblings(groups: Iterable[CpuSet], cpus: CpuSet) -> tuple[CpuSet, ...]:
    """Return groups of sibling CPUs; a CPU in none of them is a core by itself."""
    found = [group for group in groups if group]
    rest = cpus - frozenset().union(*found)
    return tuple(sorted([*found, *(frozenset({cpu}) for cpu in rest)], key=min))


def _parse_device(item: Any, where: str) -> PciDevice:
    entry = _mapping(item, where)
    _reject_unknown_keys(entry, _DEVICE_KEYS, where)
    try:
        dev_type = PciDeviceType(entry.get("dev_type", PciDeviceType.PCI))
    except ValueError as error:
        raise EntryError(f"{where}.dev_type: {error}") from error
    parent = entry.get("parent_addr")
    return PciDevice(
        address=_address(entry.get("address"), f"{where}.address"),
        vendor_id=_pci_id(entry, "vendor_id", where),
        product_id=_pci_id(entry, "product_id", where),
        dev_type=dev_type,
        numa_node=_optional_integer(entry, "numa_node", where),
        parent_addr=None if parent is None else _address(parent, f"{where}.parent_addr"),
    )


def _parse_netdevs(entry: Mapping[str, Any], where: str) -> dict[str, str]:
    netdevs: dict[str, str] = {}
    for item, place in _items(entry, "pci_devices", where):
        name = item.get("devname")
        if name is not None:
            if not isinstance(name, str) or not name or name in netdevs:
                raise EntryError(f"{place}.devname: {name!r} is not a valid unique name")
            netdevs[name] = _address(item["address"], f"{place}.address")
    return netdevs


def _parse_guests(entry: Mapping[str, Any], where: str) -> GuestListing:
    guests: dict[str, Guest] = {}
    unreadable = []
    for item, place in _items(entry, "guests", where):
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
    entry = _mapping(item, where)
    _reject_unknown_keys(entry, _GUEST_KEYS, where)
    uuid = _uuid(entry, where)
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
        memory_mb=_integer(entry, "memory_mb", where),
        disk_mb=_integer(entry, "disk_gb", where) * MIB_PER_GIB,
        power_state=power_state,
        project_id=str(entry.get("project_id", "")),
    )


# Values: an invalid one raises EntryError.


def _mapping(item: Any, where: str) -> dict[Any, Any]:
    if not isinstance(item, dict):
        raise EntryError(f"{where}: expected a mapping")
    return item


def _reject_unknown_keys(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise EntryError(f"{where}: unknown key {unknown[0]!r}")


def _items(entry: Mapping[str, Any], key: str, where: str) -> list[tuple[Any, str]]:
    """Return the items of the list under a key, each with its path; none without the key."""
    items = entry.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise EntryError(f"{where}.{key}: expected a list")
    return [(item, f"{where}.{key}[{index}]") for index, item in enumerate(items)]


def _integer(entry: Mapping[str, Any], key: str, where: str) -> int:
    """Return the integer under a key, from 0 to the maximum of a column."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INTEGER:
        problem = "is missing" if key not in entry else f"{value!r} is not an integer >= 0"
        raise EntryError(f"{where}.{key}: {problem}")
    return value


def _optional_integer(entry: Mapping[str, Any], key: str, where: str) -> int | None:
    return None if entry.get(key) is None else _integer(entry, key, where)


def _pci_id(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise EntryError(f"{where}.{key}: {value!r} is not a string")
    return value.lower()


def _uuid(entry: Mapping[str, Any], where: str) -> str:
    try:
        return parse_uuid(entry.get("uuid"))
    except ValueError as error:
        raise EntryError(f"{where}.uuid: {error}") from error


def _time(entry: Mapping[str, Any], key: str, where: str) -> datetime | None:
    """Return the time under a key in UTC, None without one; a time without an offset is UTC."""
    value = entry.get(key)
    if value is None:
        return None
    try:
        # YAML reads a time without quotes itself.
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise EntryError(f"{where}.{key}: {value!r} is not a valid time") from error


def _address(value: Any, where: str) -> str:
    text = str(value).lower()
    if not ADDRESS_PATTERN.fullmatch(text):
        raise EntryError(f"{where}: {value!r} is not a valid PCI address")
    return text
