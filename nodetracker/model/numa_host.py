"""What a host's NUMA cells offer to workloads, and how much of it is promised."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.cpuset import CpuSet
from nodetracker.model.numa import PagePool
from nodetracker.units import KIB_PER_MIB, capacity_mib_from_kib


@dataclass(frozen=True, slots=True)
class HostCell:
    """One NUMA cell as workloads may use it.

    Attributes:
        id: the kernel's node number; ids may have gaps.
        shared: CPUs on which workloads float; empty for none.
        dedicated: CPUs that may be pinned; empty without ``cpu_dedicated_set``.
        memory_mb: MiB of the cell with all its huge pages; 0 for none.
        siblings: the cell's CPUs grouped by core; one that no group has is a
            core by itself.
        pages: pools in ascending page size, `reserved` with what the operator
            keeps. The smallest is ordinary memory, the others are huge pages.
        networks: names of the networks whose interfaces are at this cell.
    """

    id: int
    shared: CpuSet
    dedicated: CpuSet
    memory_mb: int
    siblings: tuple[CpuSet, ...] = ()
    pages: tuple[PagePool, ...] = ()
    networks: frozenset[str] = frozenset()

    @property
    def cpus(self) -> CpuSet:
        """All CPUs of the cell, offered or not."""
        return (self.shared | self.dedicated).union(*self.siblings)

    @property
    def huge_pages(self) -> tuple[PagePool, ...]:
        """All pools but the smallest."""
        return self.pages[1:]

    @property
    def ordinary_memory_mb(self) -> int:
        """MiB that are no huge pages and not the host's own."""
        if not self.pages:
            return self.memory_mb
        pool = self.pages[0]
        return capacity_mib_from_kib(max(0, pool.total - pool.reserved) * pool.size_kb)


@dataclass(frozen=True, slots=True)
class CellUsage:
    """What is promised of one host cell.

    Attributes:
        pinned_cpus: host CPUs that are pinned, or kept free for an isolated one.
        shared_vcpus: virtual CPUs that float on the shared ones.
        memory_mb: MiB of any page size.
        pages: page size in KiB -> pages that were asked by their size.
    """

    pinned_cpus: CpuSet = frozenset()
    shared_vcpus: int = 0
    memory_mb: int = 0
    pages: Mapping[int, int] = field(default_factory=dict)

    def ordinary_memory_mb(self, cell: HostCell) -> int:
        """Return the promised MiB that are not on huge pages of `cell`."""
        huge_kb = sum(pool.size_kb * self.pages.get(pool.size_kb, 0) for pool in cell.huge_pages)
        return self.memory_mb - capacity_mib_from_kib(huge_kb)

    def used_pages(self, cell: HostCell, pool: PagePool) -> int:
        """Return how many pages of a pool of `cell` are promised.

        Ordinary memory is promised in MiB, so it is counted in pages that it
        needs, whether or not it was asked by page size.
        """
        if pool in cell.huge_pages:
            return self.pages.get(pool.size_kb, 0)
        return -(-self.ordinary_memory_mb(cell) * KIB_PER_MIB // pool.size_kb)
