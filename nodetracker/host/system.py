"""Read the machine's name, operating system, kernel, boot time, firmware ids, NICs and caches."""

import logging
import re
import socket
from datetime import UTC, datetime
from functools import partial

from nodetracker.host.cache import CacheReader
from nodetracker.host.nic import read_nics
from nodetracker.host.problems import Problems
from nodetracker.host.roots import Roots, is_this_machine, read_label, read_optional_text, read_text
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import SystemInfo
from nodetracker.model.service import LoadAverage

LOG = logging.getLogger(__name__)

_BOOT_TIME = re.compile(r"^btime +(\S+)$", re.MULTILINE)
_LOAD_AVERAGE = re.compile(r"([0-9]{1,9}\.[0-9]{1,9})" + r" ([0-9]{1,9}\.[0-9]{1,9})" * 2 + r"\s")
_SECONDS = re.compile(r"[0-9]{1,11}")
_RELEASE = re.compile(r"Linux version (\S+)")
_ESCAPE = re.compile(r"\\([\\\"$`])")
_OS_LINE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")


def parse_boot_time(text: str, source: str = "/proc/stat") -> datetime | None:
    r"""Return when the machine booted from the text of ``/proc/stat``.

    Returns:
        UTC, whole seconds; None without a ``btime`` line.

    Raises:
        HostDataError: the ``btime`` line is malformed.

    >>> parse_boot_time("cpu 1 2\nbtime 1636312915\n")
    datetime.datetime(2021, 11, 7, 19, 21, 55, tzinfo=datetime.timezone.utc)
    """
    match = _BOOT_TIME.search(text)
    if match is None:
        return None
    if not _SECONDS.fullmatch(match[1]):
        raise HostDataError(source, "btime is not a number of seconds")
    return datetime.fromtimestamp(int(match[1]), UTC)


def parse_load_average(text: str, source: str = "/proc/loadavg") -> LoadAverage:
    r"""Return the load averages of 1, 5 and 15 minutes from the text of ``/proc/loadavg``.

    Raises:
        HostDataError: the text has another format.

    >>> parse_load_average("0.20 0.12 0.14 1/213 4077\n")
    (0.2, 0.12, 0.14)
    """
    match = _LOAD_AVERAGE.match(text)
    if match is None:
        raise HostDataError(source, "does not start with three load averages")
    return float(match[1]), float(match[2]), float(match[3])


def read_load_average(roots: Roots) -> LoadAverage | None:
    """Return the machine's load averages, None when they are unreadable."""
    path = roots.procfs / "loadavg"
    try:
        return parse_load_average(read_text(path), str(path))
    except HostDataError as error:
        LOG.debug("The load averages are unknown: %s", error)
        return None


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


def parse_kernel_release(text: str) -> str:
    """Return the release from the text of ``/proc/version``, "" for a kernel other than Linux.

    >>> parse_kernel_release("Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)")
    '6.1.0-18-amd64'
    """
    match = _RELEASE.match(text)
    return match[1] if match else ""


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


def _unquote(text: str) -> str:
    quote = text[:1]
    if quote not in {'"', "'"} or len(text) == 1 or not text.endswith(quote):
        return text
    inner = text[1:-1]
    return _ESCAPE.sub(r"\1", inner) if quote == '"' else inner
