"""A node's NUMA cells: one if they overlap, as in its row, and their usage by assignments."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from nodetracker.model.claim import Claim
from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.guest import Guest, GuestPins
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
)
from nodetracker.model.pci import PciDevice
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

IS_LIMITED = "is_limited"
"""Key of the column ``numa_topology``, false if the host does not limit its cells; else absent."""


def decode_host_cells(column: Mapping[str, Any]) -> tuple[HostCell, ...]:
    """Decode the cells in a row's column ``numa_topology``, for admission by any writer.

    Args:
        column: as built by `inventory.numa_columns`, or ``{}``; its usage is
            ignored.
    """
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
        )
        for cell in column.get("cells", ())
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
    exclusive = frozenset[int]().union(*(part.exclusive_cpus for part in parts))
    return {
        cell.id: _sum_parts(
            [part for part in parts if part.host_cell == cell.id or len(cells) == 1],
            exclusive & cell.cpus,
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


def list_assignments(
    claims: Iterable[Claim], guests: Iterable[Guest]
) -> tuple[NumaAssignment, ...]:
    """Return the assignments of a node's active claims and unclaimed guests."""
    return (
        *(claim.numa for claim in claims if claim.is_active and claim.numa is not None),
        *(
            guest.pins.assignment
            for guest in guests
            if guest.claim_uuid is None and guest.pins.assignment is not None
        ),
    )


def restrict_pins(pins: GuestPins, policy: Policy) -> GuestPins:
    """Return a guest's pins, with pins outside of `cpu_dedicated_set` as shared CPUs.

    Claims pin only CPUs of that set, so pins to other CPUs do not affect them.
    The same applies to isolated CPUs.
    """
    dedicated = policy.cpu_dedicated_set or frozenset()
    cells = [
        replace(
            cell,
            vcpus=cell.vcpus + sum(cpu not in dedicated for cpu in cell.pins.values()),
            pins={guest: cpu for guest, cpu in cell.pins.items() if cpu in dedicated},
            isolated=cell.isolated & dedicated,
        )
        for cell in pins.cells
    ]
    return replace(pins, cells=tuple(cell for cell in cells if cell.uses_resources))


def topology_with_usage(
    column: Mapping[str, Any], usage: Mapping[int, CellUsage]
) -> dict[str, Any]:
    """Return the column ``numa_topology`` with its usage set, in Nova's fields.

    Only ``cpu_usage`` (shared CPUs), ``memory_usage`` (MiB), ``pinned_cpus``
    (including isolated ones) and each pool's ``used`` are set.

    Args:
        column: the current column, with or without usage.
        usage: from `sum_usage` for the column's cells.
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
                "pinned_cpus": sorted(used.pinned_cpus),
                "mempages": [
                    dict(pool) | {"used": used_pages[pool["size_kb"]]} for pool in item["mempages"]
                ],
            }
        )
    return dict(column) | ({"cells": shown} if "cells" in column else {})


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
