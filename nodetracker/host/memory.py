"""Read the host's memory from ``/proc/meminfo``: the kernel's total, not a cgroup's limit."""

import re
from dataclasses import dataclass

from nodetracker.errors import HostDataError
from nodetracker.host.roots import Roots, read_text
from nodetracker.model.host import MemoryInfo
from nodetracker.units import capacity_mib_from_kib

_AMOUNT = re.compile(r"([0-9]{1,15})(?: +kB)?")


@dataclass(frozen=True, slots=True)
class Meminfo:
    """The lines of ``/proc/meminfo`` that are used here, in KiB."""

    total_kb: int
    available_kb: int
    swap_total_kb: int
    swap_free_kb: int


def parse_meminfo(text: str, source: str = "/proc/meminfo") -> Meminfo:
    r"""Parse the text of ``/proc/meminfo``.

    Kernels before Linux 3.14 have no MemAvailable; the sum of free memory,
    buffers and page cache replaces it. It is limited to MemTotal.

    Raises:
        HostDataError: MemTotal is missing or 0, both MemAvailable and MemFree
            are missing, or an amount is not a number.

    Source: Linux Documentation/filesystems/proc.rst.

    >>> parse_meminfo("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n").available_kb
    1024
    """
    wanted = {
        "MemTotal",
        "MemAvailable",
        "MemFree",
        "Buffers",
        "Cached",
        "SwapTotal",
        "SwapFree",
    }
    amounts: dict[str, int] = {}
    for line in text.split("\n"):
        name, colon, rest = line.partition(":")
        name = name.strip()
        if not colon or name not in wanted or name in amounts:
            continue
        amount = _AMOUNT.fullmatch(rest.strip())
        if amount is None:
            raise HostDataError(source, f"{name} is not an amount in kB")
        amounts[name] = int(amount[1])
    total = amounts.get("MemTotal", 0)
    if capacity_mib_from_kib(total) == 0:
        raise HostDataError(source, "MemTotal is missing or zero")
    available = amounts.get("MemAvailable")
    if available is None:
        if "MemFree" not in amounts:
            raise HostDataError(source, "MemAvailable and MemFree are missing")
        available = amounts["MemFree"] + amounts.get("Buffers", 0) + amounts.get("Cached", 0)
    return Meminfo(
        total_kb=total,
        available_kb=min(available, total),
        swap_total_kb=amounts.get("SwapTotal", 0),
        swap_free_kb=amounts.get("SwapFree", 0),
    )


def read_memory_info(roots: Roots) -> MemoryInfo:
    """Return the memory of the host in MiB, each amount rounded down.

    Raises:
        HostDataError: ``meminfo`` is unreadable or malformed; the fact is held.
    """
    path = roots.procfs / "meminfo"
    meminfo = parse_meminfo(read_text(path), str(path))
    return MemoryInfo(
        total_mb=capacity_mib_from_kib(meminfo.total_kb),
        available_mb=capacity_mib_from_kib(meminfo.available_kb),
        swap_total_mb=capacity_mib_from_kib(meminfo.swap_total_kb),
        swap_free_mb=capacity_mib_from_kib(meminfo.swap_free_kb),
    )
