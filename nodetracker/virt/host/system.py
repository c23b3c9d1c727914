"""Read the machine's name, operating system, kernel, boot time, firmware ids, NICs and caches."""

import logging
import re
import socket
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuCache, Nic, SystemInfo
from nodetracker.model.pci import ADDRESS_PATTERN
from nodetracker.model.service import LoadAverage
from nodetracker.virt.host.cpu import parse_cpu_list, parse_cpu_mask
from nodetracker.virt.host.roots import (
    Partial,
    Problems,
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    path_exists,
    read_label,
    read_link_name,
    read_optional_text,
    read_text,
)

_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation (RFC 5737, RFC 3849): they are never this machine's own."""

_PORT = 9

LOOPBACK = "127.0.0.1"
MAX_NICS = 64
"""Number of interfaces that are listed, in the order of their names."""

_NAME = re.compile(r"[!-~]{1,64}")
_SPEED = re.compile(r"[0-9]{1,7}")
_DOWN = frozenset({"down", "notpresent", "lowerlayerdown"})
_CPU_DIRECTORY = re.compile(r"cpu([0-9]{1,5})")
_INDEX = re.compile(r"index[0-9]{1,2}")
_SIZE = re.compile(r"([0-9]{1,9})K")
_FILES = ("level", "type", "size")
_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
LOG = logging.getLogger(__name__)
_BOOT_TIME = re.compile(r"^btime +(\S+)$", re.MULTILINE)
_LOAD_AVERAGE = re.compile(r"([0-9]{1,9}\.[0-9]{1,9})" + r" ([0-9]{1,9}\.[0-9]{1,9})" * 2 + r"\s")
_SECONDS = re.compile(r"[0-9]{1,11}")
_RELEASE = re.compile(r"Linux version (\S+)")
_ESCAPE = re.compile(r"\\([\\\"$`])")
_OS_LINE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")


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


def read_system_info(roots: Roots, caches: CacheReader | None = None) -> SystemInfo:
    """Return the machine's identity and system software.

    Unknown names are "": a captured machine has few of these files, and only
    root can read the firmware's serial numbers.

    Args:
        caches: remembers those of the CPUs; None = they are read.
    """
    problems = Problems(roots.procfs / "sys/kernel")
    kernel = roots.procfs / "sys/kernel"
    stat = roots.procfs / "stat"
    hostname = read_label(kernel / "hostname")
    if not hostname:
        own = is_this_machine(roots)
        hostname = socket.gethostname() if own else read_label(roots.rootfs / "etc/hostname")
    product = _read_dmi(roots, "product_name")
    if not product:
        product = read_label(roots.procfs / "device-tree/model")
    nics, found = read_nics(roots), (caches or CacheReader()).read(roots)
    return SystemInfo(
        hostname=hostname,
        os_type="linux",
        os=_read_os_name(roots, problems),
        kernel_version=read_label(kernel / "osrelease")
        or parse_kernel_release(read_label(roots.procfs / "version")),
        boot_id=read_label(kernel / "random/boot_id") or None,
        booted_at=problems.attempt(
            lambda: parse_boot_time(read_optional_text(stat) or "", str(stat)),
            None,
            "the time of the boot is unknown",
        ),
        vendor=_read_dmi(roots, "sys_vendor"),
        product=product,
        product_version=_read_dmi(roots, "product_version"),
        serial=_read_dmi(roots, "product_serial"),
        uuid=_read_dmi(roots, "product_uuid").lower(),
        firmware_version=_read_dmi(roots, "bios_version"),
        nics=nics.value,
        caches=found.value,
        problems=(*problems.list_all(), *nics.problems, *found.problems),
    )


def _read_os_name(roots: Roots, problems: Problems) -> str:
    for name in ("etc/os-release", "usr/lib/os-release"):
        read = partial(read_optional_text, roots.rootfs / name, errors="replace")
        text = problems.attempt(read, None, "the operating system's name may be unknown")
        if text is not None:
            return parse_os_release(text)
    return ""


def _read_dmi(roots: Roots, name: str) -> str:
    return read_label(roots.sysfs / "class/dmi/id" / name) or read_label(
        roots.sysfs / "devices/virtual/dmi/id" / name
    )


def parse_boot_time(text: str, source: str = "/proc/stat") -> datetime | None:
    r"""Return when the machine booted from the text of ``/proc/stat``.

    Returns:
        UTC, whole seconds; None without a ``btime`` line.

    >>> parse_boot_time("cpu 1 2\nbtime 1636312915\n")
    datetime.datetime(2021, 11, 7, 19, 21, 55, tzinfo=datetime.timezone.utc)
    """
    match = _BOOT_TIME.search(text)
    if match is None:
        return None
    if not _SECONDS.fullmatch(match[1]):
        raise HostDataError(source, "btime is not a number of seconds")
    return datetime.fromtimestamp(int(match[1]), UTC)


def parse_os_release(text: str) -> str:
    r"""Return the operating system's display name from the text of ``os-release``.

    Distributions write the file by hand: a line that is not an assignment is
    ignored, a value whose quotes do not match is used unchanged.

    Returns:
        PRETTY_NAME, else NAME with VERSION, else "".

    Source: os-release(5).

    >>> parse_os_release('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    'Debian GNU/Linux 12 (bookworm)'
    """
    values: dict[str, str] = {}
    for line in text.split("\n"):
        match = _OS_LINE.fullmatch(line.strip())
        if match:
            values[match[1]] = _unquote(match[2])
    name = f"{values.get('NAME', '')} {values.get('VERSION', '')}"
    return values.get("PRETTY_NAME") or name.strip()


def _unquote(text: str) -> str:
    quote = text[:1]
    if quote not in {'"', "'"} or len(text) == 1 or not text.endswith(quote):
        return text
    inner = text[1:-1]
    return _ESCAPE.sub(r"\1", inner) if quote == '"' else inner


def parse_kernel_release(text: str) -> str:
    """Return the release from the text of ``/proc/version``, "" for a kernel other than Linux.

    >>> parse_kernel_release("Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)")
    '6.1.0-18-amd64'
    """
    match = _RELEASE.match(text)
    return match[1] if match else ""


def read_load_average(roots: Roots) -> LoadAverage | None:
    """Return the machine's load averages, None when they are unreadable."""
    path = roots.procfs / "loadavg"
    try:
        return parse_load_average(read_text(path), str(path))
    except HostDataError as error:
        LOG.debug("The load averages are unknown: %s", error)
        return None


def parse_load_average(text: str, source: str = "/proc/loadavg") -> LoadAverage:
    r"""Return the load averages of 1, 5 and 15 minutes from the text of ``/proc/loadavg``.

    >>> parse_load_average("0.20 0.12 0.14 1/213 4077\n")
    (0.2, 0.12, 0.14)
    """
    match = _LOAD_AVERAGE.match(text)
    if match is None:
        raise HostDataError(source, "does not start with three load averages")
    return float(match[1]), float(match[2]), float(match[3])


def read_nics(roots: Roots) -> Partial[tuple[Nic, ...]]:
    """Return the network interfaces that are devices, without virtual functions.

    Interfaces without a device (bridges, bonds, tap devices) come and go with
    guests, and those of virtual functions are passed to them.

    Source: Linux Documentation/ABI/testing/sysfs-class-net.
    """
    base = roots.sysfs / "class/net"
    problems = Problems(base)
    listing = partial(list_directory, base)
    names = problems.attempt(listing, None, "the network interfaces are unknown") or ()
    found: list[Nic] = []
    for name in names:
        nic = _read_nic(base / name, problems) if _NAME.fullmatch(name) else None
        if nic is not None:
            found.append(nic)
        if len(found) == MAX_NICS:
            break
    return Partial(tuple(found), problems.list_all())


def _read_nic(directory: Path, problems: Problems) -> Nic | None:
    link = partial(read_link_name, directory / "device")
    device = problems.attempt(link, None, "the interface is left out")
    if device is None or path_exists(directory / "device/physfn"):
        return None
    driver = partial(read_link_name, directory / "device/driver")
    return Nic(
        name=directory.name,
        address=device if ADDRESS_PATTERN.fullmatch(device) else None,
        driver=problems.attempt(driver, None, "the interface is listed without it") or "",
        speed_mbps=_read_speed(directory),
    )


def _read_speed(directory: Path) -> int | None:
    """Return the speed of a link, None while it is down or its driver does not know it.

    The kernel refuses to read ``speed`` of an interface that is down (EINVAL),
    and it is -1, or as in old kernels 65535 or 4294967295, when it is unknown.
    """
    if read_label(directory / "operstate") in _DOWN:
        return None
    text = read_label(directory / "speed")
    speed = int(text) if _SPEED.fullmatch(text) else 0
    return speed if speed not in {0, 65535} else None


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
    """Return level, kind and size in KiB of a cache, and the CPUs that share it; None if absent."""
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


def read_own_address() -> str:
    """Return the address of the default route: IPv4, else IPv6, 127.0.0.1 without either.

    Source: connect(2), which selects the route of a datagram socket and sends nothing.
    """
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
                datagrams.connect((elsewhere, _PORT))
                return str(datagrams.getsockname()[0])
        except OSError:
            continue  # no route of this family
    return LOOPBACK
