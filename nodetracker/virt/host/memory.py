"""Read the host's memory from ``/proc/meminfo``: the kernel's total, not a cgroup's limit."""

import re
from dataclasses import dataclass

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import MemoryInfo
from nodetracker.model.units import capacity_mib_from_kib
from nodetracker.virt.host.roots import Problems, Roots, read_text

_USED = frozenset(
    {"MemTotal", "MemAvailable", "MemFree", "Buffers", "Cached", "Shmem", "SwapTotal", "SwapFree"}
)
_AMOUNT = re.compile(r"([0-9]{1,15}) +kB")
_PAGE_SIZE = re.compile(r"^Hugepagesize: +([1-9][0-9]{0,11}) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Meminfo:
    """The lines of ``/proc/meminfo`` that are used here, in KiB.

    Attributes:
        available_kb: None when neither it nor free memory is known.
        unusable: names of further lines that are not amounts or are missing.
    """

    total_kb: int
    available_kb: int | None
    swap_total_kb: int
    swap_free_kb: int
    unusable: tuple[str, ...] = ()


def parse_meminfo(text: str, source: str = "/proc/meminfo") -> Meminfo:
    r"""Parse the text of ``/proc/meminfo``.

    Kernels before Linux 3.14 have no MemAvailable; the sum of free memory, buffers and page
    cache, without the shared memory that counts as cache, replaces it. It is limited to MemTotal.

    Source: Linux Documentation/filesystems/proc.rst.

    >>> parse_meminfo("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n").available_kb
    1024
    """
    amounts: dict[str, int] = {}
    unusable: set[str] = set()
    for line in text.split("\n"):
        name, colon, rest = line.partition(":")
        name = name.strip()
        if not colon or name not in _USED or name in amounts:
            continue
        amount = _AMOUNT.fullmatch(rest.strip())
        if amount is not None:
            amounts[name] = int(amount[1])
        elif name == "MemTotal":
            raise HostDataError(source, "MemTotal is not an amount in kB")
        else:
            unusable.add(name)
    total = amounts.get("MemTotal", 0)
    if capacity_mib_from_kib(total) == 0:
        raise HostDataError(source, "MemTotal is missing or zero")
    available = amounts.get("MemAvailable")
    if available is None and "MemFree" in amounts:
        cache = max(0, amounts.get("Cached", 0) - amounts.get("Shmem", 0))
        available = amounts["MemFree"] + amounts.get("Buffers", 0) + cache
    if available is None:
        unusable.add("MemAvailable")
    return Meminfo(
        total_kb=total,
        available_kb=None if available is None else min(available, total),
        swap_total_kb=amounts.get("SwapTotal", 0),
        swap_free_kb=amounts.get("SwapFree", 0),
        unusable=tuple(sorted(unusable)),
    )


def read_memory_info(roots: Roots) -> MemoryInfo:
    """Return the memory of the host in MiB, each amount rounded down.

    Raises:
        HostDataError: ``meminfo`` is unreadable, or has no MemTotal; the fact is held.
    """
    path = roots.procfs / "meminfo"
    meminfo = parse_meminfo(read_text(path), str(path))
    problems = Problems(path)
    if meminfo.unusable:
        reason = f"has no usable {', '.join(meminfo.unusable)}"
        problems.add(str(path), reason, "that memory or swap space is not measured")
    available = meminfo.available_kb
    return MemoryInfo(
        total_mb=capacity_mib_from_kib(meminfo.total_kb),
        available_mb=None if available is None else capacity_mib_from_kib(available),
        swap_total_mb=capacity_mib_from_kib(meminfo.swap_total_kb),
        swap_free_mb=capacity_mib_from_kib(meminfo.swap_free_kb),
        problems=problems.list_all(),
    )


def read_default_page_kb(roots: Roots) -> int | None:
    """Return the kernel's default size of huge pages in KiB; None without any, or if unreadable.

    Source: Linux Documentation/admin-guide/mm/hugetlbpage.rst, Hugepagesize.
    """
    try:
        match = _PAGE_SIZE.search(read_text(roots.procfs / "meminfo"))
    except HostDataError:
        return None  # a problem of the memory fact, which reads the same file
    return int(match[1]) if match else None
