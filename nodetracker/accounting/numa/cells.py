"""A node's NUMA cells: one if they overlap, as in its row, and their usage by assignments."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from nodetracker.model.claim import Claim
from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.guest import CpuAffinity, Guest, GuestPins
from nodetracker.model.host import HostProblem
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import (
    CellAssignment,
    CellUsage,
    HostCell,
    NumaAssignment,
    NumaCell,
    NumaLimits,
    NumaTopology,
    PagePool,
    count_small,
)
from nodetracker.model.pci import PciDevice
from nodetracker.model.units import (
    MILLI,
    capacity_mib_from_kib,
    usage_mib_from_kib,
    usage_units_from_milli,
)

if TYPE_CHECKING:
    from nodetracker.model.settings import Policy


def merge_overlapping_cells(
    topology: NumaTopology, cores: Sequence[CpuSet], source: str
) -> NumaTopology:
    """Return the topology, or one cell with everything if two cells share a CPU.

    Linux lists a CPU in several cells when they are emulated (``numa=fake``).
    Claims cannot be placed on one of them then.

    Args:
        cores: the host's online CPUs by core; a core may be in two cells.
        source: where the topology was read, for the problem.
    """
    shared = frozenset[int]().union(
        *(one.cpus & other.cpus for one, other in combinations(topology.cells, 2))
    )
    if not shared:
        return topology
    text = f"several cells have CPU {render_cpu_set(shared)}; the node is treated as one cell"
    return NumaTopology(
        (_merge_cells(topology.cells, cores),), (*topology.problems, HostProblem(source, text))
    )


def locate_devices(devices: Iterable[PciDevice], cell_ids: Sequence[int]) -> tuple[PciDevice, ...]:
    """Return devices with their NUMA cells: on a host of one cell, all are in that cell.

    The cell that the kernel names may have been merged. A device whose cell is
    unknown is unchanged.

    Args:
        cell_ids: ids of the host's cells.
    """
    if len(cell_ids) != 1:
        return tuple(devices)
    (only,) = cell_ids
    return tuple(
        device if device.numa_node in {None, only} else replace(device, numa_node=only)
        for device in devices
    )


def _merge_cells(cells: tuple[NumaCell, ...], cores: Sequence[CpuSet]) -> NumaCell:
    totals: Counter[int] = Counter()
    reserved: Counter[int] = Counter()
    in_use: Counter[int] = Counter()
    unknown = set()
    for pool in (pool for cell in cells for pool in cell.pages):
        totals[pool.size_kb] += pool.total
        reserved[pool.size_kb] += pool.reserved
        in_use[pool.size_kb] += pool.in_use or 0
        if pool.in_use is None:
            unknown.add(pool.size_kb)
    cpus = frozenset[int]().union(*(cell.cpus for cell in cells))
    sockets = {cell.socket for cell in cells if cell.cpus}
    return NumaCell(
        id=min(cell.id for cell in cells),
        cpus=cpus,
        memory_mb=sum(cell.memory_mb for cell in cells),
        siblings=tuple(sorted((core & cpus for core in cores if core & cpus), key=min)),
        pages=tuple(
            PagePool(size, totals[size], reserved[size], None if size in unknown else in_use[size])
            for size in sorted(totals)
        ),
        socket=sockets.pop() if len(sockets) == 1 else None,
    )


NO_USAGE = CellUsage()

SPLIT_CORES = "split_cores"
"""Key of a cell in the column ``numa_topology``: its cores with threads in other cells, if any."""

IS_LIMITED = "is_limited"
"""Key of the column ``numa_topology``, false if the host does not limit its cells; else absent."""


IS_WITHHELD = "is_withheld_in_placement"
"""Key of the same, true if the host offers in placement no memory that only huge pages can take;
else absent."""

LOOSE_MB = "loose_huge_mb"
"""Key of the column ``numa_topology``: MiB on huge pages that guests have and that are assigned on
no cell, as they may be in several; absent if there are none."""


class HugePages(NamedTuple):
    """Huge pages of a node, and those on which guests and claims are charged, in MiB."""

    total_mb: int = 0
    used_mb: int = 0


def measure_huge_pages(column: Mapping[str, Any]) -> HugePages:
    """Return the huge pages of a row's column ``numa_topology``."""
    total_kb = used_kb = 0
    for cell in column.get("cells", ()):
        pools = sorted(cell["mempages"], key=lambda pool: pool["size_kb"])
        for pool in pools[count_small([pool["size_kb"] for pool in pools]) :]:
            total_kb += pool["size_kb"] * pool["total"]
            used_kb += pool["size_kb"] * (pool.get("used", 0) - pool.get("withheld", 0))
    used_mb = capacity_mib_from_kib(used_kb) + column.get(LOOSE_MB, 0)
    return HugePages(usage_mib_from_kib(total_kb), used_mb)


def count_huge_mb(cells: Sequence[HostCell], assignment: NumaAssignment | None) -> int:
    """Return the MiB of an assignment that are on huge pages of a node's cells."""
    if assignment is None or not any(part.pages for part in assignment.cells):
        return 0
    usage = sum_usage(cells, [assignment])
    return sum(usage[cell.id].memory_mb - usage[cell.id].ordinary_memory_mb(cell) for cell in cells)


def count_workload_mb(
    cells: Sequence[HostCell], claimed: Iterable[NumaAssignment], guest: Guest | None
) -> int:
    """Return the MiB of a workload on huge pages: the larger of its claims and its guest.

    Those of a guest to which no claim is assigned are added to them.

    Args:
        claimed: assignments of its active claims.
        guest: its guest; a missing one does not count.
    """
    own_mb = sum(count_huge_mb(cells, assignment) for assignment in claimed)
    if guest is None or guest.missing_since is not None:
        return own_mb
    guest_mb = count_huge_mb(cells, guest.pins.assignment) + guest.pins.loose_mb
    return own_mb + guest_mb if guest.claim_uuid is None else max(own_mb, guest_mb)


def decode_host_cells(column: Mapping[str, Any]) -> tuple[HostCell, ...]:
    """Decode the cells in a row's column ``numa_topology``, for admission by any writer.

    Args:
        column: as built by `inventory.numa_columns`, or ``{}``; its usage is
            ignored.
    """
    entries = column.get("cells", ())
    shared = frozenset[int]().union(*(cell["cpuset"] for cell in entries))
    offered = shared.union(*(cell["pcpuset"] for cell in entries))
    return tuple(
        HostCell(
            id=cell["id"],
            shared=frozenset(cell["cpuset"]),
            dedicated=frozenset(cell["pcpuset"]),
            memory_mb=cell["memory"],
            siblings=tuple(frozenset(group) for group in cell["siblings"]),
            pages=tuple(
                sorted(
                    (
                        PagePool(
                            pool["size_kb"],
                            pool["total"],
                            pool["reserved"],
                            withheld=pool.get("withheld", 0),
                        )
                        for pool in cell["mempages"]
                    ),
                    key=lambda pool: pool.size_kb,
                )
            ),
            networks=frozenset(cell.get("networks", ())),
            split_cores=tuple(offered.intersection(core) for core in cell.get(SPLIT_CORES, ())),
            shared_elsewhere=(
                shared.intersection(chain(*cell.get(SPLIT_CORES, ()))).difference(cell["cpuset"])
            ),
        )
        for cell in entries
    )


def find_near_cells(column: Mapping[str, Any]) -> dict[int, frozenset[int]]:
    """Return which cells are near a device of each cell of a row's column ``numa_topology``.

    A cell is near itself. A cell without CPUs, such as a GPU's own memory, is near those with
    CPUs at the least distance, and near all of them if the distances are unknown.
    """
    cells = decode_host_cells(column)
    usable = frozenset(cell.id for cell in cells if cell.cpus)
    near = {cell.id: frozenset({cell.id}) for cell in cells}
    for entry in column.get("cells", ()):
        if entry["id"] not in usable and usable:
            known = entry.get("distances", {})
            distances = {cell: known[str(cell)] for cell in usable if str(cell) in known}
            least = min(distances.values(), default=None)
            near[entry["id"]] = frozenset(cell for cell in usable if distances.get(cell) == least)
    return near


def cell_limits(values: NodeValues) -> NumaLimits:
    """Return the limits of a node's cells: its ratios, none if its host does not limit cells."""
    if not values.numa_topology.get(IS_LIMITED, True):
        return NumaLimits()
    return NumaLimits(values.cpu_allocation_ratio, values.ram_allocation_ratio)


def sum_usage(
    cells: Collection[HostCell], assignments: Iterable[NumaAssignment]
) -> dict[int, CellUsage]:
    """Add up the assignments of claims and the pins of unclaimed guests.

    The sum is always computed from scratch, so removed assignments leave no
    remainder. A pinned CPU counts for the cell that contains it, whatever cell
    its assignment names, as firmware may renumber cells. A CPU that two
    assignments pin counts once; `find_conflicts` reports it. On a host of one
    cell everything counts for it: assignments remain when cells are merged.

    Returns:
        Host cell id -> its usage, for each of `cells`.
    """
    parts = [part for assignment in assignments for part in assignment.cells]
    exclusive = _list_exclusive(parts)
    return {
        cell.id: _sum_parts(
            [part for part in parts if part.host_cell == cell.id or len(cells) == 1],
            exclusive & cell.cpus.union(*cell.split_cores),
        )
        for cell in cells
    }


def _sum_parts(parts: Sequence[CellAssignment], pinned_cpus: CpuSet) -> CellUsage:
    pages: Counter[int] = Counter()
    for part in parts:
        if part.page_size_kb is not None:
            pages[part.page_size_kb] += part.pages
    return CellUsage(
        pinned_cpus=pinned_cpus,
        shared_vcpus=sum(part.vcpus for part in parts),
        memory_mb=sum(part.memory_mb for part in parts),
        pages=dict(sorted(pages.items())),
    )


def list_assignments(claims: Iterable[Claim], guests: Iterable[Guest]) -> list[NumaAssignment]:
    """Return the assignments of a node's active claims, and what its guests take beside them."""
    return [*list_claim_assignments(claims), *list_guest_assignments(guests).values()]


def list_claim_assignments(claims: Iterable[Claim]) -> list[NumaAssignment]:
    """Return the assignments of a node's active claims."""
    return [claim.numa for claim in claims if claim.is_active and claim.numa is not None]


def list_guest_assignments(guests: Iterable[Guest]) -> dict[str, NumaAssignment]:
    """Return uuid of a guest -> what it takes of a node's cells beside claims."""
    found = {guest.uuid: assignment_of(guest) for guest in guests}
    return {uuid: numa for uuid, numa in found.items() if numa is not None}


def assignment_of(guest: Guest) -> NumaAssignment | None:
    """Return what a guest takes of a node's cells beside its claims.

    Of a guest with a claim that is the CPUs that it is bound to, as nobody else may be pinned
    to these, whatever CPUs its claim has; all else is the claim's.
    """
    numa = guest.pins.assignment
    if numa is None or guest.missing_since is not None:
        return None
    return numa if guest.claim_uuid is None else keep_exclusive(numa)


def keep_exclusive(numa: NumaAssignment) -> NumaAssignment | None:
    """Return the CPUs alone to which no other guest may be pinned, None without any."""
    cells = tuple(
        CellAssignment(cell.host_cell, isolated=cell.exclusive_cpus)
        for cell in numa.cells
        if cell.exclusive_cpus
    )
    return NumaAssignment(cells) if cells else None


def count_named(claims: Iterable[NumaAssignment], guests: Iterable[NumaAssignment]) -> int:
    """Return how many dedicated CPUs guests name without a claim or a pin being charged for them.

    Guests may move among the same CPUs, so their sets count together. Siblings that
    claims keep free are not among them.

    Args:
        guests: from `assignment_of`.
    """
    guests = list(guests)
    named = (part.isolated for guest in guests for part in guest.cells)
    pinned = (part.pins.values() for numa in (*claims, *guests) for part in numa.cells)
    return len(frozenset[int]().union(*named).difference(*pinned))


def count_named_of(claims: Iterable[Claim], guests: Iterable[Guest]) -> int:
    """Return `count_named` of a node's claims and guests."""
    return count_named(list_claim_assignments(claims), list_guest_assignments(guests).values())


def list_moved_pins(
    claims: Iterable[Claim], guests: Iterable[Guest], policy: "Policy"
) -> dict[str, CpuSet]:
    """Return name of a workload -> CPUs that are its own though they are dedicated no more.

    Args:
        guests: with the pins that `restrict_pins` returned.
    """
    dedicated = policy.cpu_dedicated_set or frozenset()
    names: dict[str, str] = {}
    found: dict[str, CpuSet] = {}
    for guest in guests:
        names[guest.uuid] = guest.name or guest.uuid
        found[names[guest.uuid]] = _list_exclusive(guest.pins.cells) - dedicated
    for claim in claims:
        if claim.is_active and claim.numa is not None:
            name = names.get(claim.workload.uuid) or claim.workload.name or claim.workload.uuid
            moved = _list_exclusive(claim.numa.cells) - dedicated
            found[name] = found.get(name, frozenset()) | moved
    return {name: cpus for name, cpus in found.items() if cpus}


def _list_exclusive(cells: Iterable[CellAssignment]) -> CpuSet:
    return frozenset[int]().union(*(cell.exclusive_cpus for cell in cells))


def restrict_pins(
    pins: GuestPins,
    policy: "Policy",
    cell_cpus: Mapping[int, CpuSet] = MappingProxyType({}),
    kept: CpuSet = frozenset(),
) -> GuestPins:
    """Return a guest's pins as they count: only dedicated CPUs are taken by it alone.

    Claims pin only CPUs of `cpu_dedicated_set`, so a pin to another one is a shared CPU.
    A set that the guest names takes the dedicated CPUs in it, unless it has all of the host's. Its
    CPUs that move there take shared CPUs, but no more than the set has if it has dedicated ones.
    They count in the cell of the set; those of a set of several cells, in each if they are as
    many as it has, else in none.

    The result is the same for pins that were restricted before.

    Args:
        cell_cpus: id of each host cell -> its online CPUs.
        kept: CPUs that it was pinned to while they were dedicated, which it keeps.
    """
    dedicated = policy.cpu_dedicated_set or frozenset()
    pinnable = dedicated | kept
    online = frozenset[int]().union(*cell_cpus.values())
    cells = [
        replace(
            cell,
            vcpus=cell.vcpus + sum(cpu not in pinnable for cpu in cell.pins.values()),
            pins={guest: cpu for guest, cpu in cell.pins.items() if cpu in pinnable},
            isolated=cell.isolated & dedicated,
        )
        for cell in pins.cells
    ]
    pinned = frozenset[int]().union(*(cell.pins.values() for cell in cells))
    affinities = []
    for affinity in pins.affinities:
        named = affinity.cpus & online
        taken = frozenset[int]() if named == online else named & dedicated
        milli = (
            min(affinity.vcpu_milli, len(named - taken) * MILLI) if taken else affinity.vcpu_milli
        )
        if taken:
            affinities.append(CpuAffinity(taken, affinity.vcpu_milli - milli))
        vcpus = usage_units_from_milli(milli)
        is_whole = usage_units_from_milli(affinity.vcpu_milli) == len(named)
        at = {cell_id: cpus & named for cell_id, cpus in cell_cpus.items() if cpus & named}
        for cell_id, cpus in at.items():
            in_cell = vcpus if len(at) == 1 else len(cpus - taken) if is_whole else 0
            _add_to_cell(cells, CellAssignment(cell_id, in_cell, isolated=cpus & taken - pinned))
    used = (cell for cell in cells if cell.uses_resources)
    return replace(
        pins,
        cells=tuple(sorted(used, key=lambda cell: cell.host_cell)),
        affinities=tuple(affinities),
    )


def _add_to_cell(cells: list[CellAssignment], more: CellAssignment) -> None:
    """Add the shared and the isolated CPUs of `more` to the first assignment on its host cell."""
    for index, cell in enumerate(cells):
        if cell.host_cell == more.host_cell:
            cells[index] = replace(
                cell, vcpus=cell.vcpus + more.vcpus, isolated=cell.isolated | more.isolated
            )
            return
    cells.append(more)


def topology_with_usage(
    column: Mapping[str, Any], usage: Mapping[int, CellUsage], loose_mb: int = 0
) -> dict[str, Any]:
    """Return the column ``numa_topology`` with its usage set, in Nova's fields.

    Only ``cpu_usage`` (shared CPUs), ``memory_usage`` (MiB), ``pinned_cpus``
    (including isolated ones), each pool's ``used`` and `LOOSE_MB` are set.

    Args:
        column: the current column, with or without usage.
        usage: from `sum_usage` for the column's cells.
        loose_mb: see `LOOSE_MB`.
    """
    shown = []
    cells = decode_host_cells(column)
    for item, cell in zip(column.get("cells", ()), cells, strict=True):
        used = usage.get(cell.id, NO_USAGE)
        used_pages = {pool.size_kb: used.used_pages(cell, pool) for pool in cell.pages}
        shown.append(
            dict(item)
            | {
                "cpu_usage": used.shared_vcpus,
                "memory_usage": used.memory_mb,
                "pinned_cpus": sorted(used.pinned_cpus & cell.cpus),
                "mempages": [
                    dict(pool) | {"used": used_pages[pool["size_kb"]]} for pool in item["mempages"]
                ],
            }
        )
    others = {name: value for name, value in column.items() if name != LOOSE_MB}
    loose = {LOOSE_MB: loose_mb} if loose_mb else {}
    return others | ({"cells": shown} if "cells" in column else {}) | loose


def find_conflicts(
    cells: Sequence[HostCell], assignments: Mapping[str, NumaAssignment]
) -> tuple[str, ...]:
    """Return which CPUs are pinned twice and which page pools are overcommitted.

    Pages of ordinary memory count only if they were requested by size, as
    it may be overcommitted.

    Args:
        assignments: by the claim's or guest's uuid.

    Returns:
        One line for each conflict.
    """
    owners: dict[int, list[str]] = {}
    for uuid, assignment in sorted(assignments.items()):
        for part in assignment.cells:
            for cpu in sorted([*part.pins.values(), *part.isolated]):
                owners.setdefault(cpu, []).append(uuid)
    found = [
        f"CPU {cpu} is used by {' and '.join(uuids)}"
        for cpu, uuids in sorted(owners.items())
        if len(uuids) > 1
    ]
    usage = sum_usage(cells, assignments.values())
    for cell in cells:
        pools = {pool.size_kb: pool.total - pool.reserved - pool.withheld for pool in cell.pages}
        for size, count in usage[cell.id].pages.items():
            if count > pools.get(size, 0):
                available = max(0, pools.get(size, 0))
                found.append(
                    f"host cell {cell.id} has {available} of {count} used pages of {size} KiB"
                )
    return tuple(found)
