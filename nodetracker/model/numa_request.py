"""NUMA requests of claims: guest cells, CPU policies and page sizes."""

import enum
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class NumaLimits:
    """Limits of overcommitting the shared CPUs and ordinary memory of a host cell.

    None = unlimited overcommit; a single guest cell is still limited to the
    size of the host cell.
    """

    cpu_allocation_ratio: float | None = None
    ram_allocation_ratio: float | None = None
