"""Parse the capabilities document: processors, NUMA cells and supported guest types."""

import uuid as uuid_module
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from nodetracker.accounting.numa.cells import merge_overlapping_cells
from nodetracker.model.cpuset import MAX_CPU_ID, CpuSet, parse_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import MAX_BASE_PAGE_KB, NumaCell, NumaTopology, PagePool
from nodetracker.model.units import capacity_mib_from_bytes
from nodetracker.virt.libvirt.xml import parse_bytes, parse_document, parse_int, parse_page_bytes

SOURCE = "capabilities"
_MAX_SIBLINGS = 256  # no processor has more threads a core than 8

FreePages = Mapping[int, Mapping[int, int]]
"""Cell id -> page size in KiB -> number of free pages, as far as it is known."""


def parse_capabilities(text: str) -> Element:
    """Return the document, for the functions below."""
    return parse_document(text, "capabilities", SOURCE)


def parse_cpu_info(
    capabilities: Element,
    cpu_map: Sequence[bool],
    cpu_count: int,
    features: Sequence[str] = (),
) -> CpuInfo:
    """Build the processors of a host.

    The CPU map is used only if its number of online CPUs equals `cpu_count`:
    a hypervisor driver that simulates hosts returns the map of another machine.

    Args:
        cpu_map: CPU id -> whether it is online, from `virNodeGetCPUMap`; may be empty.
        cpu_count: number of online CPUs, from `virNodeGetInfo`.
        features: all features of the processor, including those that its model
            implies. When empty, only features named in the document are known.
    """
    rows = [_CpuRow(element) for element in _cpu_elements(capabilities)]
    online = _find_online(rows, cpu_map, cpu_count)
    present = {row.id for row in rows} | (set(range(len(cpu_map))) if cpu_map else set())
    present = present if online <= present else set(online)
    siblings = _group_siblings(rows, online)
    sockets = {row.socket for row in rows if row.id in online and row.socket is not None}
    host_cpu = capabilities.find("host/cpu")
    named = [item.get("name", "") for item in capabilities.iterfind("host/cpu/feature")]
    return CpuInfo(
        online=online,
        offline=frozenset(present) - online if sum(cpu_map) == cpu_count else frozenset(),
        sockets=len(sockets) or 1,
        cores=len(siblings),
        threads=max(len(group) for group in siblings),
        siblings=siblings,
        socket_of={
            row.id: row.socket for row in rows if row.id in online and row.socket is not None
        },
        architecture=_text(host_cpu, "arch"),
        model=_text(host_cpu, "model"),
        vendor=_text(host_cpu, "vendor"),
        flags=tuple(sorted({name for name in (*named, *features) if name})),
    )


def _find_online(rows: "Sequence[_CpuRow]", cpu_map: Sequence[bool], cpu_count: int) -> CpuSet:
    described = frozenset(row.id for row in rows if row.is_described)
    if sum(cpu_map) == cpu_count and cpu_count > 0:
        online = frozenset(cpu for cpu, is_online in enumerate(cpu_map) if is_online)
    else:
        online = described or frozenset(range(min(cpu_count, MAX_CPU_ID + 1)))
    if not online:
        raise HostDataError(SOURCE, "the host has no online CPU")
    return online


def parse_numa_topology(
    capabilities: Element, online: CpuSet, free_pages: FreePages
) -> NumaTopology:
    """Build the NUMA cells; without a topology in the document the result has none.

    Cells without memory or CPUs are kept; ids may have gaps. Cells that share
    a CPU are one cell.

    Args:
        online: CPUs that are online; others are left out of their cell.
        free_pages: from `virNodeGetFreePages`.

    Source: libvirt's formatcaps, host topology.
    """
    cells = [
        _parse_cell(element, online, free_pages)
        for element in capabilities.iterfind("host/topology/cells/cell")
    ]
    ids = [cell.id for cell in cells]
    if len(set(ids)) != len(ids):
        raise HostDataError(SOURCE, f"duplicate NUMA cell ids: {sorted(ids)}")
    topology = NumaTopology(tuple(sorted(cells, key=lambda cell: cell.id)))
    rows = [_CpuRow(element) for element in _cpu_elements(capabilities)]
    return merge_overlapping_cells(topology, _group_siblings(rows, online), SOURCE)


def list_huge_pages(capabilities: Element) -> dict[int, tuple[int, ...]]:
    """Return cell id -> sizes in KiB of the huge pages that it has, of cells that have some."""
    found = {
        parse_int(cell.get("id"), "cell id", SOURCE, MAX_CPU_ID): tuple(
            size for size, total in _parse_pages(cell) if total and size > MAX_BASE_PAGE_KB
        )
        for cell in capabilities.iterfind("host/topology/cells/cell")
    }
    return {cell_id: sizes for cell_id, sizes in sorted(found.items()) if sizes}


def parse_supported_instances(capabilities: Element) -> tuple[tuple[str, str, str], ...]:
    """Return the distinct (architecture, hypervisor type, vm mode) of guests that can be run."""
    found = {
        (arch.get("name", ""), domain.get("type", ""), (guest.findtext("os_type") or "").strip())
        for guest in capabilities.iterfind("guest")
        for arch in guest.iterfind("arch")
        for domain in arch.iterfind("domain")
    }
    return tuple(sorted(found))


def parse_host_uuid(capabilities: Element) -> str | None:
    """Return the uuid of the machine, None if it is missing, invalid, all zeros or all ones."""
    try:
        found = uuid_module.UUID((capabilities.findtext("host/uuid") or "").strip())
    except ValueError:
        return None
    return str(found) if 0 < found.int < 2**128 - 1 else None


class _CpuRow:
    """One ``<cpu>`` of the topology; an offline CPU has only an id."""

    def __init__(self, element: Element) -> None:
        self.id = parse_int(element.get("id"), "cpu id", SOURCE, MAX_CPU_ID)
        self.is_described = element.get("core_id") is not None
        socket = element.get("socket_id")
        self.socket = None if socket is None else parse_int(socket, "socket_id", SOURCE)
        try:
            self.siblings = parse_cpu_set(element.get("siblings", str(self.id)))
        except ValueError as error:
            raise HostDataError(SOURCE, f"siblings of cpu {self.id}: {error}") from error
        if len(self.siblings) > _MAX_SIBLINGS:
            raise HostDataError(SOURCE, f"cpu {self.id} has more than {_MAX_SIBLINGS} siblings")


def _cpu_elements(parent: Element) -> list[Element]:
    return parent.findall("host/topology/cells/cell/cpus/cpu")


def _group_siblings(rows: Sequence[_CpuRow], online: CpuSet) -> tuple[CpuSet, ...]:
    """Group online CPUs by core; a CPU without a row is a core by itself."""
    groups = {(row.siblings | {row.id}) & online for row in rows if row.id in online}
    known: CpuSet = frozenset().union(*groups)
    groups |= {frozenset({cpu}) for cpu in online - known}
    return tuple(sorted(groups, key=min))


def _parse_cell(element: Element, online: CpuSet, free_pages: FreePages) -> NumaCell:
    number = parse_int(element.get("id"), "cell id", SOURCE, MAX_CPU_ID)
    rows = [_CpuRow(item) for item in element.iterfind("cpus/cpu")]
    cpus = frozenset(row.id for row in rows) & online
    sockets = {row.socket for row in rows if row.id in cpus}
    distances = {
        parse_int(item.get("id"), "sibling id", SOURCE): parse_int(
            item.get("value"), "distance", SOURCE
        )
        for item in element.iterfind("distances/sibling")
    }
    memory = element.find("memory")
    free = free_pages.get(number, {})
    return NumaCell(
        id=number,
        cpus=cpus,
        memory_mb=0 if memory is None else capacity_mib_from_bytes(parse_bytes(memory, SOURCE)),
        siblings=_group_siblings(rows, cpus),
        pages=tuple(
            PagePool(size, total, in_use=max(0, total - free[size]) if size in free else None)
            for size, total in _parse_pages(element)
        ),
        socket=sockets.pop() if len(sockets) == 1 else None,
        distances=distances if all(value > 0 for value in distances.values()) else {},
    )


def _parse_pages(cell: Element) -> list[tuple[int, int]]:
    """Return page size in KiB and number of pages of each pool, in ascending size."""
    pools = {
        parse_page_bytes(item, SOURCE) // 1024: parse_int(item.text, "pages", SOURCE)
        for item in cell.iterfind("pages")
    }
    return sorted(pools.items())


def _text(element: Element | None, path: str) -> str:
    return "" if element is None else (element.findtext(path) or "").strip()
