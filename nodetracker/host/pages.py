"""Read the huge pages of NUMA cells and derive their pools of pages."""

import re
from collections.abc import Mapping
from pathlib import Path

from nodetracker.host.roots import list_directory, parse_integer, read_text
from nodetracker.model.errors import HostDataError
from nodetracker.model.numa import PagePool

_POOL_DIRECTORY = re.compile(r"hugepages-([0-9]{1,12})kB")
_FREE_PAGES_LINE = re.compile(r"^nr_free_pages +([0-9]{1,15})$", re.MULTILINE)
_PAGE_SIZES_KB = (4, 8, 16, 64, 256)


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


def read_huge_pages(directory: Path) -> dict[int, int]:
    """Return page size in KiB -> number of pages of a cell, used or not.

    Raises:
        HostDataError: a number cannot be read.
    """
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
