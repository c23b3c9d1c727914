"""NUMA cells of a host as available to workloads, and their usage."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.numa import PagePool
from nodetracker.model.units import KIB_PER_MIB, capacity_mib_from_kib


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
            operator reserves. The smallest pool is ordinary memory, the others
            are huge pages.
        networks: names of the networks with an interface at this cell.
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
        """All CPUs of the cell, whether workloads may use them or not."""
        return (self.shared | self.dedicated).union(*self.siblings)

    @property
    def huge_pages(self) -> tuple[PagePool, ...]:
        """All pools but the smallest."""
        return self.pages[1:]

    @property
    def ordinary_memory_mb(self) -> int:
        """MiB that are neither huge pages nor reserved."""
        if not self.pages:
            return self.memory_mb
        pool = self.pages[0]
        return capacity_mib_from_kib(max(0, pool.total - pool.reserved) * pool.size_kb)


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
        """Return the number of used pages of a pool of `cell`.

        Ordinary memory is accounted in MiB, so it is converted to pages,
        whether or not it was requested by page size.
        """
        if pool in cell.huge_pages:
            return self.pages.get(pool.size_kb, 0)
        return -(-self.ordinary_memory_mb(cell) * KIB_PER_MIB // pool.size_kb)
