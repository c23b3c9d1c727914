"""Says where a domain is bound to, in the terms of the host's NUMA cells."""

from collections import defaultdict

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.guest import GuestPins
from nodetracker.model.numa import NumaTopology
from nodetracker.model.numa_placement import CellPlacement
from nodetracker.units import usage_mib_from_bytes
from nodetracker.virt.libvirt.domain import Domain


def bind_domain(domain: Domain, topology: NumaTopology) -> GuestPins:
    """Return what a domain is bound to.

    A vCPU that may run on one host CPU alone is pinned there; one whose CPUs
    are all of one cell floats in it. Memory is where ``numatune`` puts it, or
    else where all the vCPUs are. What may be anywhere counts nowhere.

    Args:
        topology: the host's cells; without any only devices are told.
    """
    cell_of = {cpu: cell.id for cell in topology.cells for cpu in cell.cpus}
    pins: dict[int, dict[int, int]] = defaultdict(dict)
    floating: dict[int, int] = defaultdict(int)
    for vcpu in range(domain.vcpus):
        cpus = domain.affinity.get(vcpu, frozenset())
        cells = {cell_of[cpu] for cpu in cpus if cpu in cell_of}
        if len(cells) != 1:
            continue
        if len(cpus) == 1:
            pins[cells.pop()][vcpu] = min(cpus)
        else:
            floating[cells.pop()] += 1
    placed = sum(map(len, pins.values())) + sum(floating.values())
    home = {*pins, *floating} if placed == domain.vcpus else set[int]()
    memory = _place_memory(domain, topology, frozenset(home))
    is_bound = bool(pins or floating or domain.memory_nodes or domain.page_kb)
    cells = {*pins, *floating, *memory} if is_bound else set()
    return GuestPins(
        tuple(
            CellPlacement(
                host_cell=cell,
                vcpus=floating.get(cell, 0),
                memory_mb=usage_mib_from_bytes(memory.get(cell, 0)),
                page_size_kb=domain.page_kb,
                pages=-(-memory.get(cell, 0) // (domain.page_kb * 1024)) if domain.page_kb else 0,
                pins=pins.get(cell, {}),
            )
            for cell in sorted(cells)
        ),
        domain.devices,
    )


def _place_memory(domain: Domain, topology: NumaTopology, home: CpuSet) -> dict[int, int]:
    """Return host cell -> bytes, of the memory of which the cell is certain."""
    known = {cell.id for cell in topology.cells}
    only = frozenset(known) if len(known) == 1 else home
    everywhere = domain.memory_nodes.get(None, only)
    parts: dict[int | None, int] = {
        number: node.memory_bytes for number, node in domain.nodes.items()
    }
    found: dict[int, int] = defaultdict(int)
    parts = parts or {None: domain.memory_bytes}
    for number, size in parts.items():
        cells = domain.memory_nodes.get(number, everywhere)
        if len(cells) == 1 and cells <= known:
            found[min(cells)] += size
    return dict(found)
