"""NUMA: cells of CPUs and memory, addressed by id and never by position."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one size in one cell; `reserved` are the host's own, never a guest's."""

    size_kb: int
    total: int
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class NumaCell:
    """One NUMA cell.

    Attributes:
        id: the kernel's node number; ids may have gaps.
        cpus: online CPUs of the cell; empty for a memory-only cell.
        memory_mb: MiB as the cell itself says; 0 for a cell of CPUs alone.
        siblings: online CPUs of the cell grouped by core.
        pages: pools in ascending page size; the smallest is what is left of
            the cell's memory after the huge pages.
        socket: physical package of its CPUs, None when there is none or several.
        distances: cell id -> relative latency, 10 is local; empty when the
            kernel does not tell.
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
    """All cells of a host in ascending id; empty when the kernel has no NUMA directory."""

    cells: tuple[NumaCell, ...] = ()

    @property
    def memory_mb(self) -> int:
        """The sum of what the cells say, in MiB."""
        return sum(cell.memory_mb for cell in self.cells)

    def cell(self, cell_id: int) -> NumaCell | None:
        """Return the cell with this id, or None."""
        return next((cell for cell in self.cells if cell.id == cell_id), None)
