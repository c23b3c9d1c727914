"""Withhold the huge pages of a cell that are in use though no assignment on the cell has them.

The kernel counts the free pages of each cell, whoever has the others: guests that are not
bound to one cell, and programs of the host. What such guests have not touched yet, or are
off, may come from each of their cells.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from nodetracker.accounting.numa.cells import decode_host_cells, list_assignments, sum_usage
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.guest import Guest, LoosePages
from nodetracker.model.numa import NumaTopology

_Key = tuple[int, int]
"""Id of a cell and page size in KiB."""


def withhold_pages(
    column: Mapping[str, Any],
    topology: NumaTopology,
    claims: Collection[Claim],
    guests: Collection[Guest],
) -> dict[str, Any]:
    """Return the column ``numa_topology`` with the number of withheld pages of each pool.

    Pages in use are taken for those of confirmed claims and bound guests first, then of loose
    guests, then for those that the operator reserves. The others are withheld in their cell.
    Pages of loose guests that are not in use, or where that is unknown, are withheld in
    each of their cells as far as it has room. So are pages that the kernel has committed, and
    no guest known here can be the one that has not touched them. A claim without a guest uses
    none yet.

    Args:
        column: the cells of `topology` under the host's policy.
        claims: of the node.
        guests: of the node, each with the claim that is assigned to it.
    """
    cells = decode_host_cells(column)
    pools = {(cell.id, pool.size_kb): pool for cell in cells for pool in cell.huge_pages}
    if not any(pool.total for pool in pools.values()):
        return dict(column)
    missing = {guest.claim_uuid for guest in guests if guest.missing_since is not None}
    present = [c for c in claims if c.state is ClaimState.CONFIRMED and c.uuid not in missing]
    charged = sum_usage(cells, list_assignments(claims, guests))
    explained = sum_usage(cells, list_assignments(present, guests))
    in_use = {(c.id, pool.size_kb): pool.in_use or 0 for c in topology.cells for pool in c.pages}
    others = {key: max(0, in_use[key] - explained[key[0]].pages.get(key[1], 0)) for key in pools}
    within = {key: min(others[key], pool.reserved) for key, pool in pools.items()}
    beyond = {key: others[key] - within[key] for key in pools}
    untouched: Counter[_Key] = Counter()
    loose = _list_loose(claims, guests)
    for part in sorted(loose, key=lambda part: (len(part.cells) or len(pools), part.cells)):
        possible = [key for key in pools if key[1] == part.size_kb]
        keys = [key for key in possible if key[0] in part.cells] or possible
        rest = _take(within, keys, _take(beyond, keys, part.count))
        untouched.update(dict.fromkeys(keys, rest))
    for size, committed in topology.committed_pages.items():
        keys = [key for key in pools if key[1] == size]
        free = (explained[key[0]].pages.get(size, 0) - in_use[key] for key in keys)
        known = sum(max(0, count) for count in free) + max(
            (untouched[key] for key in keys), default=0
        )
        spare = sum(pools[key].reserved - within[key] for key in keys)
        untouched.update(dict.fromkeys(keys, max(0, committed - known - spare)))
    withheld = {}
    for key, pool in pools.items():
        found = others[key] - within[key]
        used = charged[key[0]].pages.get(key[1], 0)
        room = max(0, pool.total - pool.reserved - used - found)
        withheld[key] = found + min(untouched[key], room)
    return dict(column) | {"cells": [_mark(cell, withheld) for cell in column["cells"]]}


def _mark(cell: Mapping[str, Any], withheld: Mapping[_Key, int]) -> dict[str, Any]:
    """Return a cell of the column with the withheld pages of each pool, if there are any."""
    mempages = []
    for pool in cell["mempages"]:
        count = withheld.get((cell["id"], pool["size_kb"]), 0)
        mempages.append(dict(pool) | ({"withheld": count} if count else {}))
    return dict(cell) | {"mempages": mempages}


def _take(amounts: dict[_Key, int], keys: Sequence[_Key], count: int) -> int:
    """Take `count` pages of amounts, as far as they have them; return how many they lack."""
    for key in keys:
        taken = min(amounts[key], count)
        amounts[key] -= taken
        count -= taken
    return count


def _list_loose(claims: Collection[Claim], guests: Collection[Guest]) -> Iterator[LoosePages]:
    """Yield the pages of guests that are charged in no cell."""
    sizes_of = {
        claim.uuid: {cell.page_size_kb for cell in claim.numa.cells}
        for claim in claims
        if claim.numa is not None
    }
    for guest in guests:
        if guest.missing_since is not None:
            continue
        pages = guest.pins.pages
        if guest.claim_uuid is not None:  # its pins are not charged
            pages += tuple(
                LoosePages(cell.page_size_kb, cell.pages, (cell.host_cell,))
                for cell in guest.pins.cells
                if cell.page_size_kb is not None
            )
        charged = sizes_of.get(guest.claim_uuid or "", ())
        yield from (part for part in pages if part.size_kb not in charged)
