"""Read the host's NUMA cells, addressed by the kernel's node ids, which may have gaps."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nodetracker.accounting.numa.cells import merge_overlapping_cells
from nodetracker.model.cpuset import CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.model.units import capacity_mib_from_kib
from nodetracker.virt.host.cpu import parse_cpu_list, parse_cpu_mask
from nodetracker.virt.host.memory import parse_meminfo
from nodetracker.virt.host.roots import (
    Problems,
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    path_exists,
    read_integer,
    read_optional_text,
    read_text,
)

_POOL_DIRECTORY = re.compile(r"hugepages-([0-9]{1,12})kB")
_FREE_PAGES_LINE = re.compile(r"^nr_free_pages +([0-9]{1,15})$", re.MULTILINE)
_PAGE_SIZES_KB = (4, 8, 16, 64, 256)
_CELL_DIRECTORY = re.compile(r"node([0-9]{1,5})")
_MEMORY_LINE = re.compile(r"Node +[0-9]+ +(MemTotal|MemFree): +([0-9]{1,15}) kB")
_DEFAULT_PAGE_SIZE_KB = 4


@dataclass(frozen=True, slots=True)
class CellMemory:
    """Amounts from a cell's ``meminfo``, in KiB."""

    total_kb: int
    free_kb: int = 0


@dataclass(frozen=True, slots=True)
class _CellFiles:
    """What the files of one cell contain."""

    id: int
    cpus: CpuSet
    memory: CellMemory
    huge_pages: tuple[PagePool, ...]


def read_numa_topology(roots: Roots, cpu: CpuInfo | None) -> NumaTopology:
    """Return the NUMA cells of the host.

    Args:
        cpu: the processors of the same reading: cells contain only the online
            ones. None: cells contain the CPUs that the kernel lists, without
            cores and sockets.

    Returns:
        The cells; empty when the kernel has no NUMA directory, unless it has huge pages:
        then one cell. Cells that share a CPU are one cell, and one that is removed
        meanwhile is left out.

    Raises:
        HostDataError: the CPUs, memory or huge pages of a cell cannot be read;
            the fact is held.

    Source: Linux Documentation/ABI/stable/sysfs-devices-node.
    """
    base = roots.sysfs / "devices/system/node"
    problems = Problems(base)
    cell_ids = _read_online_cells(base, problems)
    read = (_read_cell(base, cell_id, problems) for cell_id in cell_ids)
    found = [cell for cell in read if cell is not None] or _read_without_cells(roots, cpu, problems)
    page_size_kb = _read_page_size_kb(roots, base, found, problems)
    cells = tuple(
        NumaCell(
            id=cell.id,
            cpus=cell.cpus if cpu is None else cell.cpus & cpu.online,
            memory_mb=capacity_mib_from_kib(cell.memory.total_kb),
            siblings=_group_by_core(cell.cpus, cpu),
            pages=build_page_pools(
                cell.memory.total_kb, cell.huge_pages, page_size_kb, str(base / f"node{cell.id}")
            ),
            socket=_find_socket(cell.cpus if cpu is None else cell.cpus & cpu.online, cpu),
            distances=_read_distances(base, cell.id, cell_ids, problems),
        )
        for cell in found
    )
    cores = cpu.siblings if cpu else ()
    topology = merge_overlapping_cells(NumaTopology(cells), cores, str(base))
    committed = (
        read_committed_pages(roots, problems) if any(len(cell.pages) > 1 for cell in cells) else {}
    )
    return replace(
        topology,
        problems=(*topology.problems, *problems.list_all()),
        committed_pages=committed,
    )


def _read_online_cells(base: Path, problems: Problems) -> tuple[int, ...]:
    directories = {
        int(match[1])
        for name in list_directory(base) or ()
        if (match := _CELL_DIRECTORY.fullmatch(name))
    }
    path = base / "online"

    def read() -> set[int]:
        text = read_optional_text(path)
        if text is None or not directories:
            return directories
        online = parse_cpu_list(text, str(path))
        if not online:
            raise HostDataError(str(path), "lists no cell")
        if not online <= directories:
            raise HostDataError(str(path), "lists a cell that has no directory")
        return set(online)

    cost = "every cell that has a directory counts"
    return tuple(sorted(problems.attempt(read, directories, cost)))


def _read_cell(base: Path, cell_id: int, problems: Problems) -> _CellFiles | None:
    """Return what a cell's files contain, None when the cell has been removed."""
    directory = base / f"node{cell_id}"
    try:
        memory = _read_cell_memory(base, cell_id)
        cpus = _read_cell_cpus(directory, problems)
        huge_pages = read_huge_pages(directory / "hugepages", problems)
        return _CellFiles(cell_id, cpus, memory, huge_pages)
    except HostDataError:
        if not path_exists(directory):
            return None
        raise


def _read_without_cells(roots: Roots, cpu: CpuInfo | None, problems: Problems) -> list[_CellFiles]:
    """Return the machine as one cell if it has huge pages, of a kernel built without NUMA."""
    huge_pages = read_huge_pages(roots.sysfs / "kernel/mm/hugepages", problems)
    if cpu is None or not any(pool.total for pool in huge_pages):
        return []
    path = roots.procfs / "meminfo"
    return [
        _CellFiles(
            0,
            cpu.online,
            CellMemory(parse_meminfo(read_text(path), str(path)).total_kb),
            huge_pages,
        )
    ]


def _read_cell_memory(base: Path, cell_id: int) -> CellMemory:
    path = base / f"node{cell_id}" / "meminfo"
    return parse_cell_memory(read_text(path), str(path))


def _read_cell_cpus(directory: Path, problems: Problems) -> CpuSet:
    """Return a cell's CPUs, from the file of old kernels when the other one cannot be used."""
    path, mask = directory / "cpulist", directory / "cpumap"
    try:
        text = read_optional_text(path)
        if text == "":  # a cell without CPUs has an empty line
            raise HostDataError(str(path), "is empty")
        if text is not None:
            return parse_cpu_list(text, str(path))
    except HostDataError as error:
        if not path_exists(mask):
            raise
        problems.add(error.source, error.reason, "cpumap is used")
    return parse_cpu_mask(read_text(mask), str(mask))


def _read_distances(
    base: Path, cell_id: int, online: tuple[int, ...], problems: Problems
) -> dict[int, int]:
    """Return one cell's distances to the online cells; empty without a usable file.

    An offline cell may keep its column, so one column per possible cell is
    accepted as well as one per online cell.
    """
    path = base / f"node{cell_id}" / "distance"

    def read() -> dict[int, int]:
        text = read_optional_text(path)
        if text is None:
            return {}
        if len(text.split()) != len(online):
            possible_path = base / "possible"
            possible = read_optional_text(possible_path)
            columns = sorted(parse_cpu_list(possible or "", str(possible_path)))
            if possible is not None and not columns:
                raise HostDataError(str(possible_path), "lists no cell")
            if columns and len(text.split()) == len(columns):
                distances = parse_distances(text, columns, str(path))
                return {other: distances[other] for other in online if other in distances}
        return parse_distances(text, online, str(path))

    return problems.attempt(read, {}, "the cell's distances are unknown")


def _group_by_core(cpus: CpuSet, cpu: CpuInfo | None) -> tuple[CpuSet, ...]:
    if cpu is None:
        return ()
    return tuple(sorted((core & cpus for core in cpu.siblings if core & cpus), key=min))


def _find_socket(cpus: CpuSet, cpu: CpuInfo | None) -> int | None:
    sockets = {cpu.socket_of.get(member) for member in cpus} if cpu else set()
    return sockets.pop() if len(sockets) == 1 else None


def _read_page_size_kb(
    roots: Roots, base: Path, cells: Sequence[_CellFiles], problems: Problems
) -> int:
    """Return the base page size: this machine's, or derived from the files, or else 4 KiB."""
    if is_this_machine(roots):
        return os.sysconf("SC_PAGE_SIZE") // 1024
    for cell in cells:
        path = base / f"node{cell.id}" / "vmstat"
        cost = "the page size is derived from another cell, or is 4 KiB"
        vmstat = problems.attempt(partial(read_optional_text, path), None, cost)
        if vmstat is not None and (size := parse_page_size_kb(vmstat, cell.memory.free_kb)):
            return size
    return _DEFAULT_PAGE_SIZE_KB


def parse_page_size_kb(vmstat: str, free_kb: int) -> int | None:
    """Derive the base page size of another machine from its files.

    No file states it, but free memory is reported both in pages
    (``nodeN/vmstat``) and in KiB (``nodeN/meminfo``), read moments apart.

    Returns:
        The page size nearest to their ratio, in KiB; None when either is missing or 0.
    """
    pages = _FREE_PAGES_LINE.search(vmstat)
    if pages is None or int(pages[1]) == 0 or free_kb == 0:
        return None
    ratio = free_kb / int(pages[1])
    return min(_PAGE_SIZES_KB, key=lambda size: max(size / ratio, ratio / size))


def read_huge_pages(directory: Path, problems: Problems) -> tuple[PagePool, ...]:
    """Return the pools of huge pages of a cell in ascending page size."""
    pools = []
    for name in list_directory(directory) or ():
        match = _POOL_DIRECTORY.fullmatch(name)
        if match is None:
            continue
        path = directory / name / "nr_hugepages"
        total = read_integer(path)
        if total < 0:
            raise HostDataError(str(path), "is negative")
        free = None
        if total:
            cost = "the number of pages that are in use is unknown"
            free_path = directory / name / "free_hugepages"
            free = problems.attempt(partial(_read_free, free_path), None, cost)
        in_use = None if free is None else max(0, total - free)
        pools.append(PagePool(int(match[1]), total, in_use=in_use))
    return tuple(sorted(pools, key=lambda pool: pool.size_kb))


def read_committed_pages(roots: Roots, problems: Problems) -> dict[int, int]:
    """Return the huge pages that are committed and free, by their size in KiB.

    Source: Linux Documentation/admin-guide/mm/hugetlbpage.rst, resv_hugepages: the kernel
    counts them for the machine, not for its cells.
    """
    directory = roots.sysfs / "kernel/mm/hugepages"
    cost = "free huge pages may be committed to programs"
    found = {}
    for name in problems.attempt(partial(list_directory, directory), None, cost) or ():
        match = _POOL_DIRECTORY.fullmatch(name)
        read = partial(_read_free, directory / name / "resv_hugepages")
        committed = problems.attempt(read, None, cost) if match else None
        if match and committed:
            found[int(match[1])] = committed
    return found


def _read_free(path: Path) -> int | None:
    text = read_optional_text(path)
    free = None if text is None else parse_integer(text, str(path))
    if free is not None and free < 0:
        raise HostDataError(str(path), "is negative")
    return free


def build_page_pools(
    total_kb: int, huge_pages: Sequence[PagePool], page_size_kb: int, source: str
) -> tuple[PagePool, ...]:
    """Return the pools of a cell in ascending page size.

    The smallest pool is the memory that is not in huge pages. A cell without
    memory has no pools.

    Args:
        huge_pages: in ascending page size.

    Raises:
        HostDataError: the huge pages exceed the memory.
    """
    left_kb = total_kb - sum(pool.size_kb * pool.total for pool in huge_pages)
    if left_kb < 0:
        raise HostDataError(source, "has more huge pages than memory")
    if total_kb == 0:
        return ()
    return (PagePool(page_size_kb, left_kb // page_size_kb), *huge_pages)


def parse_cell_memory(text: str, source: str) -> CellMemory:
    r"""Parse the text of ``nodeN/meminfo``.

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

    Returns:
        Cell id -> SLIT relative latency, 10 is local.

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
