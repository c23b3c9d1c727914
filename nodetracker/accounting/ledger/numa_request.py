"""Parse the NUMA parts of claim requests that a schema has validated."""

from collections.abc import Mapping
from typing import Any

from nodetracker.accounting.requests.numa import MAX_PAGE_KB
from nodetracker.model.claim import Amounts
from nodetracker.model.errors import RequestError
from nodetracker.model.numa import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaLimits,
    NumaRequest,
    PageSize,
)
from nodetracker.model.text import render_value
from nodetracker.model.units import MILLI, parse_page_size_kb, render_amount

_CELL_KEYS = ("vcpus", "pcpus", "memory_mb")
_PAGE_SIZES = tuple(PageSize)


def parse_numa_request(body: Mapping[str, Any] | None, amounts: Amounts) -> NumaRequest | None:
    """Parse the part ``numa`` of a claim request.

    Every key may be absent or null: ``nodes`` (1), ``cells``, ``cpu_policy``
    (derived from the resources), ``cpu_thread_policy`` (prefer), ``page_size``
    (ordinary memory), ``networks`` (a list of names). ``page_size`` is
    ``small``, ``large``, ``any``, a number of KiB, or a text such as ``2MB``.
    A cell is an object of three integers, each 0 when absent::

        {"vcpus": 2, "pcpus": 1, "memory_mb": 2048}

    Without ``cells`` the resources are split evenly. As with Nova's flavors, a
    split that leaves a remainder is refused: the caller states in ``cells``
    which cell is larger. Unlike in Nova, each of VCPU, PCPU and memory must
    divide evenly, so that all cells are equal.

    As with Nova's flavors, ``dedicated`` with only VCPU pins these: the ledger
    charges the result's `pcpus`.

    Args:
        body: value of the key ``numa``, None when the request has none.
        amounts: of the whole request.

    Returns:
        The request; None without the key ``numa`` and without PCPU.

    Raises:
        RequestError: a value contradicts another or the resources.

    >>> parse_numa_request({"nodes": 2, "page_size": "2MB"}, Amounts(4000)).page_size
    2048
    """
    pcpus = amounts.pcpus
    if body is None and pcpus == 0:
        return None
    entry = body or {}
    if amounts.vcpu_milli % MILLI:
        reason = f"expected whole CPUs with NUMA, got {render_amount(amounts.vcpu_milli / MILLI)}"
        raise RequestError("resources.VCPU", reason)
    vcpus = amounts.vcpu_milli // MILLI
    policy = _parse_cpu_policy(entry.get("cpu_policy"), vcpus, pcpus)
    if policy is CpuPolicy.DEDICATED and pcpus == 0:
        vcpus, pcpus = 0, vcpus
    return NumaRequest(
        cells=_parse_cells(entry, GuestCell(vcpus, pcpus, amounts.memory_mb)),
        cpu_policy=policy,
        cpu_thread_policy=_parse_cpu_thread_policy(entry.get("cpu_thread_policy"), policy),
        page_size=_parse_page_size(entry.get("page_size")),
        networks=tuple(sorted(set(entry.get("networks") or ()))),
    )


def parse_numa_limits(body: Mapping[str, Any] | None) -> NumaLimits:
    """Parse the key ``limits.numa`` of a claim request; None sets no limit."""
    ratios = {key: float(ratio) for key, ratio in (body or {}).items() if ratio is not None}
    return NumaLimits(**ratios)


def _parse_cpu_policy(value: str | None, vcpus: int, pcpus: int) -> CpuPolicy:
    """Return the requested policy, or the one that the resources imply; both must agree."""
    if value is None:
        if pcpus == 0:
            return CpuPolicy.SHARED
        return CpuPolicy.MIXED if vcpus else CpuPolicy.DEDICATED
    policy = CpuPolicy(value)
    path = "numa.cpu_policy"
    if policy is CpuPolicy.SHARED and pcpus:
        raise RequestError(path, f"shared contradicts resources.PCPU = {pcpus}")
    if policy is CpuPolicy.DEDICATED and vcpus and pcpus:
        raise RequestError(path, "dedicated needs either VCPU or PCPU, not both")
    if policy is CpuPolicy.MIXED and not (vcpus and pcpus):
        raise RequestError(path, "mixed needs both VCPU and PCPU")
    return policy


def _parse_cpu_thread_policy(value: str | None, policy: CpuPolicy) -> CpuThreadPolicy:
    if value is None:
        return CpuThreadPolicy.PREFER
    if policy is CpuPolicy.SHARED:
        raise RequestError("numa.cpu_thread_policy", f"{value} needs pinned CPUs")
    return CpuThreadPolicy(value)


def _parse_page_size(value: str | int | None) -> PageSize | int | None:
    if value is None or isinstance(value, int):
        return value
    if value in _PAGE_SIZES:
        return PageSize(value)
    path = "numa.page_size"
    try:
        size_kb = parse_page_size_kb(value)
    except ValueError as error:
        raise RequestError(path, str(error)) from None
    if not 0 < size_kb <= MAX_PAGE_KB:
        raise RequestError(path, f"expected KiB from 1 to {MAX_PAGE_KB}, got {render_value(value)}")
    return size_kb


def _parse_cells(entry: Mapping[str, Any], total: GuestCell) -> tuple[GuestCell, ...]:
    nodes, cells = entry.get("nodes"), entry.get("cells")
    if cells is None:
        return _split(total, nodes or 1)
    if nodes not in (None, len(cells)):
        raise RequestError("numa.nodes", f"expected {len(cells)} as in numa.cells, got {nodes}")
    parsed = tuple(GuestCell(**{key: cell.get(key, 0) for key in _CELL_KEYS}) for cell in cells)
    for index, cell in enumerate(parsed):
        if cell.vcpus + cell.pcpus == 0:
            raise RequestError(f"numa.cells[{index}]", "has no CPU")
    _check_sums(parsed, total)
    return parsed


def _split(total: GuestCell, nodes: int) -> tuple[GuestCell, ...]:
    amounts = {"VCPU": total.vcpus, "PCPU": total.pcpus, "MEMORY_MB": total.memory_mb}
    for name, amount in amounts.items():
        if amount % nodes:
            reason = f"{name} {amount} cannot be split evenly into {nodes}; use numa.cells"
            raise RequestError("numa.nodes", reason)
    if total.vcpus + total.pcpus == 0:
        raise RequestError("numa", "needs VCPU or PCPU in resources")
    cell = GuestCell(total.vcpus // nodes, total.pcpus // nodes, total.memory_mb // nodes)
    return (cell,) * nodes


def _check_sums(cells: tuple[GuestCell, ...], total: GuestCell) -> None:
    for key in _CELL_KEYS:
        found, expected = sum(getattr(cell, key) for cell in cells), getattr(total, key)
        if found != expected:
            raise RequestError("numa.cells", f"expected {key} to sum to {expected}, got {found}")
