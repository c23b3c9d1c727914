"""NUMA cells: those of a machine, what workloads may use and use of them, request, and get.

Cells are addressed by the kernel's id and never by position, as ids may have gaps.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.host import HostProblem
from nodetracker.model.units import KIB_PER_MIB, capacity_mib_from_kib


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one size in one cell.

    Attributes:
        reserved: unavailable to guests.
        in_use: those that are not free, whoever has them; None = unknown, as of
            ordinary memory.
        withheld: used beyond what is assigned, see `nodetracker.accounting.numa.pages`.
    """

    size_kb: int
    total: int
    reserved: int = 0
    in_use: int | None = None
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class ReservedPages:
    """Pages of one cell and size that are reserved for the host."""

    cell: int
    size_kb: int
    count: int


MAX_BASE_PAGE_KB = 64
"""Largest page size of a kernel's ordinary memory: 4 KiB, and 16 or 64 KiB on some machines."""


def count_small(sizes_kb: Sequence[int]) -> int:
    """Return how many of a cell's pools are its ordinary memory: the first, or none is named.

    Args:
        sizes_kb: page sizes of all pools, ascending.

    >>> count_small([4, 2048]), count_small([2048]), count_small([])
    (1, 0, 0)
    """
    return int(bool(sizes_kb) and sizes_kb[0] <= MAX_BASE_PAGE_KB)


@dataclass(frozen=True, slots=True)
class NumaCell:
    """One NUMA cell.

    Attributes:
        id: the kernel's node number; ids may have gaps.
        cpus: online CPUs of the cell; empty for a memory-only cell.
        memory_mb: MiB as reported by the cell; 0 for a CPU-only cell.
        siblings: online CPUs of the cell grouped by core.
        pages: pools in ascending page size; see `count_small`.
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
        default_page_kb: size of huge pages where a guest names none, in KiB.
        committed_pages: size in KiB -> huge pages of the machine that are free and that the kernel
            has committed to a program or guest, which has not touched them yet.
    """

    cells: tuple[NumaCell, ...] = ()
    problems: tuple[HostProblem, ...] = ()
    default_page_kb: int = 2048
    committed_pages: Mapping[int, int] = field(default_factory=dict)

    @property
    def memory_mb(self) -> int:
        """Total memory of the cells in MiB."""
        return sum(cell.memory_mb for cell in self.cells)

    def cell(self, cell_id: int) -> NumaCell | None:
        """Return the cell with this id, or None."""
        return next((cell for cell in self.cells if cell.id == cell_id), None)


@dataclass(frozen=True, slots=True)
class HostCell:
    """The resources of one NUMA cell that workloads may use.

    Attributes:
        id: the kernel's node number; ids may have gaps.
        shared: CPUs shared by workloads; may be empty.
        dedicated: CPUs that may be pinned; empty without ``cpu_dedicated_set``.
        memory_mb: MiB of the cell including its huge pages; may be 0.
        siblings: the cell's CPUs grouped by core; a CPU without a group is a
            separate core.
        pages: pools in ascending page size; `reserved` includes what the
            operator reserves.
        networks: names of the networks with an interface at this cell.
        split_cores: the cores with threads here and in other cells, as far as guests may use
            them.
        shared_elsewhere: threads of these that guests share in other cells.
    """

    id: int
    shared: CpuSet
    dedicated: CpuSet
    memory_mb: int
    siblings: tuple[CpuSet, ...] = ()
    pages: tuple[PagePool, ...] = ()
    networks: frozenset[str] = frozenset()
    split_cores: tuple[CpuSet, ...] = ()
    shared_elsewhere: CpuSet = frozenset()

    @property
    def cpus(self) -> CpuSet:
        """All CPUs of the cell, whether workloads may use them or not."""
        return (self.shared | self.dedicated).union(*self.siblings)

    @property
    def small_pages(self) -> tuple[PagePool, ...]:
        """The pool of ordinary memory if the cell names it."""
        return self.pages[: self._count_small]

    @property
    def huge_pages(self) -> tuple[PagePool, ...]:
        """All other pools."""
        return self.pages[self._count_small :]

    @property
    def _count_small(self) -> int:
        return count_small([pool.size_kb for pool in self.pages])

    @property
    def ordinary_memory_mb(self) -> int:
        """MiB that are neither huge pages nor reserved."""
        for pool in self.small_pages:
            return capacity_mib_from_kib(max(0, pool.total - pool.reserved) * pool.size_kb)
        huge_kb = sum(pool.size_kb * pool.total for pool in self.huge_pages)
        return capacity_mib_from_kib(max(0, self.memory_mb * KIB_PER_MIB - huge_kb))


@dataclass(frozen=True, slots=True)
class CellUsage:
    """The usage of one host cell by workloads.

    Attributes:
        pinned_cpus: host CPUs that are pinned, or blocked as siblings of isolated ones.
        shared_vcpus: virtual CPUs on the shared CPUs.
        memory_mb: MiB of any page size.
        pages: page size in KiB -> pages that were requested by size.
    """

    pinned_cpus: CpuSet = frozenset()
    shared_vcpus: int = 0
    memory_mb: int = 0
    pages: Mapping[int, int] = field(default_factory=dict)

    def ordinary_memory_mb(self, cell: HostCell) -> int:
        """Return the used MiB that are not on huge pages of `cell`."""
        huge_kb = sum(pool.size_kb * self.pages.get(pool.size_kb, 0) for pool in cell.huge_pages)
        return self.memory_mb - capacity_mib_from_kib(huge_kb)

    def used_pages(self, cell: HostCell, pool: PagePool) -> int:
        """Return the number of used pages of a pool of `cell`, withheld ones included.

        Ordinary memory is accounted in MiB, so it is converted to pages,
        whether or not it was requested by page size.
        """
        if pool in cell.huge_pages:
            return self.pages.get(pool.size_kb, 0) + pool.withheld
        return -(-self.ordinary_memory_mb(cell) * KIB_PER_MIB // pool.size_kb)


MAX_GUEST_CELLS = 128
"""QEMU's limit of cells per guest."""


class CpuPolicy(enum.StrEnum):
    """Whether a workload's CPUs run on shared CPUs, on dedicated ones, or on both."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    MIXED = "mixed"


class CpuThreadPolicy(enum.StrEnum):
    """Whether pinned CPUs share a core's threads: if possible, never, or always."""

    PREFER = "prefer"
    ISOLATE = "isolate"
    REQUIRE = "require"


class PageSize(enum.StrEnum):
    """A page size relative to those of a host cell."""

    SMALL = "small"
    LARGE = "large"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class GuestCell:
    """One cell of a workload: shared CPUs, pinned CPUs and memory in MiB."""

    vcpus: int
    pcpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class NumaRequest:
    """A workload's requirements on NUMA cells.

    Attributes:
        cells: at least one, each with at least one CPU.
        page_size: a name, a size in KiB, or None for ordinary memory, which
            guests with shared CPUs may overcommit.
        networks: names of networks; each that the host has at some cells must
            be at one of the chosen cells.
    """

    cells: tuple[GuestCell, ...]
    cpu_policy: CpuPolicy = CpuPolicy.SHARED
    cpu_thread_policy: CpuThreadPolicy = CpuThreadPolicy.PREFER
    page_size: PageSize | int | None = None
    networks: tuple[str, ...] = ()

    @property
    def vcpus(self) -> int:
        """Number of shared CPUs of all cells."""
        return sum(cell.vcpus for cell in self.cells)

    @property
    def pcpus(self) -> int:
        """Number of pinned CPUs of all cells."""
        return sum(cell.pcpus for cell in self.cells)


def may_use_huge_pages(request: NumaRequest | None) -> bool:
    """Return whether a claim may get huge pages: none without a page size, or with small ones."""
    return request is not None and request.page_size not in (None, PageSize.SMALL)


@dataclass(frozen=True, slots=True)
class NumaLimits:
    """Limits of overcommitting the shared CPUs and ordinary memory of a host cell.

    None = unlimited overcommit; a single guest cell is still limited to the
    size of the host cell.
    """

    cpu_allocation_ratio: float | None = None
    ram_allocation_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class CellAssignment:
    """The assignment of one guest cell to a host cell.

    Attributes:
        host_cell: id of the host's cell.
        vcpus: guest CPUs that run on the cell's shared CPUs.
        memory_mb: MiB of any page size.
        page_size_kb: page size in KiB, None for memory that was not requested
            by page size.
        pages: number of pages, 0 without a page size.
        pins: guest CPU -> host CPU. Guest CPUs are numbered from 0 across all
            cells; in each cell the shared ones come first.
        isolated: host CPUs that must remain unused as siblings of a pinned one.
    """

    host_cell: int
    vcpus: int = 0
    memory_mb: int = 0
    page_size_kb: int | None = None
    pages: int = 0
    pins: Mapping[int, int] = field(default_factory=dict)
    isolated: CpuSet = frozenset()

    @property
    def uses_resources(self) -> bool:
        """Whether the assignment uses any resource of the host cell."""
        return bool(self.vcpus or self.memory_mb or self.pages or self.exclusive_cpus)

    @property
    def exclusive_cpus(self) -> CpuSet:
        """Host CPUs that no other guest may be pinned to."""
        return frozenset(self.pins.values()) | self.isolated


@dataclass(frozen=True, slots=True)
class NumaAssignment:
    """The assignment of a workload's cells, in the order of the request."""

    cells: tuple[CellAssignment, ...]
