"""Read which processors of the host are online and how they share cores and sockets."""

import platform
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from nodetracker.host.cpuinfo import Cpuinfo, parse_cpuinfo
from nodetracker.host.cpulist import parse_cpu_list, parse_cpu_mask
from nodetracker.host.problems import Problems
from nodetracker.host.roots import (
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    read_optional_text,
)
from nodetracker.model.cpuset import CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuInfo

_CPU_DIRECTORY = re.compile(r"cpu([0-9]{1,5})")
_CORE_FILES = ("core_cpus_list", "thread_siblings_list", "thread_siblings")
_PACKAGE_FILES = ("package_cpus_list", "core_siblings_list", "core_siblings")
_UNKNOWN_ID = 0xFFFFFFFF
"""The value -1, as some old kernels print it."""

_Package = tuple[int, ...] | CpuSet
"""Identity of a package: its (drawer, book, package) ids, or its CPUs without such ids."""


def read_cpu_info(roots: Roots, machine: str | None = None) -> CpuInfo:
    """Return the processors of the host.

    Cores and packages contain online CPUs only, even if the kernel lists others.

    Args:
        roots: directories to read from.
        machine: the architecture, e.g. ``x86_64``. None: this machine's when
            `roots` belong to it, else derived from ``/proc/cpuinfo``.

    Returns:
        The processors; each file that cannot be used is replaced by the next
        one that describes the same, and is one of its `problems`.

    Raises:
        HostDataError: no CPU is known to be online; the fact is held.

    Source: Linux Documentation/ABI/stable/sysfs-devices-system-cpu.
    """
    path = roots.procfs / "cpuinfo"
    base = roots.sysfs / "devices/system/cpu"
    problems = Problems(base)
    cpuinfo = problems.attempt(
        lambda: parse_cpuinfo(read_optional_text(path, errors="replace") or "", str(path)),
        Cpuinfo(),
        "model, vendor and features of the CPUs are unknown",
    )
    online, present = _read_presence(base, frozenset(cpuinfo.processors), problems)
    if not online:
        online = present = frozenset(cpuinfo.processors)
        if not online:
            raise HostDataError(str(path), "lists no processors, and neither does sysfs")
    cores = _read_cores(base, online, cpuinfo, problems)
    package_of, sockets = _read_packages(base, cores, cpuinfo, problems)
    if machine is None:
        machine = platform.machine() if is_this_machine(roots) else cpuinfo.architecture
    return CpuInfo(
        online=online,
        offline=present - online,
        sockets=sockets,
        cores=len(cores),
        threads=max(len(core) for core in cores),
        siblings=cores,
        socket_of=package_of,
        architecture=machine,
        model=cpuinfo.model,
        vendor=cpuinfo.vendor,
        flags=cpuinfo.flags,
        problems=problems.list_all(),
    )


def _read_presence(base: Path, listed: CpuSet, problems: Problems) -> tuple[CpuSet, CpuSet]:
    """Return the online and the present CPUs; both are empty when sysfs lists none.

    Args:
        listed: CPUs in ``/proc/cpuinfo``, which lists those that are online.
    """
    names = problems.attempt(lambda: list_directory(base), None, "its CPUs are not known") or ()
    directories = frozenset(
        int(match[1]) for name in names if (match := _CPU_DIRECTORY.fullmatch(name))
    )
    present = problems.attempt(
        lambda: _read_list(base / "present"), None, "CPUs with a directory count as present"
    )
    online = problems.attempt(
        lambda: _read_list(base / "online"), None, "each CPU's own file says whether it is online"
    )
    if online is None:
        known = directories if present is None else directories & present
        online = frozenset(cpu for cpu in known if _is_online(base, cpu, listed, problems))
        if known and not online:
            raise HostDataError(str(base), "no CPU is online")
    return online, online | (directories if present is None else present)


def _is_online(base: Path, cpu: int, listed: CpuSet, problems: Problems) -> bool:
    """Return whether a CPU is online; one that cannot be taken offline has no such file."""
    path = base / f"cpu{cpu}" / "online"

    def read() -> bool:
        text = read_optional_text(path)
        state = 1 if text is None else parse_integer(text, str(path))
        if state not in {0, 1}:
            raise HostDataError(str(path), "is neither 0 nor 1")
        return state == 1

    return problems.attempt(read, cpu in listed, "/proc/cpuinfo says whether the CPU is online")


def _read_list(path: Path) -> CpuSet | None:
    """Return the CPUs of a list, None without the file; the kernel never writes an empty one."""
    text = read_optional_text(path)
    if text is None:
        return None
    cpus = parse_cpu_list(text, str(path))
    if not cpus:
        raise HostDataError(str(path), "lists no CPU")
    return cpus


def _read_cores(
    base: Path, online: CpuSet, cpuinfo: Cpuinfo, problems: Problems
) -> tuple[CpuSet, ...]:
    """Group the online CPUs by core, ascending by first id.

    All CPUs of a core have the same file, so only one of them is read. A CPU
    that no such file lists is grouped by its core id in ``/proc/cpuinfo``;
    without one it is a separate core.
    """
    by_core_id: dict[tuple[int, int], set[int]] = {}
    for cpu in online:
        if cpu in cpuinfo.core_of:
            key = (cpuinfo.package_of.get(cpu, 0), cpuinfo.core_of[cpu])
            by_core_id.setdefault(key, set()).add(cpu)
    core_in_text = {cpu: core for core in by_core_id.values() for cpu in core}
    cores: list[CpuSet] = []
    seen: set[int] = set()
    unlisted = []
    for cpu in sorted(online):
        if cpu in seen:
            continue
        directory = base / f"cpu{cpu}" / "topology"
        core = _read_group(directory, _CORE_FILES, cpu, problems)
        if core is None:
            unlisted.append(cpu)
            continue
        if core & seen:
            cost = "the CPU counts for the first core"
            problems.add(str(directory), "shares a CPU with another core", cost)
        cores.append(core & online - seen)
        seen |= cores[-1]
    for cpu in unlisted:
        if cpu not in seen:
            cores.append(frozenset(core_in_text.get(cpu, {cpu})) - seen)
            seen |= cores[-1]
    return tuple(sorted(cores, key=min))


def _read_group(
    directory: Path, names: Iterable[str], cpu: int, problems: Problems
) -> CpuSet | None:
    """Return the CPUs from the first of the files that can be used, None when none can."""
    for name in names:
        path = directory / name
        group = problems.attempt(
            partial(_parse_group, path, cpu), None, "another file or /proc/cpuinfo is used"
        )
        if group is not None:
            return group or None  # empty: the CPU is being taken offline
    return None


def _parse_group(path: Path, cpu: int) -> CpuSet | None:
    text = read_optional_text(path)
    if text is None:
        return None
    parse = parse_cpu_list if path.name.endswith("_list") else parse_cpu_mask
    group = parse(text, str(path))
    if group and cpu not in group:
        raise HostDataError(str(path), "does not list its own CPU")
    return group


def _read_packages(
    base: Path, cores: tuple[CpuSet, ...], cpuinfo: Cpuinfo, problems: Problems
) -> tuple[dict[int, int], int]:
    """Return online CPU -> package id, where it is known, and the number of packages.

    Packages are identified by id, because some kernels list a package's CPUs
    by NUMA cell. Only packages without an id are identified by their CPUs. On
    s390 an id is unique only within its book; an id that several packages
    share is ambiguous and left out.
    """
    first = base / f"cpu{min(cores[0])}" / "topology"
    has_books = _read_id(first / "book_id", problems) is not None
    package_of_core: dict[CpuSet, _Package] = {}
    by_cpu: dict[int, CpuSet] = {}
    for core in cores:
        cpu = min(core)
        directory = base / f"cpu{cpu}" / "topology"
        number = _read_id(directory / "physical_package_id", problems)
        if number is None:
            number = cpuinfo.package_of.get(cpu)
        if number is not None and number >= 0:
            books = [directory / "drawer_id", directory / "book_id"] if has_books else []
            package_of_core[core] = (*(_read_id(book, problems) or 0 for book in books), number)
            continue
        if cpu not in by_cpu:
            group = _read_group(directory, _PACKAGE_FILES, cpu, problems)
            by_cpu.update(dict.fromkeys(group or (), group or frozenset()))
        if cpu in by_cpu:
            package_of_core[core] = by_cpu[cpu]
    packages = set(package_of_core.values())
    numbers = [package[-1] for package in packages if isinstance(package, tuple)]
    socket_of = {
        cpu: package[-1]
        for core, package in package_of_core.items()
        if isinstance(package, tuple) and numbers.count(package[-1]) == 1
        for cpu in core
    }
    return socket_of, max(1, len(packages))


def _read_id(path: Path, problems: Problems) -> int | None:
    """Return a topology id: -1 when the kernel does not know it, None without a usable file."""
    number = problems.attempt(lambda: _read_optional_integer(path), None, "/proc/cpuinfo is used")
    if number is None:
        return None
    return -1 if number < 0 or number == _UNKNOWN_ID else number


def _read_optional_integer(path: Path) -> int | None:
    text = read_optional_text(path)
    return None if text is None else parse_integer(text, str(path))
