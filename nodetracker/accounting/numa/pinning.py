"""Choose the host CPUs of pinned guest CPUs, by core and thread policy."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.numa import CpuThreadPolicy, HostCell

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
    a thread that is unavailable to guests does not.

    Args:
        taken: host CPUs that are already pinned or isolated.
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


def _all_cores(cell: HostCell) -> tuple[CpuSet, ...]:
    """Return the cell's cores; a CPU without a known core is a separate one."""
    known = frozenset[int]().union(*cell.siblings)
    lone = sorted((cell.dedicated | cell.shared) - known)
    return cell.siblings + tuple(frozenset({cpu}) for cpu in lone)
