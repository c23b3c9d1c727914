"""Parse a domain's document: the resources of one guest and its affinity."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from xml.etree.ElementTree import Element

from nodetracker.model.cpuset import MAX_CPU_ID, CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.model.pci import ADDRESS_PATTERN
from nodetracker.model.text import parse_uuid
from nodetracker.virt.libvirt.xml import (
    CpuSets,
    find_only,
    parse_address,
    parse_bytes,
    parse_document,
    parse_int,
    parse_page_bytes,
    parse_text,
)

DEFAULT_PAGE_KB = -1
"""The size of huge pages of a domain that names none: libvirt chooses it."""

_PASSING_DRIVERS = frozenset({"vfio-pci", "vfio-pci-nohotplug"})
_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_MODELS_ELSEWHERE = frozenset({"nvdimm", "virtio-pmem", "sgx-epc"})
"""Models of memory modules that are not ordinary memory of the host; any other may be."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Memory with one placement: of one guest NUMA cell, of one module, or of the whole domain.

    Attributes:
        host_cells: host cells on which it may be, None if not restricted.
        page_kb: size of its huge pages in KiB or `DEFAULT_PAGE_KB`, None for ordinary memory.
    """

    size_bytes: int
    host_cells: CpuSet | None = None
    page_kb: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryModule:
    """A module whose size changes without asking anybody, up to a maximum (virtio-mem).

    Attributes:
        size_bytes: the maximum, which is charged.
        requested_bytes, current_bytes: as requested of the guest, and as plugged in now;
            the latter is 0 while it is off.
    """

    size_bytes: int
    requested_bytes: int
    current_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DomainDisk:
    """One disk of a domain.

    Attributes:
        target: the device name in the guest, e.g. ``vda``; unique in its domain.
        kind: type of its source: ``file``, ``block``, ``network``, ``volume`` …
        path: of a file or block device, "" for others.
        is_charged: it is a writable disk, so its size counts as the guest's usage.
        protocol: of a network disk, e.g. ``rbd``; "" for others.
        pool: the storage pool of a volume, or the first part of a network disk's
            name (the Ceph pool); "" for others.
        volume: name of a volume in its pool, or of a network disk after its first part.
    """

    target: str
    kind: str
    path: str = ""
    is_charged: bool = True
    protocol: str = ""
    pool: str = ""
    volume: str = ""
    format: str = "raw"

    @property
    def image(self) -> tuple[str, ...]:
        """What identifies its image among the disks of a host, () if nothing does."""
        if self.path:
            return (self.path,)
        return (self.protocol, self.pool, self.volume) if self.volume else ()


@dataclass(frozen=True, slots=True)
class Domain:
    """Contents of a domain's document.

    Attributes:
        vcpus: number of vCPUs that are plugged in when it runs.
        vcpus_max: up to how many can be plugged in while it runs.
        memory_bytes: maximum memory of the host; memory that a balloon or a module of
            virtio-mem has returned is still counted.
        persistent_bytes: memory in files or devices (NVDIMM, virtio-pmem), not of the host.
        modules: sizes of virtio-mem modules.
        affinity: vCPU -> host CPUs on which it may run, where that is restricted.
        helper_sets: host CPUs on which its emulator and its I/O threads may run, where that
            is restricted.
        memory: parts of its memory with their allowed host cells.
        devices: addresses of its host PCI devices.
        mdevs: uuids of its mediated devices, or other names of devices that are passed through.
        interfaces: network interfaces of the host over which it has its own (macvtap).
        nodes: device nodes of the host that it uses, of vDPA and NVMe devices and GPUs.
        is_saved: it starts from a state that libvirt saved; not in the document.
    """

    uuid: str
    name: str
    vcpus: int
    vcpus_max: int
    memory_bytes: int
    disks: tuple[DomainDisk, ...] = ()
    unplugged: CpuSet = frozenset()
    affinity: Mapping[int, CpuSet] = field(default_factory=dict)
    helper_sets: frozenset[CpuSet] = frozenset()
    memory: tuple[MemoryPart, ...] = ()
    persistent_bytes: int = 0
    modules: tuple[MemoryModule, ...] = ()
    devices: tuple[str, ...] = ()
    other_devices: tuple[str, ...] = ()
    mdevs: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    project_id: str = ""
    is_saved: bool = False

    @property
    def needs_default_pages(self) -> bool:
        """Whether it has huge pages and names no size."""
        return any(part.page_kb == DEFAULT_PAGE_KB for part in self.memory)


def parse_domain(text: str, source: str = "domain") -> Domain:
    """Parse one domain's document.

    Source: libvirt's formatdomain.
    """
    root = parse_document(text, "domain", source)
    name = parse_text(root, "name", source)
    try:
        uuid = parse_uuid(parse_text(root, "uuid", source).strip())
    except ValueError as error:
        raise HostDataError(source, f"<uuid> {error}") from error
    sets = CpuSets(source)
    vcpu = find_only(root, "vcpu", source)
    number = "1" if vcpu is None else (vcpu.text or "").strip()
    vcpus_max = parse_int(number, "<vcpu>", source, MAX_CPU_ID, 1)
    current = None if vcpu is None else vcpu.get("current")
    vcpus = (
        vcpus_max if current is None else parse_int(current, "<vcpu current>", source, vcpus_max, 1)
    )
    memory = find_only(root, "memory", source)
    if memory is None:
        raise HostDataError(source, "has no <memory>")
    persistent_bytes = sum(
        _module_bytes(module, source)
        for module in root.iterfind("devices/memory")
        if module.get("model") in _MODELS_ELSEWHERE
    )
    memory_bytes = parse_bytes(memory, source) - persistent_bytes
    if memory_bytes < 0:
        raise HostDataError(source, "has memory modules that are larger than <memory>")
    arguments = _list_arguments(root)
    passed = {name for name in arguments if ADDRESS_PATTERN.fullmatch(name)}
    return Domain(
        uuid=uuid,
        name=name,
        vcpus=vcpus,
        vcpus_max=vcpus_max,
        memory_bytes=memory_bytes,
        disks=tuple(_parse_disk(disk, source) for disk in root.iterfind("devices/disk")),
        unplugged=_parse_unplugged(root, vcpus, vcpus_max, source),
        affinity=_parse_affinity(root, vcpu, vcpus_max, sets, source),
        helper_sets=_parse_helper_sets(root, vcpu, sets),
        memory=parse_memory(root, memory_bytes, source, sets),
        persistent_bytes=persistent_bytes,
        modules=tuple(_parse_modules(root, source)),
        devices=tuple(sorted(_parse_devices(root, source) | passed)),
        other_devices=tuple(sorted(_list_other_devices(root))),
        mdevs=(
            *_parse_mdevs(root, source),
            *(name for name in arguments if name not in passed),
        ),
        interfaces=_list_sources(root, "interface[@type='direct']"),
        nodes=_list_nodes(root),
        project_id=_find_project(root),
    )


def _list_sources(root: Element, kind: str) -> tuple[str, ...]:
    """Return the devices of the host that a kind of the domain's devices is made of, sorted."""
    sources = root.iterfind(f"devices/{kind}/source")
    return tuple(sorted({source.get("dev", "") for source in sources} - {""}))


def _list_nodes(root: Element) -> tuple[str, ...]:
    """Return the paths of the device nodes of the host that the domain uses."""
    kinds = ("interface[@type='vdpa']", "disk[@type='block']", "disk[@type='vhostvdpa']")
    return (
        *(node for kind in kinds for node in _list_sources(root, kind)),
        *(gl.get("rendernode", "") for gl in root.iterfind("devices/graphics/gl[@rendernode]")),
    )


def _list_arguments(root: Element) -> list[str]:
    """Return what arguments for QEMU itself pass through: addresses, or names of other devices.

    Source: libvirt's drvqemu, "QEMU command-line passthrough"; QEMU's device ``vfio-pci``, whose
    properties are ``key=value`` parts or a JSON object.
    """
    found = []
    for argument in root.iterfind(f"{_QEMU}commandline/{_QEMU}arg"):
        properties = _parse_properties(argument.get("value", ""))
        if properties.get("driver") in _PASSING_DRIVERS:
            host = properties.get("host", "")
            host = f"0000:{host}" if host.count(":") == 1 else host
            found.append((host or PurePath(properties.get("sysfsdev", "")).name).lower())
    return found


def _parse_properties(argument: str) -> dict[str, str]:
    if argument.startswith("{"):
        try:
            return {key: str(value) for key, value in json.loads(argument).items()}
        except (ValueError, RecursionError):
            return {}
    driver, *parts = argument.split(",")
    return dict(part.partition("=")[::2] for part in parts) | {"driver": driver}


def _parse_disk(disk: Element, source: str) -> DomainDisk:
    target = disk.find("target")
    disk_source = disk.find("source")
    name = "" if target is None else target.get("dev", "")
    if not name:
        raise HostDataError(source, "has a <disk> without <target dev>")
    kind = disk.get("type", "file")
    disk_source = Element("source") if disk_source is None else disk_source
    protocol, pool, volume = "", "", ""
    if kind == "network":
        protocol = disk_source.get("protocol", "")
        pool, _, volume = disk_source.get("name", "").partition("/")
    elif kind == "volume":
        pool, volume = disk_source.get("pool", ""), disk_source.get("volume", "")
    driver = disk.find("driver")
    is_disk = disk.get("device", "disk") in {"disk", "lun"}
    return DomainDisk(
        target=name,
        kind=kind,
        path=disk_source.get("file", disk_source.get("dev", "")),
        is_charged=is_disk and disk.find("readonly") is None,
        protocol=protocol,
        pool=pool,
        volume=volume,
        format="raw" if driver is None else driver.get("type", "raw"),
    )


def _parse_affinity(
    root: Element, vcpu: Element | None, vcpus_max: int, sets: CpuSets, source: str
) -> dict[int, CpuSet]:
    found: dict[int, CpuSet] = {}
    if vcpu is not None and vcpu.get("cpuset"):
        found = dict.fromkeys(range(vcpus_max), sets.parse(vcpu.get("cpuset"), "cpuset"))
    for pin in root.iterfind("cputune/vcpupin"):
        number = parse_int(pin.get("vcpu"), "<vcpupin vcpu>", source)
        found[number] = sets.parse(pin.get("cpuset"), "<vcpupin>")
    return found


def _parse_unplugged(root: Element, vcpus: int, vcpus_max: int, source: str) -> CpuSet:
    """Return the vCPUs that are not plugged in: the last ones, unless the document names others."""
    elements = root.findall("vcpus/vcpu")
    if not elements:
        return frozenset(range(vcpus, vcpus_max))
    return frozenset(
        parse_int(element.get("id"), "<vcpu id>", source)
        for element in elements
        if element.get("enabled") == "no"
    )


def _parse_helper_sets(root: Element, vcpu: Element | None, sets: CpuSets) -> frozenset[CpuSet]:
    """Return the sets of the emulator, by default that of the vCPUs, and of the I/O threads."""
    pins = [*root.iterfind("cputune/emulatorpin"), *root.iterfind("cputune/iothreadpin")]
    if vcpu is not None and vcpu.get("cpuset") and root.find("cputune/emulatorpin") is None:
        pins.append(vcpu)
    return frozenset(sets.parse(pin.get("cpuset"), f"<{pin.tag}>") for pin in pins)


def _parse_devices(root: Element, source: str) -> set[str]:
    """Return the host PCI devices that are passed through as a device, an interface or a disk."""
    kinds = ("hostdev[@type='pci']", "interface[@type='hostdev']", "disk[@type='nvme']")
    devices = [device for kind in kinds for device in root.iterfind(f"devices/{kind}")]
    return {parse_address(_find_address(device, source), source) for device in devices}


def _parse_mdevs(root: Element, source: str) -> list[str]:
    """Return the uuids of the mediated devices that are passed through."""
    devices = root.iterfind("devices/hostdev[@type='mdev']")
    uuids = [_find_address(device, source).get("uuid", "").lower() for device in devices]
    if not all(uuids):
        raise HostDataError(source, "has an <address> of a mediated device without uuid")
    return uuids


def _find_address(device: Element, source: str) -> Element:
    """Return the address on the host of what is passed through."""
    address = find_only(device, "source/address", source)
    if address is None:
        raise HostDataError(source, f"has a <{device.tag}> of the host without <source/address>")
    return address


def _list_other_devices(root: Element) -> set[str]:
    """Describe the other host devices by their kind and identifying attributes."""
    found = set()
    for device in root.iterfind("devices/hostdev"):
        kind = device.get("type", "")
        if kind == "pci":
            continue
        values = [
            value
            for element in device.iterfind("source//")
            for name, value in element.attrib.items()
            if name not in {"startupPolicy", "type"}
        ]
        texts = [(text.text or "").strip() for text in device.iterfind("source//")]
        found.add(" ".join([kind or device.get("mode", ""), *values, *filter(None, texts)]))
    return found


def _find_project(root: Element) -> str:
    """Return the project from Nova's metadata, "" without it."""
    for element in root.iterfind("metadata//"):
        if element.tag.startswith("{http://openstack.org/xmlns/libvirt/nova/") and (
            element.tag.endswith("}project")
        ):
            return element.get("uuid", "")
    return ""


def parse_memory(
    root: Element, total_bytes: int, source: str, sets: CpuSets | None = None
) -> tuple[MemoryPart, ...]:
    """Return the memory of each guest cell and of each plugged module.

    Modules that are backed by a file do not use memory of the host's cells.

    Args:
        total_bytes: sum of cells and modules of the host's memory.

    Source: libvirt's formatdomain, NUMA tuning, memory backing and memory devices.
    """
    sets = sets or CpuSets(source)
    cells = _parse_host_cells(root, sets, source)
    pages = _parse_pages(root, sets, source)
    sizes = _parse_sizes(root, source)
    modules = [
        module
        for module in root.iterfind("devices/memory")
        if module.get("model") not in _MODELS_ELSEWHERE
    ]
    if not sizes:
        in_modules = sum(_module_bytes(module, source) for module in modules)
        if in_modules > total_bytes:
            raise HostDataError(source, "has memory modules that are larger than <memory>")
        sizes = {0: total_bytes - in_modules}
    parts = [
        MemoryPart(size, cells.get(number, cells.get(None)), pages.get(number, pages.get(None)))
        for number, size in sizes.items()
    ]
    for module in modules:
        number = parse_int(module.findtext("target/node") or "0", "<memory> <node>", source)
        mask, page = module.findtext("source/nodemask"), module.find("source/pagesize")
        parts.append(
            MemoryPart(
                _module_bytes(module, source),
                cells.get(number, cells.get(None)) if mask is None
                else sets.parse(mask, "<nodemask>"),
                pages.get(number, pages.get(None)) if page is None
                else parse_bytes(page, source) // 1024,
            )
        )  # fmt: skip
    return tuple(parts)


def _parse_modules(root: Element, source: str) -> Iterator[MemoryModule]:
    for module in root.iterfind("devices/memory[@model='virtio-mem']"):
        requested, current = module.find("target/requested"), module.find("target/current")
        yield MemoryModule(
            _module_bytes(module, source),
            0 if requested is None else parse_bytes(requested, source),
            0 if current is None else parse_bytes(current, source),
        )


def _module_bytes(module: Element, source: str) -> int:
    size = module.find("target/size")
    if size is None:
        raise HostDataError(source, "has a <memory> module without <size>")
    return parse_bytes(size, source)


def _parse_sizes(root: Element, source: str) -> dict[int, int]:
    """Return guest cell id -> bytes."""
    nodes: dict[int, int] = {}
    for index, cell in enumerate(root.iterfind("cpu/numa/cell")):
        # The size is in attributes here; build the element that `parse_bytes` expects.
        size = Element("memory", {"unit": cell.get("unit", "KiB")})
        size.text = cell.get("memory")
        number = parse_int(cell.get("id", str(index)), "<cell id>", source)
        if number in nodes:
            raise HostDataError(source, f"has two <cell> with id {number}")
        nodes[number] = parse_bytes(size, source)
    return nodes


def _parse_host_cells(root: Element, sets: CpuSets, source: str) -> dict[int | None, CpuSet]:
    """Return guest cell id -> host cells of its memory; key None applies to all other cells."""
    found: dict[int | None, CpuSet] = {}
    memory = root.find("numatune/memory")
    if memory is not None and memory.get("nodeset"):
        found[None] = sets.parse(memory.get("nodeset"), "<numatune>")
    for node in root.iterfind("numatune/memnode"):
        number = parse_int(node.get("cellid"), "<memnode cellid>", source)
        found[number] = sets.parse(node.get("nodeset"), "<memnode>")
    return found


def _parse_pages(root: Element, sets: CpuSets, source: str) -> dict[int | None, int]:
    """Return guest cell id -> huge page size in KiB; key None applies to all other cells."""
    huge = root.find("memoryBacking/hugepages")
    if huge is None:
        return {}
    pages = huge.findall("page")
    if not pages:
        return {None: DEFAULT_PAGE_KB}
    found: dict[int | None, int] = {}
    for page in pages:
        size_kb = parse_page_bytes(page, source) // 1024
        nodes = page.get("nodeset")
        numbers = [None] if nodes is None else sets.parse(nodes, "<page nodeset>")
        found |= dict.fromkeys(numbers, size_kb)
    return found
