"""Read the caches of the processors."""

import re
from collections import Counter
from functools import partial
from pathlib import Path

from nodetracker.host.cpulist import parse_cpu_list, parse_cpu_mask
from nodetracker.host.problems import Partial, Problems
from nodetracker.host.roots import (
    Roots,
    list_directory,
    parse_integer,
    read_label,
    read_optional_text,
)
from nodetracker.model.cpuset import CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuCache

_CPU_DIRECTORY = re.compile(r"cpu([0-9]{1,5})")
_INDEX = re.compile(r"index[0-9]{1,2}")
_SIZE = re.compile(r"([0-9]{1,9})K")
_FILES = ("level", "type", "size")
_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}


class CacheReader:
    """Reads caches again only when other CPUs are online, as those of a running kernel stay.

    Reading those of 128 CPUs takes 2,500 files. A reading with problems is not kept.
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[Path, str], Partial[tuple[CpuCache, ...]]] | None = None

    def read(self, roots: Roots) -> Partial[tuple[CpuCache, ...]]:
        """Return the caches of online CPUs; see `read_caches`."""
        online = read_label(roots.sysfs / "devices/system/cpu/online")
        key, kept = (roots.sysfs, online), self._kept
        if kept is not None and kept[0] == key:
            return kept[1]
        found = read_caches(roots)
        self._kept = None if found.problems or not online else (key, found)
        return found


def read_caches(roots: Roots) -> Partial[tuple[CpuCache, ...]]:
    """Return the caches of online CPUs, those of equal level, kind and size as one entry.

    A cache that several CPUs share is read once. Virtual machines and some
    architectures describe none.

    Returns:
        Ordered by level, kind and size; a cache with a file that cannot be
        used is left out, with a problem.

    Source: Linux Documentation/ABI/testing/sysfs-devices-system-cpu, cache/index*.
    """
    base = roots.sysfs / "devices/system/cpu"
    problems = Problems(base)
    counts: Counter[tuple[int, str, int]] = Counter()
    seen: dict[str, CpuSet] = {}
    for cpu in _list_cpus(base):
        directory = base / f"cpu{cpu}/cache"
        listing = partial(list_directory, directory)
        for name in problems.attempt(listing, None, "the CPU's caches are left out") or ():
            if not _INDEX.fullmatch(name) or cpu in seen.get(name, frozenset()):
                continue
            read = partial(_read_cache, directory / name, cpu)
            found = problems.attempt(read, None, "the cache is left out")
            if found is not None:
                cache, sharing = found
                counts[cache] += 1
                seen[name] = seen.get(name, frozenset()) | sharing
    caches = (CpuCache(*cache, count=count) for cache, count in sorted(counts.items()))
    return Partial(tuple(caches), problems.list_all())


def _list_cpus(base: Path) -> list[int]:
    """Return the online CPUs, or all when that list cannot be used.

    Some kernels keep the caches of offline CPUs. What cannot be used is a
    problem of the fact of the CPUs.
    """
    problems = Problems(base)
    names = problems.attempt(partial(list_directory, base), None, "") or ()
    cpus = {int(found[1]) for name in names if (found := _CPU_DIRECTORY.fullmatch(name))}
    online = problems.attempt(partial(_read_online, base / "online"), None, "")
    return sorted(cpus & online if online else cpus)


def _read_online(path: Path) -> CpuSet:
    return parse_cpu_list(read_optional_text(path) or "", str(path))


def _read_cache(directory: Path, cpu: int) -> tuple[tuple[int, str, int], CpuSet] | None:
    """Return level, kind and size in KiB of a cache, and the CPUs that share it; None without it.

    Raises:
        HostDataError: a file cannot be used.
    """
    level, kind, size = (read_optional_text(directory / name) for name in _FILES)
    if level is None or kind is None or size is None:
        return None
    found = _SIZE.fullmatch(size.strip())
    if kind.strip() not in _KINDS:
        raise HostDataError(str(directory / "type"), "is not Data, Instruction or Unified")
    if found is None:
        raise HostDataError(str(directory / "size"), "is not a number of KiB")
    number = parse_integer(level, str(directory / "level"))
    cache = number, _KINDS[kind.strip()], int(found[1])
    return cache, _read_sharing(directory, cpu)


def _read_sharing(directory: Path, cpu: int) -> CpuSet:
    """Return the CPUs that share a cache of a CPU.

    Kernels before 2.6.26 have only their mask, which may lack the CPU itself (on ia64).
    """
    path = directory / "shared_cpu_list"
    text = read_optional_text(path)
    if text is None:
        path = directory / "shared_cpu_map"
        text = read_optional_text(path)
        mask = frozenset[int]() if text is None else parse_cpu_mask(text, str(path))
        return mask | {cpu}
    sharing = parse_cpu_list(text, str(path))
    if cpu not in sharing:
        raise HostDataError(str(path), "does not list the CPU itself")
    return sharing
