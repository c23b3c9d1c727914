"""Evaluate whether a guest cell fits a host cell, with which page size, and pin its CPUs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nodetracker.model.amount_text import Role, render_mib
from nodetracker.model.cpuset import CpuSet
from nodetracker.model.numa import (
    CellUsage,
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    HostCell,
    NumaLimits,
    NumaRequest,
    PagePool,
    PageSize,
)
from nodetracker.model.units import KIB_PER_MIB, render_amount

Core = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PinnedCpus:
    """Host CPUs for the guest's pinned CPUs, in order, and those that must remain unused."""

    cpus: tuple[int, ...] = ()
    isolated: CpuSet = frozenset()


def usable_cores(cell: HostCell, taken: CpuSet, policy: CpuThreadPolicy) -> tuple[Core, ...]:
    """Return the free dedicated CPUs of a cell by core, as far as the policy can use them.

    ``require`` uses cores with at least two free threads, so that at most one
    guest CPU, the last, has no sibling of the same guest. ``isolate`` uses
    completely free cores: a thread that other guests share excludes the core,
    a thread that is unavailable to guests does not. Threads that the core has in
    other cells come last, to be kept free there.

    Args:
        taken: host CPUs that are already pinned or isolated, also those of the cell's
            split cores in other cells.
    """
    cores = []
    for group in _all_cores(cell):
        free = (group & cell.dedicated) - taken
        others: CpuSet = frozenset()
        if policy is CpuThreadPolicy.ISOLATE:
            others = _find_core(cell, group) - group
        is_whole = free == group & (cell.dedicated | cell.shared) and others.isdisjoint(
            taken | cell.shared_elsewhere
        )
        if (
            not free
            or (policy is CpuThreadPolicy.ISOLATE and not is_whole)
            or (policy is CpuThreadPolicy.REQUIRE and len(free) < 2)
        ):
            continue
        cores.append((*sorted(free), *sorted(others)))
    return tuple(cores)


def _find_core(cell: HostCell, group: CpuSet) -> CpuSet:
    """Return the whole core of a group of threads, with those in other cells."""
    return next((core for core in cell.split_cores if core & group), group)


def count_pinnable(cores: Sequence[Core], policy: CpuThreadPolicy) -> int:
    """Return the number of guest CPUs that can be pinned to `cores`."""
    if policy is CpuThreadPolicy.ISOLATE:
        return len(cores)
    return sum(len(core) for core in cores)


def pick_cpus(cores: Sequence[Core], count: int, policy: CpuThreadPolicy) -> PinnedCpus:
    """Choose `count` CPUs, at most `count_pinnable`; the result is deterministic.

    Threads of a core are used for the same guest cell if possible: cores with
    the most free threads are filled first, and the remaining CPUs use the
    smallest core that has enough threads. Isolated CPUs use the cores with
    the fewest threads.
    """
    if policy is CpuThreadPolicy.ISOLATE:
        chosen = sorted(cores, key=len)[:count]
        return PinnedCpus(
            tuple(core[0] for core in chosen),
            frozenset(cpu for core in chosen for cpu in core[1:]),
        )
    picked: list[int] = []
    skipped: list[Core] = []
    for core in sorted(cores, key=len, reverse=True):
        if len(core) <= count - len(picked):
            picked += core
        else:
            skipped.append(core)
    left = count - len(picked)
    if left:
        picked += min(skipped, key=len)[:left]
    return PinnedCpus(tuple(picked))


def prefer_cpus(
    cores: Sequence[Core], own: CpuSet, count: int, policy: CpuThreadPolicy
) -> Sequence[Core]:
    """Return the cores of a workload's own CPUs alone if `count` CPUs can be pinned to these.

    With ``isolate``, a core's own CPUs are before its others.
    """
    if policy is CpuThreadPolicy.ISOLATE:
        chosen = [
            tuple(sorted(core, key=lambda cpu: (cpu not in own, cpu)))
            for core in cores
            if not own.isdisjoint(core)
        ]
    else:
        found = (tuple(cpu for cpu in core if cpu in own) for core in cores)
        least = 2 if policy is CpuThreadPolicy.REQUIRE else 1
        chosen = [core for core in found if len(core) >= least]
    return chosen if count_pinnable(chosen, policy) >= count else cores


def _all_cores(cell: HostCell) -> tuple[CpuSet, ...]:
    """Return the cell's cores; a CPU without a known core is a separate one."""
    known = frozenset[int]().union(*cell.siblings)
    lone = sorted((cell.dedicated | cell.shared) - known)
    return cell.siblings + tuple(frozenset({cpu}) for cpu in lone)


_ROUNDING = 1e-9  # 100 x 0.29 is 28.999999999999996
_PINNABLE = {
    CpuThreadPolicy.PREFER: "free dedicated CPUs",
    CpuThreadPolicy.REQUIRE: "free dedicated CPUs with a free sibling",
    CpuThreadPolicy.ISOLATE: "free cores for isolated CPUs",
}


@dataclass(frozen=True, slots=True)
class CellFit:
    """Whether a guest cell fits a host cell.

    Attributes:
        page_size_kb: page size in KiB that it would get, None for memory that
            was not requested by page size.
        reasons: why it does not fit, with amounts; empty when it fits.
    """

    page_size_kb: int | None = None
    reasons: tuple[str, ...] = ()


def fit_cell(
    guest: GuestCell,
    request: NumaRequest,
    cell: HostCell,
    usage: CellUsage,
    limits: NumaLimits,
    held: CellUsage,
) -> CellFit:
    """Evaluate one guest cell on one host cell with its current usage.

    Whatever the limits, a guest cell never gets more than the host cell has.
    Dedicated CPUs, huge pages and memory requested by page size are never
    overcommitted, and neither is the memory of guests with pinned CPUs.

    Args:
        held: what the workload has of the host cell already; as much shared CPUs and
            ordinary memory fit even on a cell that is overcommitted.
    """
    reasons = _shared_reasons(guest, cell, usage, limits.cpu_allocation_ratio, held)
    reasons += _pinned_reasons(guest, cell, usage, request.cpu_thread_policy)
    if request.page_size is None:
        return CellFit(None, reasons + _memory_reasons(guest, request, cell, usage, limits, held))
    page_size_kb, page_reasons = _choose_pages(guest, request.page_size, cell, usage)
    return CellFit(page_size_kb, reasons + page_reasons)


def _shared_reasons(
    guest: GuestCell, cell: HostCell, usage: CellUsage, ratio: float | None, held: CellUsage
) -> tuple[str, ...]:
    total = len(cell.shared)
    if guest.vcpus > total:
        return (f"shared CPUs {total} < requested {guest.vcpus}",)
    if ratio is None or guest.vcpus <= held.shared_vcpus:
        return ()
    free = _times(total, ratio) - usage.shared_vcpus
    if guest.vcpus > free:
        return (
            f"free shared CPUs {free} ({total} x {render_amount(ratio)}) < requested {guest.vcpus}",
        )
    return ()


def _pinned_reasons(
    guest: GuestCell, cell: HostCell, usage: CellUsage, policy: CpuThreadPolicy
) -> tuple[str, ...]:
    if guest.pcpus == 0:
        return ()
    if not cell.dedicated:
        return (f"dedicated CPUs 0 < requested {guest.pcpus}",)
    free = count_pinnable(usable_cores(cell, usage.pinned_cpus, policy), policy)
    if guest.pcpus > free:
        return (
            f"{_PINNABLE[policy]} {free} (of {len(cell.dedicated)} dedicated)"
            f" < requested {guest.pcpus}",
        )
    return ()


def _memory_reasons(
    guest: GuestCell,
    request: NumaRequest,
    cell: HostCell,
    usage: CellUsage,
    limits: NumaLimits,
    held: CellUsage,
) -> tuple[str, ...]:
    """Evaluate memory that was not requested by page size."""
    total = cell.ordinary_memory_mb
    if guest.memory_mb > total:
        requested, most = _render_memory(guest.memory_mb, total)
        return (f"memory {most} < requested {requested}",)
    ratio = limits.ram_allocation_ratio if request.cpu_policy is CpuPolicy.SHARED else 1.0
    if ratio is None or guest.memory_mb <= held.ordinary_memory_mb(cell):
        return ()
    free = _times(total, ratio) - usage.ordinary_memory_mb(cell)
    if guest.memory_mb > free:
        requested, left, whole = _render_memory(guest.memory_mb, free, total)
        times = f"{whole} x {render_amount(ratio)}"
        return (f"free memory {left} ({times}) < requested {requested}",)
    return ()


def _render_memory(requested_mb: int, *free_mb: int) -> list[str]:
    """Return requested memory, and amounts beside it that it is more than, for people."""
    requested = (requested_mb, Role.REQUESTED)
    return [render_mib(*requested), *(render_mib(mb, Role.FREE, requested) for mb in free_mb)]


def _choose_pages(
    guest: GuestCell, requested: PageSize | int, cell: HostCell, usage: CellUsage
) -> tuple[int | None, tuple[str, ...]]:
    """Return the largest allowed page size that fits, or why none does."""
    reasons = []
    for pool in reversed(_allowed_pools(requested, cell)):
        reason = _pool_reason(guest.memory_mb, pool, cell, usage)
        if reason is None:
            return pool.size_kb, ()
        reasons.append(reason)
    wanted = f"{requested} KiB" if isinstance(requested, int) else f"size {requested}"
    return None, tuple(reasons) or (f"no pages of {wanted}",)


def _allowed_pools(requested: PageSize | int, cell: HostCell) -> tuple[PagePool, ...]:
    """Return the pools that a requested page size allows, in ascending size.

    As in Nova, ``any`` allows all sizes and the largest that fits is used.
    """
    if isinstance(requested, int):
        return tuple(pool for pool in cell.pages if pool.size_kb == requested)
    return {
        PageSize.SMALL: cell.small_pages,
        PageSize.LARGE: cell.huge_pages,
        PageSize.ANY: cell.pages,
    }[requested]


def _pool_reason(memory_mb: int, pool: PagePool, cell: HostCell, usage: CellUsage) -> str | None:
    count, rest = divmod(memory_mb * KIB_PER_MIB, pool.size_kb)
    if rest:
        memory = render_mib(memory_mb, Role.REQUESTED)
        return f"memory {memory} is not a multiple of {pool.size_kb} KiB pages"
    free = _free_pages(pool, cell, usage)
    if count > free:
        others = f", {pool.withheld} withheld" if pool.withheld else ""
        return (
            f"free pages of {pool.size_kb} KiB {free} (of {pool.total}{others}) < requested {count}"
        )
    return None


def _free_pages(pool: PagePool, cell: HostCell, usage: CellUsage) -> int:
    return pool.total - pool.reserved - usage.used_pages(cell, pool)


def measure_left(
    request: NumaRequest, cell: HostCell, usage: CellUsage, limits: NumaLimits
) -> tuple[int | None, int | None]:
    """Return how many CPUs, and MiB of the requested page size, a host cell has left.

    Pinned CPUs are counted if the request has any, else shared ones; None = unlimited.
    """
    cpus: int | None = None
    if request.pcpus:
        policy = request.cpu_thread_policy
        cpus = count_pinnable(usable_cores(cell, usage.pinned_cpus, policy), policy)
    elif limits.cpu_allocation_ratio is not None:
        cpus = _times(len(cell.shared), limits.cpu_allocation_ratio) - usage.shared_vcpus
    if request.page_size is not None:
        pools = _allowed_pools(request.page_size, cell)
        free_kb = sum(_free_pages(pool, cell, usage) * pool.size_kb for pool in pools)
        return cpus, free_kb // KIB_PER_MIB
    ratio = limits.ram_allocation_ratio if request.cpu_policy is CpuPolicy.SHARED else 1.0
    if ratio is None:
        return cpus, None
    return cpus, _times(cell.ordinary_memory_mb, ratio) - usage.ordinary_memory_mb(cell)


def _times(amount: int, ratio: float) -> int:
    return math.floor(amount * ratio + _ROUNDING)
