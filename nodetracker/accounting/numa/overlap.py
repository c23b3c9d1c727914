"""Treat a host as one NUMA cell when its cells cannot be distinguished by their CPUs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.host import HostProblem
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.model.pci import PciDevice


def merge_overlapping_cells(
    topology: NumaTopology, cores: Sequence[CpuSet], source: str
) -> NumaTopology:
    """Return the topology, or one cell with everything if two cells share a CPU.

    Linux lists a CPU in several cells when they are emulated (``numa=fake``).
    Claims cannot be placed on one of them then.

    Args:
        cores: the host's online CPUs by core; a core may be in two cells.
        source: where the topology was read, for the problem.
    """
    shared = frozenset[int]().union(
        *(one.cpus & other.cpus for one, other in combinations(topology.cells, 2))
    )
    if not shared:
        return topology
    text = f"several cells have CPU {render_cpu_set(shared)}; the node is treated as one cell"
    return NumaTopology(
        (_merge(topology.cells, cores),), (*topology.problems, HostProblem(source, text))
    )


def locate_devices(devices: Iterable[PciDevice], cell_ids: Sequence[int]) -> tuple[PciDevice, ...]:
    """Return devices with their NUMA cells: on a host of one cell, all are in that cell.

    The cell that the kernel names may have been merged. A device whose cell is
    unknown is unchanged.

    Args:
        cell_ids: ids of the host's cells.
    """
    if len(cell_ids) != 1:
        return tuple(devices)
    (only,) = cell_ids
    return tuple(
        device if device.numa_node in {None, only} else replace(device, numa_node=only)
        for device in devices
    )


def _merge(cells: tuple[NumaCell, ...], cores: Sequence[CpuSet]) -> NumaCell:
    totals: Counter[int] = Counter()
    reserved: Counter[int] = Counter()
    for pool in (pool for cell in cells for pool in cell.pages):
        totals[pool.size_kb] += pool.total
        reserved[pool.size_kb] += pool.reserved
    cpus = frozenset[int]().union(*(cell.cpus for cell in cells))
    sockets = {cell.socket for cell in cells if cell.cpus}
    return NumaCell(
        id=min(cell.id for cell in cells),
        cpus=cpus,
        memory_mb=sum(cell.memory_mb for cell in cells),
        siblings=tuple(sorted((core & cpus for core in cores if core & cpus), key=min)),
        pages=tuple(PagePool(size, totals[size], reserved[size]) for size in sorted(totals)),
        socket=sockets.pop() if len(sockets) == 1 else None,
    )
