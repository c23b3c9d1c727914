"""What a claim asks of NUMA: guest cells, how their CPUs are bound, the size of their pages."""

import enum
from dataclasses import dataclass

MAX_GUEST_CELLS = 128
"""QEMU makes no more cells for a guest."""


class CpuPolicy(enum.StrEnum):
    """Where a workload's CPUs run: on shared ones, each on its own, or some of both."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    MIXED = "mixed"


class CpuThreadPolicy(enum.StrEnum):
    """How pinned CPUs use the threads of a core: together if it can be, never, or always."""

    PREFER = "prefer"
    ISOLATE = "isolate"
    REQUIRE = "require"


class PageSize(enum.StrEnum):
    """A page size by its place among those that a host cell has."""

    SMALL = "small"
    LARGE = "large"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class GuestCell:
    """One cell of a workload: CPUs that float, CPUs that are pinned, MiB of memory."""

    vcpus: int
    pcpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class NumaRequest:
    """What a workload asks of NUMA.

    Attributes:
        cells: at least one, each with at least one CPU.
        page_size: a name, a size in KiB, or None: ordinary memory, which
            shared CPUs' guests may overcommit.
        networks: names of networks that its interfaces are on; those that the
            host has at some cells must be at one of the chosen.
    """

    cells: tuple[GuestCell, ...]
    cpu_policy: CpuPolicy = CpuPolicy.SHARED
    cpu_thread_policy: CpuThreadPolicy = CpuThreadPolicy.PREFER
    page_size: PageSize | int | None = None
    networks: tuple[str, ...] = ()

    @property
    def vcpus(self) -> int:
        """CPUs that float, of all cells."""
        return sum(cell.vcpus for cell in self.cells)

    @property
    def pcpus(self) -> int:
        """CPUs that are pinned, of all cells."""
        return sum(cell.pcpus for cell in self.cells)


@dataclass(frozen=True, slots=True)
class NumaLimits:
    """How far shared CPUs and ordinary memory of one host cell may be promised.

    None = as far as anybody asks: only what one guest cell gets is bounded.
    """

    cpu_allocation_ratio: float | None = None
    ram_allocation_ratio: float | None = None
