"""What the NUMA cells of a node offer, and what stored placements take of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodetracker.cpuset import CpuSet
from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.numa import PagePool
from nodetracker.model.numa_host import CellUsage, HostCell
from nodetracker.model.numa_placement import CellPlacement, NumaPlacement
from nodetracker.settings import Policy

NO_USAGE = CellUsage()


def decode_host_cells(column: Mapping[str, Any]) -> tuple[HostCell, ...]:
    """Return the cells that a row's column ``numa_topology`` holds, so that any writer can admit.

    Args:
        column: as `inventory.numa_columns` builds it, or ``{}``; the usage in
            it is left aside.
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
                        PagePool(pool["size_kb"], pool["total"], pool["reserved"])
                        for pool in cell["mempages"]
                    ),
                    key=lambda pool: pool.size_kb,
                )
            ),
            networks=frozenset(cell.get("networks", ())),
        )
        for cell in column.get("cells", ())
    )


def sum_usage(
    cells: Iterable[HostCell], placements: Iterable[NumaPlacement]
) -> dict[int, CellUsage]:
    """Add placements up: those of claims, and the pins of guests that no claim covers.

    The sum is always taken anew, so what is not in `placements` any more
    leaves nothing behind. A pinned CPU counts where it is, whatever cell the
    placement names, as firmware may number cells anew. One that two
    placements pin counts once; `find_conflicts` tells of it.

    Returns:
        Host cell id -> what is promised of it, for each of `cells`.
    """
    parts = [part for placement in placements for part in placement.cells]
    taken = frozenset[int]().union(*(part.exclusive_cpus for part in parts))
    return {
        cell.id: _sum_parts(
            [part for part in parts if part.host_cell == cell.id], taken & cell.cpus
        )
        for cell in cells
    }


def _sum_parts(parts: Sequence[CellPlacement], pinned_cpus: CpuSet) -> CellUsage:
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


def list_placements(claims: Iterable[Claim], guests: Iterable[Guest]) -> tuple[NumaPlacement, ...]:
    """Return all that counts on a node's cells: active claims, and guests that none covers."""
    return (
        *(claim.numa for claim in claims if claim.is_active and claim.numa is not None),
        *(
            guest.pins.placement
            for guest in guests
            if guest.claim_uuid is None and guest.pins.placement is not None
        ),
    )


def offered_pins(pins: GuestPins, policy: Policy) -> GuestPins:
    """Return a guest's pins with those to CPUs that are not for pinning as floating ones.

    Without `cpu_dedicated_set` no CPU may be pinned by claims, so a pin is a
    matter between the guest and whoever made it. The same holds for CPUs that
    a guest keeps empty.
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
    """Return the column ``numa_topology`` with its usage put in, in Nova's fields.

    Only ``cpu_usage`` (floating CPUs), ``memory_usage`` (MiB), ``pinned_cpus``
    (with those kept free for isolation) and each pool's ``used`` are set.

    Args:
        column: the column as it stands, with or without usage in it.
        usage: as `sum_usage` gives it for the column's cells.
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
    cells: Sequence[HostCell], placements: Mapping[str, NumaPlacement]
) -> tuple[str, ...]:
    """Say which CPUs are pinned twice and which pages are promised twice.

    Pages of the smallest size count only where they were asked by their
    size: ordinary memory may be overcommitted.

    Args:
        placements: by the claim's or guest's uuid.

    Returns:
        One line for each conflict; none when all is well.
    """
    owners: dict[int, list[str]] = {}
    for uuid, placement in sorted(placements.items()):
        for part in placement.cells:
            for cpu in sorted([*part.pins.values(), *part.isolated]):
                owners.setdefault(cpu, []).append(uuid)
    found = [
        f"CPU {cpu} is taken by {' and '.join(uuids)}"
        for cpu, uuids in sorted(owners.items())
        if len(uuids) > 1
    ]
    usage = sum_usage(cells, placements.values())
    for cell in cells:
        pools = {pool.size_kb: pool.total - pool.reserved for pool in cell.pages}
        for size, count in usage[cell.id].pages.items():
            if count > pools.get(size, 0):
                there = f"{max(0, pools.get(size, 0))} of {count} promised pages of {size} KiB"
                found.append(f"host cell {cell.id} has {there}")
    return tuple(found)
