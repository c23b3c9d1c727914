"""Read which processors of the host are online and how they share cores and sockets."""

import platform
import re
from collections.abc import Iterable
from pathlib import Path

from nodetracker.cpuset import CpuSet
from nodetracker.errors import HostDataError
from nodetracker.host.cpuinfo import Cpuinfo, parse_cpuinfo
from nodetracker.host.cpulist import parse_cpu_list, parse_cpu_mask
from nodetracker.host.roots import (
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    read_optional_text,
)
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

    Raises:
        HostDataError: no CPU is online, or a file is unreadable or malformed;
            the fact is held.

    Source: Linux Documentation/ABI/stable/sysfs-devices-system-cpu.
    """
    path = roots.procfs / "cpuinfo"
    cpuinfo = parse_cpuinfo(read_optional_text(path, errors="replace") or "", str(path))
    base = roots.sysfs / "devices/system/cpu"
    directories = frozenset(
        int(match[1])
        for name in list_directory(base) or ()
        if (match := _CPU_DIRECTORY.fullmatch(name))
    )
    online, present = _read_presence(base, directories)
    if not online:
        online = present = frozenset(cpuinfo.processors)
        if not online:
            raise HostDataError(str(path), "lists no processors, and neither does sysfs")
    cores = _read_cores(base, online, cpuinfo)
    package_of, sockets = _read_packages(base, cores, cpuinfo)
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
    )


def _read_presence(base: Path, directories: CpuSet) -> tuple[CpuSet, CpuSet]:
    """Return the online and the present CPUs; both are empty when sysfs lists none."""
    present = _read_list(base / "present")
    online = _read_list(base / "online")
    if online is None:
        known = directories if present is None else directories & present
        online = frozenset(cpu for cpu in known if _is_online(base / f"cpu{cpu}" / "online"))
        if known and not online:
            raise HostDataError(str(base), "no CPU is online")
    elif not online:
        raise HostDataError(str(base / "online"), "no CPU is online")
    return online, online | (directories if present is None else present)


def _is_online(path: Path) -> bool:
    """Return whether a CPU is online; a CPU that cannot be taken offline has no such file."""
    text = read_optional_text(path)
    state = 1 if text is None else parse_integer(text, str(path))
    if state not in {0, 1}:
        raise HostDataError(str(path), "is neither 0 nor 1")
    return state == 1


def _read_list(path: Path) -> CpuSet | None:
    text = read_optional_text(path)
    return None if text is None else parse_cpu_list(text, str(path))


def _read_cores(base: Path, online: CpuSet, cpuinfo: Cpuinfo) -> tuple[CpuSet, ...]:
    """Group the online CPUs by core, ascending by first id.

    All CPUs of a core have the same file, so only one of them is read. A CPU
    without a topology directory is grouped by its core id in
    ``/proc/cpuinfo``; without one it is a separate core.
    """
    by_core_id: dict[tuple[int, int], set[int]] = {}
    for cpu in online:
        if cpu in cpuinfo.core_of:
            key = (cpuinfo.package_of.get(cpu, 0), cpuinfo.core_of[cpu])
            by_core_id.setdefault(key, set()).add(cpu)
    core_in_text = {cpu: core for core in by_core_id.values() for cpu in core}
    cores: list[CpuSet] = []
    seen: set[int] = set()
    for cpu in sorted(online):
        if cpu in seen:
            continue
        directory = base / f"cpu{cpu}" / "topology"
        core = _read_group(directory, _CORE_FILES, cpu)
        if core is None:
            core = frozenset(core_in_text.get(cpu, {cpu})) - seen
        core &= online
        if core & seen:
            raise HostDataError(str(directory), "shares a CPU with another core")
        seen |= core
        cores.append(core)
    return tuple(cores)


def _read_group(directory: Path, names: Iterable[str], cpu: int) -> CpuSet | None:
    """Return the CPUs from the first of the files that exists, None when none does."""
    for name in names:
        path = directory / name
        text = read_optional_text(path)
        if text is None:
            continue
        parse = parse_cpu_list if name.endswith("_list") else parse_cpu_mask
        group = parse(text, str(path))
        if not group:  # the CPU is being taken offline
            return None
        if cpu not in group:
            raise HostDataError(str(path), "does not list its own CPU")
        return group
    return None


def _read_packages(
    base: Path, cores: tuple[CpuSet, ...], cpuinfo: Cpuinfo
) -> tuple[dict[int, int], int]:
    """Return online CPU -> package id, where it is known, and the number of packages.

    Packages are identified by id, because some kernels list a package's CPUs
    by NUMA cell. Only packages without an id are identified by their CPUs. On
    s390 an id is unique only within its book; an id that several packages
    share is ambiguous and left out.
    """
    first = base / f"cpu{min(cores[0])}" / "topology"
    has_books = read_optional_text(first / "book_id") is not None
    package_of_core: dict[CpuSet, _Package] = {}
    by_cpu: dict[int, CpuSet] = {}
    for core in cores:
        cpu = min(core)
        directory = base / f"cpu{cpu}" / "topology"
        number = _read_id(directory / "physical_package_id")
        if number is None:
            number = cpuinfo.package_of.get(cpu)
        if number is not None and number >= 0:
            books = [directory / "drawer_id", directory / "book_id"] if has_books else []
            package_of_core[core] = (*(_read_id(book) or 0 for book in books), number)
            continue
        if cpu not in by_cpu:
            group = _read_group(directory, _PACKAGE_FILES, cpu)
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


def _read_id(path: Path) -> int | None:
    """Return a topology id: -1 when the kernel does not know it, None without the file."""
    text = read_optional_text(path)
    if text is None:
        return None
    number = parse_integer(text, str(path))
    return -1 if number < 0 or number == _UNKNOWN_ID else number
