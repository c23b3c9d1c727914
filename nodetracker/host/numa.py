"""Read the host's NUMA cells, addressed by the kernel's node ids, which may have gaps."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodetracker.cpuset import CpuSet
from nodetracker.errors import HostDataError
from nodetracker.host.cpulist import parse_cpu_list, parse_cpu_mask
from nodetracker.host.roots import (
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    read_optional_text,
    read_text,
)
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.units import capacity_mib_from_kib

_CELL_DIRECTORY = re.compile(r"node([0-9]{1,5})")
_POOL_DIRECTORY = re.compile(r"hugepages-([0-9]{1,12})kB")
_MEMORY_LINE = re.compile(r"Node +[0-9]+ +(MemTotal|MemFree): +([0-9]{1,15}) kB")
_FREE_PAGES_LINE = re.compile(r"^nr_free_pages +([0-9]{1,15})$", re.MULTILINE)
_PAGE_SIZES_KB = (4, 8, 16, 64, 256)
_DEFAULT_PAGE_SIZE_KB = 4


@dataclass(frozen=True, slots=True)
class CellMemory:
    """Amounts from a cell's ``meminfo``, in KiB."""

    total_kb: int
    free_kb: int = 0


def parse_cell_memory(text: str, source: str) -> CellMemory:
    r"""Parse the text of ``nodeN/meminfo``.

    Raises:
        HostDataError: MemTotal is missing; ``source`` names the cell's file.

    >>> parse_cell_memory("\nNode 0 MemTotal:     16772456 kB\n", "node0").total_kb
    16772456
    """
    amounts: dict[str, int] = {}
    for line in text.split("\n"):
        if match := _MEMORY_LINE.fullmatch(line.strip()):
            amounts.setdefault(match[1], int(match[2]))
    if "MemTotal" not in amounts:
        raise HostDataError(source, "has no MemTotal in kB")
    return CellMemory(amounts["MemTotal"], amounts.get("MemFree", 0))


def parse_distances(text: str, cell_ids: Sequence[int], source: str) -> dict[int, int]:
    r"""Parse one cell's ``distance`` file: a column per online cell in ascending id.

    Args:
        text: e.g. ``"10 21\n"``.
        cell_ids: ids of the online cells, ascending.
        source: the file, for the error.

    Returns:
        Cell id -> SLIT relative latency, 10 is local.

    Raises:
        HostDataError: the text is not one positive integer per cell.

    Source: Linux Documentation/ABI/stable/sysfs-devices-node.

    >>> parse_distances("10 21", [0, 2], "node0/distance")
    {0: 10, 2: 21}
    """
    columns = text.split()
    if len(columns) != len(cell_ids):
        raise HostDataError(source, "does not have one distance per online cell")
    distances = {
        cell_id: parse_integer(column, source)
        for cell_id, column in zip(cell_ids, columns, strict=True)
    }
    if any(distance <= 0 for distance in distances.values()):
        raise HostDataError(source, "has a distance that is not positive")
    return distances


def parse_page_size_kb(vmstat: str, free_kb: int) -> int | None:
    """Derive the base page size of another machine from its files.

    No file states it, but free memory is reported both in pages
    (``nodeN/vmstat``) and in KiB (``nodeN/meminfo``), read moments apart.

    Args:
        vmstat: the text of ``nodeN/vmstat``.
        free_kb: MemFree of the same cell.

    Returns:
        The page size nearest to their ratio, in KiB; None when either is missing or 0.
    """
    pages = _FREE_PAGES_LINE.search(vmstat)
    if pages is None or int(pages[1]) == 0 or free_kb == 0:
        return None
    ratio = free_kb / int(pages[1])
    return min(_PAGE_SIZES_KB, key=lambda size: max(size / ratio, ratio / size))


def build_page_pools(
    total_kb: int, huge_pages: Mapping[int, int], page_size_kb: int, source: str
) -> tuple[PagePool, ...]:
    """Return the pools of a cell in ascending page size.

    The smallest pool is the memory that is not in huge pages. A cell without
    memory has no pools.

    Args:
        total_kb: memory of the cell in KiB.
        huge_pages: page size in KiB -> number of pages, used or not.
        page_size_kb: the base page size in KiB.
        source: the directory of the cell, for the error.

    Raises:
        HostDataError: the huge pages exceed the memory.
    """
    left_kb = total_kb - sum(size * count for size, count in huge_pages.items())
    if left_kb < 0:
        raise HostDataError(source, "has more huge pages than memory")
    if total_kb == 0:
        return ()
    base = PagePool(page_size_kb, left_kb // page_size_kb)
    return (base, *(PagePool(size, count) for size, count in sorted(huge_pages.items())))


def read_numa_topology(
    roots: Roots, cpu: CpuInfo | None, page_size_kb: int | None = None
) -> NumaTopology:
    """Return the NUMA cells of the host.

    Args:
        roots: directories to read from.
        cpu: the processors of the same reading: cells contain only the online
            ones. None: cells contain the CPUs that the kernel lists, without
            cores and sockets.
        page_size_kb: base page size in KiB. None: this machine's when `roots`
            belong to it, else derived from the files, else 4.

    Returns:
        The cells; empty when the kernel has no NUMA directory.

    Raises:
        HostDataError: a cell cannot be read completely; the fact is held.

    Source: Linux Documentation/ABI/stable/sysfs-devices-node.
    """
    base = roots.sysfs / "devices/system/node"
    cell_ids = _read_online_cells(base)
    memory_of = {cell_id: _read_cell_memory(base, cell_id) for cell_id in cell_ids}
    if page_size_kb is None:
        page_size_kb = _read_page_size_kb(roots, base, memory_of)
    cells: list[NumaCell] = []
    seen: CpuSet = frozenset()
    for cell_id, memory in memory_of.items():
        directory = base / f"node{cell_id}"
        cpus = _read_cell_cpus(directory)
        if cpus & seen:
            raise HostDataError(str(directory), "shares a CPU with another cell")
        seen |= cpus
        if cpu is not None:
            cpus &= cpu.online
        huge_pages = _read_huge_pages(directory / "hugepages")
        cells.append(
            NumaCell(
                id=cell_id,
                cpus=cpus,
                memory_mb=capacity_mib_from_kib(memory.total_kb),
                siblings=_group_by_core(cpus, cpu),
                pages=build_page_pools(memory.total_kb, huge_pages, page_size_kb, str(directory)),
                socket=_find_socket(cpus, cpu),
                distances=_read_distances(base, cell_id, cell_ids),
            )
        )
    return NumaTopology(tuple(cells))


def _read_cell_memory(base: Path, cell_id: int) -> CellMemory:
    path = base / f"node{cell_id}" / "meminfo"
    return parse_cell_memory(read_text(path), str(path))


def _read_online_cells(base: Path) -> tuple[int, ...]:
    directories = {
        int(match[1])
        for name in list_directory(base) or ()
        if (match := _CELL_DIRECTORY.fullmatch(name))
    }
    path = base / "online"
    text = read_optional_text(path)
    if text is None or not directories:
        return tuple(sorted(directories))
    online = parse_cpu_list(text, str(path))
    if not online:
        raise HostDataError(str(path), "no cell is online")
    if not online <= directories:
        raise HostDataError(str(path), "lists a cell that has no directory")
    return tuple(sorted(online))


def _read_cell_cpus(directory: Path) -> CpuSet:
    path = directory / "cpulist"
    text = read_optional_text(path)
    if text is not None:
        return parse_cpu_list(text, str(path))
    path = directory / "cpumap"
    return parse_cpu_mask(read_text(path), str(path))


def _read_distances(base: Path, cell_id: int, online: tuple[int, ...]) -> dict[int, int]:
    """Return one cell's distances to the online cells; empty without the file.

    An offline cell may keep its column, so one column per possible cell is
    accepted as well as one per online cell.
    """
    path = base / f"node{cell_id}" / "distance"
    text = read_optional_text(path)
    if text is None:
        return {}
    if len(text.split()) != len(online):
        possible_path = base / "possible"
        possible = read_optional_text(possible_path)
        columns = sorted(parse_cpu_list(possible or "", str(possible_path)))
        if columns and len(text.split()) == len(columns):
            distances = parse_distances(text, columns, str(path))
            return {other: distances[other] for other in online if other in distances}
    return parse_distances(text, online, str(path))


def _read_huge_pages(directory: Path) -> dict[int, int]:
    huge_pages: dict[int, int] = {}
    for name in list_directory(directory) or ():
        match = _POOL_DIRECTORY.fullmatch(name)
        if match is None:
            continue
        path = directory / name / "nr_hugepages"
        count = parse_integer(read_text(path), str(path))
        if count < 0:
            raise HostDataError(str(path), "is negative")
        huge_pages[int(match[1])] = count
    return huge_pages


def _read_page_size_kb(roots: Roots, base: Path, memory_of: Mapping[int, CellMemory]) -> int:
    if is_this_machine(roots):
        return os.sysconf("SC_PAGE_SIZE") // 1024
    for cell_id, memory in memory_of.items():
        vmstat = read_optional_text(base / f"node{cell_id}" / "vmstat")
        if vmstat is not None and (size := parse_page_size_kb(vmstat, memory.free_kb)):
            return size
    return _DEFAULT_PAGE_SIZE_KB


def _group_by_core(cpus: CpuSet, cpu: CpuInfo | None) -> tuple[CpuSet, ...]:
    if cpu is None:
        return ()
    return tuple(sorted((core & cpus for core in cpu.siblings if core & cpus), key=min))


def _find_socket(cpus: CpuSet, cpu: CpuInfo | None) -> int | None:
    sockets = {cpu.socket_of.get(member) for member in cpus} if cpu else set()
    return sockets.pop() if len(sockets) == 1 else None
