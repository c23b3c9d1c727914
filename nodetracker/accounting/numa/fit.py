"""Place a claim's guest cells on distinct host cells, or collect the reasons for refusal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nodetracker.accounting.numa.cell_choice import MAX_VISITED, CellChoice, find_shortage
from nodetracker.accounting.numa.cell_fit import CellFit, fit_cell
from nodetracker.accounting.numa.pinning import pick_cpus, usable_cores
from nodetracker.accounting.numa.usage import NO_USAGE
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.numa import (
    CellPlacement,
    CellUsage,
    GuestCell,
    HostCell,
    NumaLimits,
    NumaPlacement,
    NumaRequest,
)
from nodetracker.model.units import KIB_PER_MIB

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
    is_packing: bool = False,
    free_devices: Mapping[int, int] = NO_DEVICES,
    accepts: Callable[[tuple[int, ...]], bool] | None = None,
) -> NumaPlacement | NumaRefusal:
    """Place a request's cells on distinct host cells.

    The result is deterministic.

    Args:
        cells: the host's cells. Without cells the request is refused, whereas
            Nova accepts it without a placement.
        usage: by host cell id, from `usage.sum_usage`.
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
            cell.id: fit_cell(guest, request, cell, usage.get(cell.id, NO_USAGE), limits)
            for cell in cells
        }
        for guest in request.cells
    }
    candidates = [_candidates(fits[guest]) for guest in request.cells]
    order = _order_cells(request, cells, usage, is_packing)
    order.sort(key=lambda cell_id: free_devices.get(cell_id, 0), reverse=accepts is not None)
    near_networks = _near_networks(request, cells)

    def accepts_both(chosen: tuple[int, ...]) -> bool:
        return near_networks(chosen) and (accepts is None or accepts(chosen))

    choice = CellChoice(candidates, order, accepts_both)
    chosen = choice.find()
    if chosen is None:
        return _refuse(request, cells, fits, choice, has_devices=accepts is not None)
    return _place(request, cells, usage, fits, chosen)


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


def _place(
    request: NumaRequest,
    cells: Sequence[HostCell],
    usage: Mapping[int, CellUsage],
    fits: Fits,
    chosen: Sequence[int],
) -> NumaPlacement:
    cell_by_id = {cell.id: cell for cell in cells}
    policy = request.cpu_thread_policy
    placed = []
    first_cpu = 0
    for guest, cell_id in zip(request.cells, chosen, strict=True):
        used = usage.get(cell_id, NO_USAGE).pinned_cpus
        pinned = pick_cpus(usable_cores(cell_by_id[cell_id], used, policy), guest.pcpus, policy)
        page_size_kb = fits[guest][cell_id].page_size_kb
        placed.append(
            CellPlacement(
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
    return NumaPlacement(tuple(placed))


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
