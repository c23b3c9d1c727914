"""Builders of NUMA hosts and requests for tests."""

from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.numa import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    HostCell,
    NumaRequest,
    PagePool,
)


def make_cell(
    cell_id=0, shared="", dedicated="", memory_mb=4096, siblings=(), huge=None, reserved=None
):
    """Build a host cell.

    Args:
        siblings: texts such as ``("0,4", "1,5")``.
        huge: page size in KiB -> total; the rest of the memory is 4 KiB pages.
        reserved: page size in KiB -> reserved pages.
    """
    huge, reserved = huge or {}, reserved or {}
    left_kb = memory_mb * 1024 - sum(size * total for size, total in huge.items())
    return HostCell(
        id=cell_id,
        shared=parse_cpu_set(shared),
        dedicated=parse_cpu_set(dedicated),
        memory_mb=memory_mb,
        siblings=tuple(parse_cpu_set(group) for group in siblings),
        pages=tuple(
            PagePool(size, total, reserved.get(size, 0))
            for size, total in [(4, left_kb // 4), *sorted(huge.items())]
        ),
    )


def make_request(*cells, threads=CpuThreadPolicy.PREFER, page_size=None):
    """Build a request from (vcpus, pcpus, memory_mb) triples."""
    guest_cells = tuple(GuestCell(*cell) for cell in cells)
    request = NumaRequest(guest_cells, cpu_thread_policy=threads, page_size=page_size)
    policy = CpuPolicy.SHARED
    if request.pcpus:
        policy = CpuPolicy.MIXED if request.vcpus else CpuPolicy.DEDICATED
    return NumaRequest(guest_cells, policy, threads, page_size)
