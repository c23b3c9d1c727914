"""What a claim asks of NUMA: guest cells, how their CPUs are bound, the size of their pages."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from nodetracker.units import MILLI, parse_page_size_kb

MAX_GUEST_CELLS = 128
"""QEMU makes no more cells for a guest."""

_KEYS = ("nodes", "cells", "cpu_policy", "cpu_thread_policy", "page_size", "networks")
_MAX_NETWORKS = 64
_MAX_RATIO = 1_000_000
_MAX_PAGE_KB = 2**31 - 1
_LONGEST_NAME = 255
_CELL_KEYS = ("vcpus", "pcpus", "memory_mb")
_LIMIT_KEYS = ("cpu_allocation_ratio", "ram_allocation_ratio")
_Choice = TypeVar("_Choice", bound=enum.StrEnum)


class CpuPolicy(enum.StrEnum):
    """Where a workload's CPUs run: on shared ones, each on its own, or some of both."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    MIXED = "mixed"


class CpuThreadPolicy(enum.StrEnum):
    """How pinned CPUs use the threads of a core: together if it can be, never, or always."""

    PREFER = "prefer"
    ISOLATE = "isolate"
    REQUIRE = "require"


class PageSize(enum.StrEnum):
    """A page size by its place among those that a host cell has."""

    SMALL = "small"
    LARGE = "large"
    ANY = "any"


_PAGE_SIZES = tuple(PageSize)


class NumaRequestError(ValueError):
    """A request that cannot be meant; `path` is its wrong key, e.g. ``numa.cells[1].pcpus``."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class GuestCell:
    """One cell of a workload: CPUs that float, CPUs that are pinned, MiB of memory."""

    vcpus: int
    pcpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class NumaRequest:
    """What a workload asks of NUMA.

    Attributes:
        cells: at least one, each with at least one CPU.
        page_size: a name, a size in KiB, or None: ordinary memory, which
            shared CPUs' guests may overcommit.
        networks: names of networks that its interfaces are on; those that the
            host has at some cells must be at one of the chosen.
    """

    cells: tuple[GuestCell, ...]
    cpu_policy: CpuPolicy = CpuPolicy.SHARED
    cpu_thread_policy: CpuThreadPolicy = CpuThreadPolicy.PREFER
    page_size: PageSize | int | None = None
    networks: tuple[str, ...] = ()

    @property
    def vcpus(self) -> int:
        """CPUs that float, of all cells."""
        return sum(cell.vcpus for cell in self.cells)

    @property
    def pcpus(self) -> int:
        """CPUs that are pinned, of all cells."""
        return sum(cell.pcpus for cell in self.cells)


@dataclass(frozen=True, slots=True)
class NumaLimits:
    """How far shared CPUs and ordinary memory of one host cell may be promised.

    None = as far as anybody asks: only what one guest cell gets is bounded.
    """

    cpu_allocation_ratio: float | None = None
    ram_allocation_ratio: float | None = None


def parse_numa_request(
    value: object, vcpu_milli: int, pcpus: int, memory_mb: int
) -> NumaRequest | None:
    """Read the part ``numa`` of a claim request.

    Every key may be left out or null: ``nodes`` (1), ``cells``, ``cpu_policy``
    (what the resources say), ``cpu_thread_policy`` (prefer), ``page_size``
    (ordinary memory), ``networks`` (a list of names). ``page_size`` is
    ``small``, ``large``, ``any``, a number of KiB, or a text such as ``2MB``.
    A cell is an object of three integers, each 0 when left out::

        {"vcpus": 2, "pcpus": 1, "memory_mb": 2048}

    Without ``cells`` the resources are split evenly. Like Nova's flavors, a
    split that leaves a rest is refused: which cell should be the larger one
    is the caller's to say, by ``cells``. Here the rest of VCPU, PCPU and
    memory is each looked at alone, so that all cells are alike.

    As in Nova's flavors, ``dedicated`` with VCPU alone pins these: the
    request's `pcpus` are what the ledger has to charge.

    Args:
        value: the parsed JSON, None when the request has no such part.
        vcpu_milli, pcpus, memory_mb: the resources VCPU in thousandths,
            PCPU, and MEMORY_MB.

    Returns:
        The request. None when nothing is asked: no part ``numa`` and no PCPU.

    Raises:
        NumaRequestError: a key is unknown or its value wrong.

    >>> parse_numa_request({"nodes": 2, "page_size": "2MB"}, 4000, 0, 4096).page_size
    2048
    """
    if value is None and pcpus == 0:
        return None
    entry = _object(value if value is not None else {}, "numa", _KEYS)
    if vcpu_milli % MILLI:
        amount = f"{vcpu_milli / MILLI:g}"
        raise NumaRequestError("resources.VCPU", f"is {amount}, but NUMA asks for whole CPUs")
    vcpus = vcpu_milli // MILLI
    policy = _parse_cpu_policy(entry.get("cpu_policy"), vcpus, pcpus)
    if policy is CpuPolicy.DEDICATED and pcpus == 0:
        vcpus, pcpus = 0, vcpus
    return NumaRequest(
        cells=_parse_cells(entry, GuestCell(vcpus, pcpus, memory_mb)),
        cpu_policy=policy,
        cpu_thread_policy=_parse_cpu_thread_policy(entry.get("cpu_thread_policy"), policy),
        page_size=_parse_page_size(entry.get("page_size")),
        networks=_parse_networks(entry.get("networks")),
    )


def parse_numa_limits(value: object) -> NumaLimits:
    """Read the part ``limits.numa`` of a claim request; None is no limit at all.

    Raises:
        NumaRequestError: a key is unknown, or no number above 0 and not null.
    """
    entry = _object(value if value is not None else {}, "limits.numa", _LIMIT_KEYS)
    ratios: dict[str, float | None] = {}
    for key in _LIMIT_KEYS:
        ratio = entry.get(key)
        if ratio is None:
            ratios[key] = None
        elif isinstance(ratio, int | float) and not isinstance(ratio, bool) and _is_ratio(ratio):
            ratios[key] = float(ratio)
        else:
            raise NumaRequestError(
                f"limits.numa.{key}", f"is neither a number above 0 to {_MAX_RATIO} nor null"
            )
    return NumaLimits(**ratios)


def _is_ratio(value: float) -> bool:
    return 0 < value <= _MAX_RATIO  # and so no NaN


def _parse_cpu_policy(value: object, vcpus: int, pcpus: int) -> CpuPolicy:
    """Return the policy that is asked or that the resources mean; both must agree."""
    if value is None:
        if pcpus == 0:
            return CpuPolicy.SHARED
        return CpuPolicy.MIXED if vcpus else CpuPolicy.DEDICATED
    policy = _choice(CpuPolicy, value, "numa.cpu_policy")
    if policy is CpuPolicy.SHARED and pcpus:
        raise NumaRequestError("numa.cpu_policy", f"is shared, but resources.PCPU is {pcpus}")
    if policy is CpuPolicy.DEDICATED and vcpus and pcpus:
        raise NumaRequestError("numa.cpu_policy", "is dedicated, but both VCPU and PCPU are asked")
    if policy is CpuPolicy.MIXED and not (vcpus and pcpus):
        raise NumaRequestError("numa.cpu_policy", "is mixed, but not both VCPU and PCPU are asked")
    return policy


def _parse_cpu_thread_policy(value: object, policy: CpuPolicy) -> CpuThreadPolicy:
    if value is None:
        return CpuThreadPolicy.PREFER
    path = "numa.cpu_thread_policy"
    thread_policy = _choice(CpuThreadPolicy, value, path)
    if policy is CpuPolicy.SHARED:
        raise NumaRequestError(path, f"is {thread_policy}, but no CPU is pinned")
    return thread_policy


def _parse_page_size(value: object) -> PageSize | int | None:
    path = "numa.page_size"
    if value is None:
        return None
    if isinstance(value, str):
        if value in _PAGE_SIZES:
            return PageSize(value)
        try:
            value = parse_page_size_kb(value)
        except ValueError as error:
            raise NumaRequestError(path, str(error)) from None
    size_kb = _integer(value, path, least=1)
    if size_kb > _MAX_PAGE_KB:
        raise NumaRequestError(path, f"is more than {_MAX_PAGE_KB} KiB")
    return size_kb


def _parse_networks(value: object) -> tuple[str, ...]:
    path = "numa.networks"
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_NETWORKS:
        raise NumaRequestError(path, f"is no list of at most {_MAX_NETWORKS} names")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise NumaRequestError(f"{path}[{index}]", "is no name")
    return tuple(sorted(set(value)))


def _parse_cells(entry: Mapping[str, object], total: GuestCell) -> tuple[GuestCell, ...]:
    nodes, cells = entry.get("nodes"), entry.get("cells")
    if nodes is not None:
        nodes = _integer(nodes, "numa.nodes", least=1)
        if nodes > MAX_GUEST_CELLS:
            raise NumaRequestError("numa.nodes", f"is more than {MAX_GUEST_CELLS}")
    if cells is None:
        return _split(total, nodes or 1)
    if not isinstance(cells, list) or not 0 < len(cells) <= MAX_GUEST_CELLS:
        raise NumaRequestError("numa.cells", f"is no list of 1 to {MAX_GUEST_CELLS} cells")
    if nodes is not None and nodes != len(cells):
        raise NumaRequestError("numa.nodes", f"is {nodes}, but numa.cells has {len(cells)}")
    parsed = tuple(_parse_cell(cell, f"numa.cells[{index}]") for index, cell in enumerate(cells))
    _check_sums(parsed, total)
    return parsed


def _split(total: GuestCell, nodes: int) -> tuple[GuestCell, ...]:
    amounts = {"VCPU": total.vcpus, "PCPU": total.pcpus, "MEMORY_MB": total.memory_mb}
    for name, amount in amounts.items():
        if amount % nodes:
            reason = f"{name} {amount} cannot be split evenly into {nodes}; say how in numa.cells"
            raise NumaRequestError("numa.nodes", reason)
    if total.vcpus + total.pcpus == 0:
        raise NumaRequestError("numa", "asks for cells, but neither VCPU nor PCPU is asked")
    cell = GuestCell(total.vcpus // nodes, total.pcpus // nodes, total.memory_mb // nodes)
    return (cell,) * nodes


def _parse_cell(value: object, path: str) -> GuestCell:
    entry = _object(value, path, _CELL_KEYS)
    cell = GuestCell(**{key: _integer(entry.get(key, 0), f"{path}.{key}") for key in _CELL_KEYS})
    if cell.vcpus + cell.pcpus == 0:
        raise NumaRequestError(path, "has no CPU")
    return cell


def _check_sums(cells: tuple[GuestCell, ...], total: GuestCell) -> None:
    for key in _CELL_KEYS:
        found, asked = sum(getattr(cell, key) for cell in cells), getattr(total, key)
        if found != asked:
            raise NumaRequestError("numa.cells", f"{key} add up to {found}, asked are {asked}")


def _object(value: object, path: str, keys: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise NumaRequestError(path, "is no object")
    for key in value:
        if key not in keys:
            raise NumaRequestError(f"{path}.{key}", f"is not known; {path} has {', '.join(keys)}")
    return value


def _integer(value: object, path: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise NumaRequestError(path, f"is no integer of {least} or more")
    return value


def _choice(kind: type[_Choice], value: object, path: str) -> _Choice:
    try:
        return kind(str(value))
    except ValueError:
        raise NumaRequestError(path, f"is none of {', '.join(kind)}") from None
