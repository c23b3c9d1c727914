"""Chooses the host CPUs of pinned guest CPUs, by core and thread policy."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodetracker.cpuset import CpuSet
from nodetracker.model.numa_host import HostCell
from nodetracker.model.numa_request import CpuThreadPolicy

Core = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PinnedCpus:
    """Host CPUs for the guest's pinned ones, in order, and those that stay empty for them."""

    cpus: tuple[int, ...] = ()
    isolated: CpuSet = frozenset()


def usable_cores(cell: HostCell, taken: CpuSet, policy: CpuThreadPolicy) -> tuple[Core, ...]:
    """Return the free dedicated CPUs of a cell by core, where the policy can use them.

    ``require`` uses cores with two free threads or more, so that at most one
    guest CPU, the last, is without a sibling of its guest. ``isolate`` uses
    cores that are free as a whole: a thread on which other guests float
    spoils a core; one that is offered to no guest does not.

    Args:
        taken: host CPUs that are pinned or kept free already.
    """
    cores = []
    for group in _all_cores(cell):
        free = (group & cell.dedicated) - taken
        is_whole = free == group & (cell.dedicated | cell.shared)
        if (
            not free
            or (policy is CpuThreadPolicy.ISOLATE and not is_whole)
            or (policy is CpuThreadPolicy.REQUIRE and len(free) < 2)
        ):
            continue
        cores.append(tuple(sorted(free)))
    return tuple(cores)


def count_pinnable(cores: Sequence[Core], policy: CpuThreadPolicy) -> int:
    """Return how many guest CPUs `cores` can take."""
    if policy is CpuThreadPolicy.ISOLATE:
        return len(cores)
    return sum(len(core) for core in cores)


def pick_cpus(cores: Sequence[Core], count: int, policy: CpuThreadPolicy) -> PinnedCpus:
    """Choose `count` CPUs, no more than `count_pinnable`; the same question, the same answer.

    Threads of one core go to one guest cell as far as they can: cores with
    the most free threads are filled first, and what is left goes to the core
    that it fills best. Isolated CPUs go to the cores with the fewest threads.
    """
    if policy is CpuThreadPolicy.ISOLATE:
        chosen = sorted(cores, key=len)[:count]
        return PinnedCpus(
            tuple(core[0] for core in chosen),
            frozenset(cpu for core in chosen for cpu in core[1:]),
        )
    picked: list[int] = []
    passed: list[Core] = []
    for core in sorted(cores, key=len, reverse=True):
        if len(core) <= count - len(picked):
            picked += core
        else:
            passed.append(core)
    left = count - len(picked)
    if left:
        picked += min(passed, key=len)[:left]
    return PinnedCpus(tuple(picked))


def _all_cores(cell: HostCell) -> tuple[CpuSet, ...]:
    """Return the cell's cores; a CPU of which no core is known is one by itself."""
    known = frozenset[int]().union(*cell.siblings)
    lone = sorted((cell.dedicated | cell.shared) - known)
    return cell.siblings + tuple(frozenset({cpu}) for cpu in lone)
