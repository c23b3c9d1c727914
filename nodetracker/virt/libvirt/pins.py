"""Says where a domain is bound to, in the terms of the host's NUMA cells."""

from collections import defaultdict
from collections.abc import Iterable

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.guest import GuestPins
from nodetracker.model.numa import NumaTopology
from nodetracker.model.numa_placement import CellPlacement
from nodetracker.units import usage_mib_from_bytes
from nodetracker.virt.libvirt.domain import Domain
from nodetracker.virt.libvirt.memory import MemoryPart


def derive_pins(domain: Domain, topology: NumaTopology) -> GuestPins:
    """Return what a domain is bound to.

    A vCPU that may run on one host CPU alone is pinned there; one whose CPUs
    are all of one cell floats in it. A CPU that an emulator or I/O thread has
    to itself stays empty beside them. Memory is where ``numatune`` puts it, or
    else where all the vCPUs are; a cell with pages of several sizes stands
    once for each. What may be anywhere counts nowhere.

    Args:
        topology: the host's cells; without any only devices are told.
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
    own = {cpu for cell_pins in pins.values() for cpu in cell_pins.values()}
    for cpu in domain.helper_cpus - own:
        if cpu in cell_of:
            helpers[cell_of[cpu]].add(cpu)
    parts = domain.memory or (MemoryPart(domain.memory_bytes),)
    is_memory_bound = any(part.host_cells is not None or part.page_kb for part in parts)
    if not (pins or floating or helpers or is_memory_bound):
        return GuestPins((), domain.devices)
    placed = sum(map(len, pins.values())) + sum(floating.values())
    home = {*pins, *floating} if placed == domain.vcpus else set[int]()
    memory = _place_memory(parts, topology, frozenset(home))
    placements = []
    for cell in sorted({*pins, *floating, *helpers, *memory}):
        sizes = sorted(memory.get(cell, {None: (0, 0)}).items(), key=lambda item: item[0] or 0)
        for index, (page_kb, (size_bytes, pages)) in enumerate(sizes):
            is_first = index == 0
            placements.append(
                CellPlacement(
                    host_cell=cell,
                    vcpus=floating.get(cell, 0) if is_first else 0,
                    memory_mb=usage_mib_from_bytes(size_bytes),
                    page_size_kb=page_kb,
                    pages=pages,
                    pins=pins.get(cell, {}) if is_first else {},
                    isolated=frozenset(helpers.get(cell, ()) if is_first else ()),
                )
            )
    return GuestPins(tuple(placements), domain.devices)


def _place_memory(
    parts: Iterable[MemoryPart], topology: NumaTopology, home: CpuSet
) -> dict[int, dict[int | None, tuple[int, int]]]:
    """Return the memory of which the cell is certain.

    Returns:
        Host cell -> KiB of its pages, None for ordinary memory -> bytes and pages.
    """
    known = {cell.id for cell in topology.cells}
    elsewhere = frozenset(known) if len(known) == 1 else home
    found: dict[int, dict[int | None, tuple[int, int]]] = defaultdict(dict)
    for part in parts:
        cells = elsewhere if part.host_cells is None else part.host_cells
        if len(cells) == 1 and cells <= known:
            sizes = found[min(cells)]
            size_bytes, pages = sizes.get(part.page_kb, (0, 0))
            own = -(-part.size_bytes // (part.page_kb * 1024)) if part.page_kb else 0
            sizes[part.page_kb] = size_bytes + part.size_bytes, pages + own
    return dict(found)
