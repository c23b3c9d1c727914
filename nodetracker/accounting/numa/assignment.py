"""Assign a claim's guest cells to distinct host cells, or collect the reasons for refusal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nodetracker.accounting.matching import KuhnMatching
from nodetracker.accounting.numa.cell_fit import (
    CellFit,
    count_pinnable,
    fit_cell,
    pick_cpus,
    prefer_cpus,
    usable_cores,
)
from nodetracker.accounting.numa.cells import NO_USAGE
from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.numa import (
    CellAssignment,
    CellUsage,
    GuestCell,
    HostCell,
    NumaAssignment,
    NumaLimits,
    NumaRequest,
)
from nodetracker.model.units import KIB_PER_MIB

MAX_VISITED = 50_000
"""Number of sets of host cells after which a search ends without a result."""


class CellChoice:
    """One search for distinct host cells.

    Whether a guest cell fits a host cell does not depend on the other guest
    cells, so their assignment is a bipartite matching, found without trying
    permutations. Only `accepts` may refuse a complete choice, and it depends
    only on the set of host cells. So sets are tried in order of preference,
    and only those that a matching can complete: on 8 host cells at most 70
    complete sets, and none when nothing fits.

    Args:
        candidates: for each guest cell the ids of the host cells it fits.
        order: ids of all host cells, the preferred first.
        accepts: returns whether a set of host cells, in ascending id, is acceptable.

    Attributes:
        visited: number of sets of host cells, complete or not, that were tried.
        has_given_up: `MAX_VISITED` was reached. This takes more than 16 host
            cells and an `accepts` that refuses thousands of sets.
    """

    def __init__(
        self,
        candidates: Sequence[frozenset[int]],
        order: Sequence[int],
        accepts: Callable[[tuple[int, ...]], bool],
    ) -> None:
        self._candidates = candidates
        self._order = tuple(order)
        self._accepts = accepts
        self._guests_of = {
            host: [[guest for guest, hosts in enumerate(candidates) if host in hosts]]
            for host in order
        }
        self.visited = 0
        self.has_given_up = False

    def find(self) -> tuple[int, ...] | None:
        """Return the host cell of each guest cell, or None."""
        if not self._can_complete((), 0):
            return None
        chosen = self._find_set((), 0)
        if chosen is None:
            return None
        matching = KuhnMatching(
            {guest: [sorted(hosts & chosen)] for guest, hosts in enumerate(self._candidates)}
        )
        for guest in range(len(self._candidates)):
            matching.add(guest)
        return tuple(sorted(matching.left_of, key=lambda host: matching.left_of[host]))

    def _find_set(self, chosen: tuple[int, ...], start: int) -> frozenset[int] | None:
        lacking = len(self._candidates) - len(chosen)
        if lacking == 0:
            return frozenset(chosen) if self._accepts(tuple(sorted(chosen))) else None
        for position in range(start, len(self._order) - lacking + 1):
            if self.visited >= MAX_VISITED:
                self.has_given_up = True
                return None
            self.visited += 1
            longer = (*chosen, self._order[position])
            if self._can_complete(longer, position + 1):
                found = self._find_set(longer, position + 1)
                if found is not None:
                    return found
        return None

    def _can_complete(self, chosen: tuple[int, ...], start: int) -> bool:
        """Return whether `chosen` can be completed with host cells from `start` on.

        A matched host cell remains matched when others are added, so once all
        of `chosen` are matched, the others are only counted.
        """
        matching = KuhnMatching(self._guests_of)
        if not all(matching.add(host) for host in chosen):
            return False
        for host in self._order[start:]:
            if len(matching.left_of) == len(self._candidates):
                break
            matching.add(host)
        return len(matching.left_of) == len(self._candidates)


def find_shortage(
    candidates: Sequence[frozenset[int]],
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return a group of guest cells that fit fewer host cells than they need.

    Args:
        candidates: for each guest cell the ids of the host cells it fits.

    Returns:
        (their indices, ids of all host cells that any of them fits), or None
        when all can have distinct host cells.

    >>> find_shortage([frozenset({0, 1}), frozenset({1}), frozenset({1})])
    ((1, 2), (1,))
    """
    matching = KuhnMatching({guest: [sorted(hosts)] for guest, hosts in enumerate(candidates)})
    for guest in range(len(candidates)):
        if not matching.add(guest):
            guests = tuple(sorted(matching.visited))
            return guests, tuple(sorted(frozenset().union(*(candidates[one] for one in guests))))
    return None


CANNOT_FIT = "Requested instance NUMA topology cannot fit the given host NUMA topology"
CANNOT_FIT_WITH_DEVICES = (
    "Requested instance NUMA topology together with requested PCI devices"
    " cannot fit the given host NUMA topology"
)
CANNOT_FIT_WITH_NETWORKS = (
    "Requested instance NUMA topology together with requested networks"
    " cannot fit the given host NUMA topology"
)
NO_LIMITS = NumaLimits()
NO_DEVICES: Mapping[int, int] = MappingProxyType({})
NOTHING: Mapping[int, CellUsage] = MappingProxyType({})

Fits = Mapping[GuestCell, Mapping[int, CellFit]]  # by the host cell's id


@dataclass(frozen=True, slots=True)
class NumaRefusal:
    """Why a request cannot be placed.

    Attributes:
        summary: one line with Nova's wording.
        reasons: every reason with its amounts: a line for each kind of guest
            cell and host cell that do not fit, and one for what all cells
            together lack.
    """

    summary: str
    reasons: tuple[str, ...]


def fit_numa(
    request: NumaRequest,
    cells: Sequence[HostCell],
    usage: Mapping[int, CellUsage],
    *,
    limits: NumaLimits = NO_LIMITS,
    held: Mapping[int, CellUsage] = NOTHING,
    is_packing: bool = False,
    free_devices: Mapping[int, int] = NO_DEVICES,
    accepts: Callable[[tuple[int, ...]], bool] | None = None,
) -> NumaAssignment | NumaRefusal:
    """Place a request's cells on distinct host cells.

    The result is deterministic.

    Args:
        cells: the host's cells. Without cells the request is refused, whereas
            Nova accepts it without an assignment.
        usage: by host cell id, from `cells.sum_usage`.
        held: the workload's own, by host cell id; it may have as much again, and the CPUs to
            which its guest is bound already come first.
        is_packing: prefer the fullest cells, else the emptiest; compared by
            CPUs, then by memory. It has no effect if all cells are needed.
        free_devices: host cell id -> number of available PCI devices. As in
            Nova, whatever the packing, cells with more of them come first for a
            request with devices and last for one without.
        accepts: returns whether these host cells, ids ascending, are near the
            requested devices; called for sets that fit. None = the request has
            no devices.
    """
    if not cells:
        return NumaRefusal(CANNOT_FIT, ("the host has no NUMA cells",))
    fits = {
        guest: {
            cell.id: fit_cell(
                guest,
                request,
                cell,
                usage.get(cell.id, NO_USAGE),
                limits,
                held.get(cell.id, NO_USAGE),
            )
            for cell in cells
        }
        for guest in request.cells
    }
    candidates = [_candidates(fits[guest]) for guest in request.cells]
    order = _order_cells(request, cells, usage, is_packing)
    order.sort(key=lambda cell_id: free_devices.get(cell_id, 0), reverse=accepts is not None)
    if request.pcpus:
        order.sort(key=lambda cell_id: len(_own_cpus(cell_id, usage, held)), reverse=True)
    near_networks = _near_networks(request, cells)

    def accepts_both(chosen: tuple[int, ...]) -> bool:
        return near_networks(chosen) and (accepts is None or accepts(chosen))

    choice = CellChoice(candidates, order, accepts_both)
    chosen = choice.find()
    if chosen is None:
        return _refuse(request, cells, fits, choice, has_devices=accepts is not None)
    placed = _place(request, cells, usage, held, fits, chosen)
    if placed is None:
        reason = f"host {_name_cells(chosen)} share cores, which are too few for all guest cells"
        return NumaRefusal(CANNOT_FIT, (reason,))
    return placed


def _near_networks(
    request: NumaRequest, cells: Sequence[HostCell]
) -> Callable[[tuple[int, ...]], bool]:
    """Return a test whether a set of cells has the networks; one without cells is ignored."""
    cells_of = {
        name: {cell.id for cell in cells if name in cell.networks} for name in request.networks
    }
    wanted = [ids for ids in cells_of.values() if ids]
    return lambda chosen: all(not ids.isdisjoint(chosen) for ids in wanted)


def _candidates(fit_of: Mapping[int, CellFit]) -> frozenset[int]:
    return frozenset(cell_id for cell_id, fit in fit_of.items() if not fit.reasons)


def _order_cells(
    request: NumaRequest,
    cells: Sequence[HostCell],
    usage: Mapping[int, CellUsage],
    is_packing: bool,
) -> list[int]:
    """Return the ids of the host cells by usage, the preferred first, then in ascending id."""

    def free(cell: HostCell) -> tuple[int, int]:
        used = usage.get(cell.id, NO_USAGE)
        free_cpus = (
            len(cell.dedicated - used.pinned_cpus)
            if request.pcpus
            else len(cell.shared) - used.shared_vcpus
        )
        return free_cpus, cell.memory_mb - used.memory_mb

    ascending = sorted(cells, key=lambda cell: cell.id)
    return [cell.id for cell in sorted(ascending, key=free, reverse=not is_packing)]


def _own_cpus(
    cell_id: int, usage: Mapping[int, CellUsage], held: Mapping[int, CellUsage]
) -> CpuSet:
    """Return the CPUs of a cell that nobody but the workload's guest is bound to."""
    used = usage.get(cell_id, NO_USAGE).pinned_cpus
    return held.get(cell_id, NO_USAGE).pinned_cpus - used


def _place(
    request: NumaRequest,
    cells: Sequence[HostCell],
    usage: Mapping[int, CellUsage],
    held: Mapping[int, CellUsage],
    fits: Fits,
    chosen: Sequence[int],
) -> NumaAssignment | None:
    """Choose the CPUs of each guest cell; None if host cells share cores that are too few."""
    cell_by_id = {cell.id: cell for cell in cells}
    policy = request.cpu_thread_policy
    placed: list[CellAssignment] = []
    first_cpu = 0
    for guest, cell_id in zip(request.cells, chosen, strict=True):
        used = usage.get(cell_id, NO_USAGE).pinned_cpus
        used = used.union(*(part.exclusive_cpus for part in placed))
        cores = usable_cores(cell_by_id[cell_id], used, policy)
        if count_pinnable(cores, policy) < guest.pcpus:
            return None
        own = _own_cpus(cell_id, usage, held) & cell_by_id[cell_id].dedicated
        pinned = pick_cpus(prefer_cpus(cores, own, guest.pcpus, policy), guest.pcpus, policy)
        page_size_kb = fits[guest][cell_id].page_size_kb
        placed.append(
            CellAssignment(
                host_cell=cell_id,
                vcpus=guest.vcpus,
                memory_mb=guest.memory_mb,
                page_size_kb=page_size_kb,
                pages=guest.memory_mb * KIB_PER_MIB // page_size_kb if page_size_kb else 0,
                pins=dict(enumerate(pinned.cpus, first_cpu + guest.vcpus)),
                isolated=pinned.isolated,
            )
        )
        first_cpu += guest.vcpus + guest.pcpus
    return NumaAssignment(tuple(placed))


def _refuse(
    request: NumaRequest,
    cells: Sequence[HostCell],
    fits: Fits,
    choice: CellChoice,
    has_devices: bool,
) -> NumaRefusal:
    """Collect all reasons: too few cells, what each cell lacks, what all together lack."""
    reasons = []
    if len(request.cells) > len(cells):
        reasons.append(f"NUMA cells {len(cells)} < requested {len(request.cells)}")
    for guest, fit_of in fits.items():
        alike = [index for index, other in enumerate(request.cells) if other == guest]
        reasons += [
            f"guest {_name_cells(alike)} on host cell {cell_id}: {', '.join(fit.reasons)}"
            for cell_id, fit in sorted(fit_of.items())
            if fit.reasons
        ]
    shortage = find_shortage([_candidates(fits[guest]) for guest in request.cells])
    if shortage is None:
        summary = CANNOT_FIT_WITH_DEVICES if has_devices else CANNOT_FIT_WITH_NETWORKS
        return NumaRefusal(summary, (*reasons, _nearness_reason(request, choice, has_devices)))
    guests, hosts = shortage
    if hosts and len(hosts) < len(cells):
        reasons.append(f"guest {_name_cells(guests)} fit only host {_name_cells(hosts)}")
    return NumaRefusal(CANNOT_FIT, tuple(reasons))


def _nearness_reason(request: NumaRequest, choice: CellChoice, has_devices: bool) -> str:
    wanted = ["PCI devices"] if has_devices else []
    wanted += [f"networks {', '.join(request.networks)}"] if request.networks else []
    what = " and ".join(wanted)
    if choice.has_given_up:
        return f"no host cells near the requested {what} among {MAX_VISITED} tried sets"
    return f"no host cells that fit are near the requested {what}"


def _name_cells(ids: Sequence[int]) -> str:
    """Return a name of cells, e.g. ``cells 0-2,5``."""
    return f"cell{'s' if len(ids) > 1 else ''} {render_cpu_set(ids)}"
