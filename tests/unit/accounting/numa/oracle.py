"""Oracle of NUMA assignment: a second, simple implementation that tries everything.

It shares only value types with the code under test. A host's state is
recomputed from the assignments in each call.
"""

import itertools
from collections import Counter

from nodetracker.model.numa import CpuPolicy, CpuThreadPolicy, PageSize


def can_fit(request, cells, assignments, limits, accepts, held=()):
    """Return whether any assignment of distinct host cells works.

    Args:
        held: the assignments of the workload itself, of which it may have as much again.
    """
    return any(
        accepts(tuple(sorted(cell.id for cell in chosen)))
        and all(
            _has_room(guest, request, cell, assignments, limits, held)
            for guest, cell in zip(request.cells, chosen, strict=True)
        )
        for chosen in itertools.permutations(cells, len(request.cells))
    )


def faults_of(assignment, request, cells, assignments, limits, accepts, held=()):
    """Return the errors of an assignment that was granted in addition to `assignments`."""
    ids = [part.host_cell for part in assignment.cells]
    if len(set(ids)) != len(request.cells) or not accepts(tuple(sorted(ids))):
        return ["cells"]
    by_id = {cell.id: cell for cell in cells}
    faults = []
    first = 0
    for part, guest in zip(assignment.cells, request.cells, strict=True):
        cell = by_id[part.host_cell]
        numbers = list(range(first + guest.vcpus, first + guest.vcpus + guest.pcpus))
        first += guest.vcpus + guest.pcpus
        if (part.vcpus, part.memory_mb) != (guest.vcpus, guest.memory_mb):
            faults.append("amounts")
        if sorted(part.pins) != numbers or len(set(part.pins.values())) != guest.pcpus:
            faults.append("guest CPUs")
        if not _may_pin(part.pins.values(), request.cpu_thread_policy, cell, assignments):
            faults.append("pins")
        if part.isolated != _isolated(part.pins.values(), request.cpu_thread_policy, cell):
            faults.append("isolated")
        sizes = _page_sizes(guest, request, cell, assignments)
        if request.page_size is None:
            if (part.page_size_kb, part.pages) != (None, 0):
                faults.append("pages that were not requested")
        elif part.page_size_kb != max(sizes, default=0):
            faults.append("page size")
        elif part.pages * part.page_size_kb != guest.memory_mb * 1024:
            faults.append("pages")
        if not _has_room(guest, request, cell, assignments, limits, held):
            faults.append("room")
    return faults


def _has_room(guest, request, cell, assignments, limits, held):
    used = [
        part for assignment in assignments for part in assignment.cells if part.host_cell == cell.id
    ]
    if guest.vcpus > len(cell.shared):
        return False
    floating = guest.vcpus + sum(part.vcpus for part in used)
    own = sum(part.vcpus for one in held for part in one.cells if part.host_cell == cell.id)
    ratio = limits.cpu_allocation_ratio
    if guest.vcpus > own and ratio is not None and floating > len(cell.shared) * ratio:
        return False
    free = cell.dedicated - _taken(assignments)
    if not any(
        _may_pin(some, request.cpu_thread_policy, cell, assignments)
        for some in itertools.combinations(sorted(free), guest.pcpus)
    ):
        return False
    if request.page_size is not None:
        return bool(_page_sizes(guest, request, cell, assignments))
    total = _ordinary_mb(cell)
    ratio = limits.ram_allocation_ratio if request.cpu_policy is CpuPolicy.SHARED else 1
    if guest.memory_mb <= _ordinary_used_mb(cell, held) or ratio is None:
        return guest.memory_mb <= total
    promised = guest.memory_mb + _ordinary_used_mb(cell, assignments)
    return guest.memory_mb <= total and promised <= total * ratio


def _may_pin(cpus, policy, cell, assignments):
    cpus = set(cpus)
    free = cell.dedicated - _taken(assignments)
    if not cpus <= free:
        return False
    mine = Counter(_core_of(cpu, cell) for cpu in cpus)
    if policy is CpuThreadPolicy.ISOLATE:
        return all(
            count == 1 and core & (cell.shared | cell.dedicated) <= free
            for core, count in mine.items()
        )
    if policy is CpuThreadPolicy.REQUIRE:
        alone = [core for core, count in mine.items() if count == 1]
        return len(alone) <= 1 and all(len(core & free) >= 2 for core in mine)
    return True


def _isolated(cpus, policy, cell):
    if policy is not CpuThreadPolicy.ISOLATE:
        return frozenset()
    cores = frozenset().union(*(_core_of(cpu, cell) for cpu in cpus))
    return (cores & cell.dedicated) - set(cpus)


def _core_of(cpu, cell):
    return next((core for core in cell.siblings if cpu in core), frozenset({cpu}))


def _taken(assignments):
    return {
        cpu
        for assignment in assignments
        for part in assignment.cells
        for cpu in [*part.pins.values(), *part.isolated]
    }


def _page_sizes(guest, request, cell, assignments):
    """Return the sizes that the request allows and that have enough free pages."""
    sizes = [pool.size_kb for pool in cell.pages]
    allowed = {
        PageSize.SMALL: [size for size in sizes if size <= 64],
        PageSize.LARGE: [size for size in sizes if size > 64],
        PageSize.ANY: sizes,
    }.get(request.page_size, [request.page_size])
    return {
        pool.size_kb
        for pool in cell.pages
        if pool.size_kb in allowed
        and guest.memory_mb * 1024 % pool.size_kb == 0
        and guest.memory_mb * 1024 <= _free_kb(pool, cell, assignments)
    }


def _free_kb(pool, cell, assignments):
    total_kb = (pool.total - pool.reserved) * pool.size_kb
    if pool.size_kb <= 64:
        return total_kb - _ordinary_used_mb(cell, assignments) * 1024
    return total_kb - sum(
        part.pages * pool.size_kb
        for assignment in assignments
        for part in assignment.cells
        if (part.host_cell, part.page_size_kb) == (cell.id, pool.size_kb)
    )


def _ordinary_mb(cell):
    for pool in cell.pages:
        if pool.size_kb <= 64:
            return max(0, pool.total - pool.reserved) * pool.size_kb // 1024
    return cell.memory_mb - sum(pool.total * pool.size_kb // 1024 for pool in cell.pages)


def _ordinary_used_mb(cell, assignments):
    huge = {pool.size_kb for pool in cell.pages if pool.size_kb > 64}
    return sum(
        part.memory_mb
        for assignment in assignments
        for part in assignment.cells
        if part.host_cell == cell.id and part.page_size_kb not in huge
    )
