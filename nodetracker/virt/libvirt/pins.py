"""Map a domain's affinity to the host's NUMA cells."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.guest import GuestPins
from nodetracker.model.numa import CellPlacement, NumaTopology
from nodetracker.model.units import usage_mib_from_bytes
from nodetracker.virt.libvirt.domain import Domain
from nodetracker.virt.libvirt.memory import MemoryPart


def derive_pins(domain: Domain, topology: NumaTopology) -> GuestPins:
    """Return the cells, CPUs and devices to which a domain is bound.

    A vCPU that may run on only one host CPU is pinned to it; a vCPU whose CPUs
    are all in one cell floats in that cell. CPUs pinned by an emulator or I/O
    thread only are isolated. Memory is in the cell that ``numatune`` names, or
    else in the cell of all the vCPUs; a cell with several page sizes has one
    placement for each. vCPUs and memory that may be in any cell are left out.

    Args:
        topology: the host's cells; without cells only devices are returned.
    """
    cell_of = {cpu: cell.id for cell in topology.cells for cpu in cell.cpus}
    pins: dict[int, dict[int, int]] = defaultdict(dict)
    floating: dict[int, int] = defaultdict(int)
    for vcpu in sorted(set(range(domain.vcpus_max)) - domain.unplugged):
        cpus = domain.affinity.get(vcpu, frozenset())
        cells = {cell_of[cpu] for cpu in cpus if cpu in cell_of}
        if len(cells) != 1:
            continue
        if len(cpus) == 1:
            pins[cells.pop()][vcpu] = min(cpus)
        else:
            floating[cells.pop()] += 1
    helpers: dict[int, set[int]] = defaultdict(set)
    vcpu_cpus = {cpu for cell_pins in pins.values() for cpu in cell_pins.values()}
    for cpu in domain.helper_cpus - vcpu_cpus:
        if cpu in cell_of:
            helpers[cell_of[cpu]].add(cpu)
    parts = domain.memory or (MemoryPart(domain.memory_bytes),)
    is_memory_bound = any(part.host_cells is not None or part.page_kb for part in parts)
    if not (pins or floating or helpers or is_memory_bound):
        return GuestPins((), domain.devices)
    placed = sum(map(len, pins.values())) + sum(floating.values())
    home = {*pins, *floating} if placed == domain.vcpus else set[int]()
    memory = _place_memory(parts, topology, frozenset(home))
    placements = [
        placement
        for cell in sorted({*pins, *floating, *helpers, *memory})
        for placement in _place_in_cell(
            CellPlacement(
                host_cell=cell,
                vcpus=floating.get(cell, 0),
                pins=pins.get(cell, {}),
                isolated=frozenset(helpers.get(cell, ())),
            ),
            memory.get(cell, {}),
        )
    ]
    return GuestPins(tuple(placements), domain.devices)


def _place_in_cell(
    cpus: CellPlacement, memory: Mapping[int | None, tuple[int, int]]
) -> Iterator[CellPlacement]:
    """Yield a cell's placements: one for each page size, the first with the CPUs."""
    sizes = sorted(memory.items(), key=lambda item: item[0] or 0) or [(None, (0, 0))]
    for index, (page_kb, (size_bytes, pages)) in enumerate(sizes):
        placement = cpus if index == 0 else CellPlacement(cpus.host_cell)
        yield replace(
            placement,
            memory_mb=usage_mib_from_bytes(size_bytes),
            page_size_kb=page_kb,
            pages=pages,
        )


def _place_memory(
    parts: Iterable[MemoryPart], topology: NumaTopology, home: CpuSet
) -> dict[int, dict[int | None, tuple[int, int]]]:
    """Return the memory whose cell is certain.

    Returns:
        Host cell -> page size in KiB (None for ordinary memory) -> (bytes, pages).
    """
    known = {cell.id for cell in topology.cells}
    default_cells = frozenset(known) if len(known) == 1 else home
    found: dict[int, dict[int | None, tuple[int, int]]] = defaultdict(dict)
    for part in parts:
        cells = default_cells if part.host_cells is None else part.host_cells
        if len(cells) == 1 and cells <= known:
            sizes = found[min(cells)]
            size_bytes, pages = sizes.get(part.page_kb, (0, 0))
            part_pages = -(-part.size_bytes // (part.page_kb * 1024)) if part.page_kb else 0
            sizes[part.page_kb] = size_bytes + part.size_bytes, pages + part_pages
    return dict(found)
