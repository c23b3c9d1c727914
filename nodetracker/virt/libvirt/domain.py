"""Reads a domain's document: what one guest was promised, and what it is bound to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from nodetracker.errors import HostDataError
from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.identifier import parse_uuid
from nodetracker.virt.libvirt.xml import (
    parse_bytes,
    parse_document,
    parse_int,
    parse_page_bytes,
    parse_text,
)

_DEFAULT_HUGE_PAGE_KB = 2048


@dataclass(frozen=True, slots=True)
class DomainDisk:
    """One disk of a domain.

    Attributes:
        target: the name that the guest sees, e.g. ``vda``; unique in its domain.
        kind: of its source: ``file``, ``block``, ``network``, ``volume`` …
        path: of a file or block device, "" for others.
        is_promised: it is a disk that the guest may write, so its size is the guest's.
        protocol: of a network disk, e.g. ``rbd``; "" for others.
        pool: the storage pool of a volume, the first part of a network disk's
            name (the Ceph pool), "" for others.
    """

    target: str
    kind: str
    path: str = ""
    is_promised: bool = True
    protocol: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class GuestNode:
    """One NUMA cell of a domain: its vCPUs and memory."""

    vcpus: CpuSet
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Domain:
    """What a domain's document says.

    Attributes:
        vcpus: that it runs with, or would.
        vcpus_max: that it may be given while it runs.
        memory_bytes: the most that it may use; a balloon only lends some of it back.
        affinity: vCPU -> host CPUs that it may run on, where that is restricted.
        nodes: guest NUMA cells by id.
        memory_nodes: guest cell id -> host cells of its memory; None stands
            for all of the guest's.
        page_kb: of the huge pages it uses, None for ordinary memory.
        devices: addresses of host PCI devices that it has.
    """

    uuid: str
    name: str
    vcpus: int
    vcpus_max: int
    memory_bytes: int
    disks: tuple[DomainDisk, ...] = ()
    affinity: Mapping[int, CpuSet] = field(default_factory=dict)
    nodes: Mapping[int, GuestNode] = field(default_factory=dict)
    memory_nodes: Mapping[int | None, CpuSet] = field(default_factory=dict)
    page_kb: int | None = None
    devices: tuple[str, ...] = ()
    project_id: str = ""


def parse_domain(text: str, source: str = "domain") -> Domain:
    """Read one domain's document.

    Args:
        source: what errors call it, e.g. ``domain web-1``.

    Raises:
        HostDataError: it has no uuid, name, memory or CPUs, or a value that
            cannot be used.

    Source: libvirt's formatdomain.
    """
    root = parse_document(text, "domain", source)
    name = parse_text(root, "name", source)
    try:
        uuid = parse_uuid(parse_text(root, "uuid", source))
    except ValueError as error:
        raise HostDataError(source, f"<uuid> {error}") from error
    vcpu = root.find("vcpu")
    vcpus_max = 1 if vcpu is None else parse_int((vcpu.text or "").strip(), "<vcpu>", source)
    current = None if vcpu is None else vcpu.get("current")
    vcpus = vcpus_max if current is None else parse_int(current, "<vcpu current>", source)
    memory = root.find("memory")
    if memory is None:
        raise HostDataError(source, "has no <memory>")
    return Domain(
        uuid=uuid,
        name=name,
        vcpus=vcpus,
        vcpus_max=vcpus_max,
        memory_bytes=parse_bytes(memory, source),
        disks=tuple(_parse_disk(disk, source) for disk in root.iterfind("devices/disk")),
        affinity=_parse_affinity(root, vcpu, vcpus_max, source),
        nodes=_parse_nodes(root, source),
        memory_nodes=_parse_memory_nodes(root, source),
        page_kb=_parse_page_kb(root, source),
        devices=tuple(sorted(_parse_devices(root, source))),
        project_id=_find_project(root),
    )


def _parse_disk(disk: Element, source: str) -> DomainDisk:
    target = disk.find("target")
    place = disk.find("source")
    name = "" if target is None else target.get("dev", "")
    if not name:
        raise HostDataError(source, "has a <disk> without <target dev>")
    kind = disk.get("type", "file")
    place = Element("source") if place is None else place
    protocol, pool = "", ""
    if kind == "network":
        protocol = place.get("protocol", "")
        pool = place.get("name", "").partition("/")[0]
    elif kind == "volume":
        pool = place.get("pool", "")
    is_disk = disk.get("device", "disk") in {"disk", "lun"}
    return DomainDisk(
        target=name,
        kind=kind,
        path=place.get("file", place.get("dev", "")),
        is_promised=is_disk and disk.find("readonly") is None,
        protocol=protocol,
        pool=pool,
    )


def _parse_affinity(
    root: Element, vcpu: Element | None, vcpus_max: int, source: str
) -> dict[int, CpuSet]:
    found: dict[int, CpuSet] = {}
    if vcpu is not None and vcpu.get("cpuset"):
        found = dict.fromkeys(range(vcpus_max), _cpus(vcpu.get("cpuset"), "cpuset", source))
    for pin in root.iterfind("cputune/vcpupin"):
        number = parse_int(pin.get("vcpu"), "<vcpupin vcpu>", source)
        found[number] = _cpus(pin.get("cpuset"), "<vcpupin>", source)
    return found


def _parse_nodes(root: Element, source: str) -> dict[int, GuestNode]:
    nodes = {}
    for index, cell in enumerate(root.iterfind("cpu/numa/cell")):
        # The amount stands in attributes, of the same units as elements' text.
        amount = Element("memory", {"unit": cell.get("unit", "KiB")})
        amount.text = cell.get("memory")
        number = parse_int(cell.get("id", str(index)), "<cell id>", source)
        cpus = cell.get("cpus")
        nodes[number] = GuestNode(
            _cpus(cpus, "<cell cpus>", source) if cpus else frozenset(),
            parse_bytes(amount, source),
        )
    return nodes


def _parse_memory_nodes(root: Element, source: str) -> dict[int | None, CpuSet]:
    found: dict[int | None, CpuSet] = {}
    memory = root.find("numatune/memory")
    if memory is not None and memory.get("nodeset"):
        found[None] = _cpus(memory.get("nodeset"), "<numatune>", source)
    for node in root.iterfind("numatune/memnode"):
        number = parse_int(node.get("cellid"), "<memnode cellid>", source)
        found[number] = _cpus(node.get("nodeset"), "<memnode>", source)
    return found


def _parse_page_kb(root: Element, source: str) -> int | None:
    huge = root.find("memoryBacking/hugepages")
    if huge is None:
        return None
    page = huge.find("page")
    return _DEFAULT_HUGE_PAGE_KB if page is None else parse_page_bytes(page, source) // 1024


def _parse_devices(root: Element, source: str) -> set[str]:
    """Return the host PCI devices: those passed through, as such or as an interface."""
    places = [
        *root.iterfind("devices/hostdev[@type='pci']/source/address"),
        *root.iterfind("devices/interface[@type='hostdev']/source/address"),
    ]
    return {parse_address(place, source) for place in places}


def parse_address(element: Element, source: str) -> str:
    """Return the PCI address that an ``<address>`` gives in attributes.

    Raises:
        HostDataError: it gives none.
    """
    domain, bus, slot, function = (
        parse_int(element.get(part, "0" if part == "domain" else None), f"<address {part}>", source)
        for part in ("domain", "bus", "slot", "function")
    )
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _find_project(root: Element) -> str:
    """Return the owner that Nova writes into the metadata, "" when there is none."""
    for element in root.iterfind("metadata//"):
        if element.tag.startswith("{http://openstack.org/xmlns/libvirt/nova/") and (
            element.tag.endswith("}project")
        ):
            return element.get("uuid", "")
    return ""


def _cpus(text: str | None, what: str, source: str) -> CpuSet:
    try:
        return parse_cpu_set(text or "")
    except ValueError as error:
        raise HostDataError(source, f"{what}: {error}") from error
