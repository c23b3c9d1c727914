"""Read which processors of the host are online and how they share cores and sockets."""

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nodetracker.model.cpuset import MAX_CPU_ID, CpuSet, parse_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuInfo, CpuLimit
from nodetracker.virt.host.arm import name_arm_processor
from nodetracker.virt.host.roots import (
    Problems,
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    path_exists,
    read_optional_integer,
    read_optional_text,
)

_WORD = re.compile(r"[0-9a-fA-F]{1,8}")
_WORD_DIGITS = 8
_MODEL_KEYS = (
    "model name", "Model Name", "cpu model", "cpu", "Processor", "family", "uarch", "machine",
)  # fmt: skip
_VENDOR_KEYS = ("vendor_id", "vendor", "CPU implementer", "mvendorid")
_FLAG_KEYS = ("flags", "Features", "features")
_NUMBERED = re.compile(r"processor +([0-9]{1,6})")
_S390_MACHINE = re.compile(r"machine = (\S+)")
_ARM_ARCHITECTURE = re.compile(r"([5-9])")
_CPU_DIRECTORY = re.compile(r"cpu([0-9]{1,5})")
_CORE_FILES = ("core_cpus_list", "thread_siblings_list", "thread_siblings")
_PACKAGE_FILES = ("package_cpus_list", "core_siblings_list", "core_siblings")
_UNKNOWN_ID = 0xFFFFFFFF
"""The value -1, as some old kernels print it."""

_Package = tuple[int, ...] | CpuSet
"""Identity of a package: its (drawer, book, package) ids, or its CPUs without such ids."""


@dataclass(frozen=True, slots=True)
class Cpuinfo:
    """The contents of ``/proc/cpuinfo``.

    Attributes:
        processors: ids of the online CPUs in the order of the file.
        package_of, core_of: CPU id -> "physical id" and "core id", on the
            architectures that have them.
        architecture: as in ``uname -m``, "" when it cannot be derived.
        model, vendor: of the first processor, "" when unknown.
        flags: of the first processor, in ascending order.
        is_complete: whether the text ends after a processor, with an empty line.
    """

    processors: tuple[int, ...] = ()
    package_of: Mapping[int, int] = field(default_factory=dict)
    core_of: Mapping[int, int] = field(default_factory=dict)
    architecture: str = ""
    model: str = ""
    vendor: str = ""
    flags: tuple[str, ...] = ()
    is_complete: bool = False


def read_cpu_info(roots: Roots) -> CpuInfo:
    """Return the processors of the host.

    Cores and packages contain online CPUs only, even if the kernel lists others.

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

    def read() -> Cpuinfo:
        return parse_cpuinfo(read_optional_text(path, errors="replace") or "", str(path))

    cost = "model, vendor and features of the CPUs are unknown"
    cpuinfo = problems.attempt(read, Cpuinfo(), cost)
    online, present = _read_presence(base, frozenset(cpuinfo.processors), problems)
    offline = present - online
    if _shows_limit(cpuinfo, online):
        cpuinfo = problems.attempt(read, cpuinfo, cost)  # a CPU may have just come online
    if _shows_limit(cpuinfo, online):
        listed = frozenset(cpuinfo.processors)
        difference = f"lists {len(listed)} CPUs and {base / 'online'} {len(online)}"
        problems.add(str(path), difference, "the smaller number is offered")
        online = listed if listed <= online else frozenset(sorted(online)[: len(listed)])
    if not online:
        online = present = frozenset(cpuinfo.processors)
        if not online:
            raise HostDataError(str(path), "lists no processors, and neither does sysfs")
    cores = _read_cores(base, online, cpuinfo, problems)
    package_of, sockets = _read_packages(base, cores, cpuinfo, problems)
    return CpuInfo(
        online=online,
        offline=offline,
        sockets=sockets,
        cores=len(cores),
        threads=max(len(core) for core in cores),
        siblings=cores,
        socket_of=package_of,
        architecture=platform.machine() if is_this_machine(roots) else cpuinfo.architecture,
        model=cpuinfo.model,
        vendor=cpuinfo.vendor,
        flags=cpuinfo.flags,
        limits=read_cpu_limits(roots, online, problems),
        problems=problems.list_all(),
    )


def read_cpu_limits(
    roots: Roots, online: CpuSet, problems: Problems, group: str = ""
) -> tuple[CpuLimit, ...]:
    """Return the online CPUs on which guests do not run, for each cause.

    Args:
        group: control group of the guests, "" = not known.

    Source: Linux Documentation/admin-guide, kernel-parameters.txt (isolcpus) and cgroup-v2.rst
    (cpuset.cpus.effective).
    """
    read = partial(_read_limit, problems)
    groups = roots.sysfs / "fs/cgroup"
    isolated = roots.sysfs / "devices/system/cpu/isolated"
    found = [CpuLimit(str(isolated), online & read(isolated, frozenset()), allows_pins=True)]
    files = []
    if not path_exists(groups / "cpuset.cpus"):  # else the root is the group of a container
        files.append(groups / "cpuset.cpus.effective")
    if group:
        files.append(groups / group / "cpuset.cpus.effective")
        files.append(groups / "cpuset" / group / "cpuset.cpus")
    found += [CpuLimit(str(file), online - read(file, online)) for file in files]
    return tuple(limit for limit in found if limit.cpus)


def _read_limit(problems: Problems, path: Path, default: CpuSet) -> CpuSet:
    """Return the CPUs of a list, the default if it is missing, empty or unusable."""

    def read() -> CpuSet:
        return parse_cpu_list(read_optional_text(path) or "", str(path)) or default

    cost = "CPUs on which no guest runs may be offered without a warning"
    return problems.attempt(read, default, cost)


def _shows_limit(cpuinfo: Cpuinfo, online: CpuSet) -> bool:
    """Return whether ``/proc/cpuinfo`` is one of a container that may use fewer CPUs.

    LXCFS shows a container's limit in ``/proc``, while older releases leave ``/sys`` as the
    machine's. It numbers the CPUs that it shows from 0, whichever of the machine's they are.
    """
    listed = cpuinfo.processors
    return (
        cpuinfo.is_complete and 0 < len(listed) < len(online) and listed == (*range(len(listed)),)
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
        state = read_optional_integer(path)
        if state not in {None, 0, 1}:
            raise HostDataError(str(path), "is neither 0 nor 1")
        return state != 0

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
    number = problems.attempt(lambda: read_optional_integer(path), None, "/proc/cpuinfo is used")
    if number is None:
        return None
    return -1 if number < 0 or number == _UNKNOWN_ID else number


def parse_cpuinfo(text: str, source: str = "/proc/cpuinfo") -> Cpuinfo:
    r"""Parse the text of ``/proc/cpuinfo``.

    The first line with a key wins: some architectures write it once for all
    processors, before or after them. Unknown lines are ignored. Text without
    processors is valid.

    Source: ``show_cpuinfo()`` of x86, arm, arm64, s390, powerpc, ia64, riscv, loongarch.

    >>> parse_cpuinfo("processor\t: 0\nvendor_id\t: GenuineIntel\n").processors
    (0,)
    """
    first: dict[str, str] = {}
    processors: dict[int, None] = {}
    package_of: dict[int, int] = {}
    core_of: dict[int, int] = {}
    current: int | None = None
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if key in {"processor", "cpu number"}:
            current = parse_integer(value, source)
            processors[current] = None
        elif key == "physical id" and current is not None:
            package_of[current] = parse_integer(value, source)
        elif key == "core id" and current is not None:
            core_of[current] = parse_integer(value, source)
        elif numbered := _NUMBERED.fullmatch(key):  # s390 before Linux 4.20
            processors[int(numbered[1])] = None
            if machine := _S390_MACHINE.search(value):
                first.setdefault("machine", machine[1])
        elif value:
            first.setdefault(key, value)
    vendor, model = name_arm_processor(first.get("CPU implementer", ""), first.get("CPU part", ""))
    return Cpuinfo(
        processors=tuple(processors),
        package_of=package_of,
        core_of=core_of,
        architecture=_name_architecture(first),
        model=model or _first_of(first, _MODEL_KEYS),
        vendor=vendor or _first_of(first, _VENDOR_KEYS),
        flags=tuple(sorted(set(_first_of(first, _FLAG_KEYS).split()))),
        is_complete=text.endswith("\n\n"),
    )


def _first_of(lines: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((lines[key] for key in keys if key in lines), "")


def _name_architecture(lines: Mapping[str, str]) -> str:
    """Return the ``uname -m`` name; "" on POWER, whose byte order is not in the text."""
    if lines.get("vendor_id") == "IBM/S390":
        return "s390x"
    if lines.get("arch") == "IA-64":
        return "ia64"
    if "flags" in lines and "bogomips" in lines:
        return "x86_64" if "lm" in lines["flags"].split() else "i686"
    if lines.get("isa", "").startswith(("rv32", "rv64")):
        return "riscv" + lines["isa"][2:4]
    if lines.get("CPU Family", "").startswith("Loongson-"):
        return "loongarch" + lines["CPU Family"][9:11]
    if "CPU architecture" in lines:
        return _name_arm(lines)
    return ""


def _name_arm(lines: Mapping[str, str]) -> str:
    is_32_bit = "thumb" in lines.get("Features", "").split()
    version = _ARM_ARCHITECTURE.match(lines["CPU architecture"])
    if lines["CPU architecture"] == "AArch64" or (version and version[1] >= "8"):
        return "armv8l" if is_32_bit else "aarch64"
    return f"armv{version[1]}l" if version else ""


def parse_cpu_list(text: str, source: str) -> CpuSet:
    r"""Parse a list such as ``"0-7,16\n"``; blank text is the empty set."""
    if "^" in text:
        raise HostDataError(source, "is not a list of CPUs")
    try:
        return parse_cpu_set(text)
    except ValueError as error:
        raise HostDataError(source, "is not a list of CPUs") from error


def parse_cpu_mask(text: str, source: str) -> CpuSet:
    r"""Parse a mask of 32-bit words in hex, the highest word first.

    Kernels before 2.6.26 have no lists; their masks have the width that the
    kernel was built for.

    >>> sorted(parse_cpu_mask("00000001,00000003\n", "thread_siblings"))
    [0, 1, 32]
    """
    words = text.strip().split(",")
    for position, word in enumerate(words):
        if not _WORD.fullmatch(word) or (position and len(word) != _WORD_DIGITS):
            raise HostDataError(source, "is not a mask of CPUs")
    bits = bin(int("".join(words), 16))[:1:-1] if len(words) <= MAX_CPU_ID // 32 + 1 else ""
    if not bits:
        raise HostDataError(source, "is not a mask of CPUs")
    return frozenset(index for index, bit in enumerate(bits) if bit == "1")
