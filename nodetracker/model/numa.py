"""NUMA cells and their page pools, addressed by id and never by position."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.host import HostProblem


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one size in one cell; `reserved` ones are unavailable to guests."""

    size_kb: int
    total: int
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class NumaCell:
    """One NUMA cell.

    Attributes:
        id: the kernel's node number; ids may have gaps.
        cpus: online CPUs of the cell; empty for a memory-only cell.
        memory_mb: MiB as reported by the cell; 0 for a CPU-only cell.
        siblings: online CPUs of the cell grouped by core.
        pages: pools in ascending page size; the smallest is the cell's memory
            outside huge pages.
        socket: physical package of its CPUs, None for none or several.
        distances: cell id -> relative latency, 10 is local; empty when unknown.
    """

    id: int
    cpus: CpuSet
    memory_mb: int
    siblings: tuple[CpuSet, ...] = ()
    pages: tuple[PagePool, ...] = ()
    socket: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NumaTopology:
    """All cells of a host in ascending id; empty when the kernel has no NUMA directory.

    Attributes:
        problems: files that could not be used.
    """

    cells: tuple[NumaCell, ...] = ()
    problems: tuple[HostProblem, ...] = ()

    @property
    def memory_mb(self) -> int:
        """Total memory of the cells in MiB."""
        return sum(cell.memory_mb for cell in self.cells)

    def cell(self, cell_id: int) -> NumaCell | None:
        """Return the cell with this id, or None."""
        return next((cell for cell in self.cells if cell.id == cell_id), None)
