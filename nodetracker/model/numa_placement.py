"""Placements of guest cells on host cells, as stored in ``claims.numa`` and ``guests.pins``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class CellPlacement:
    """The placement of one guest cell on a host cell.

    Attributes:
        host_cell: id of the host's cell.
        vcpus: guest CPUs that run on the cell's shared CPUs.
        memory_mb: MiB of any page size.
        page_size_kb: page size in KiB, None for memory that was not requested
            by page size.
        pages: number of pages, 0 without a page size.
        pins: guest CPU -> host CPU. Guest CPUs are numbered from 0 across all
            cells; in each cell the shared ones come first.
        isolated: host CPUs that must remain unused as siblings of a pinned one.
    """

    host_cell: int
    vcpus: int = 0
    memory_mb: int = 0
    page_size_kb: int | None = None
    pages: int = 0
    pins: Mapping[int, int] = field(default_factory=dict)
    isolated: CpuSet = frozenset()

    @property
    def uses_resources(self) -> bool:
        """Whether the placement uses any resource of the host cell."""
        return bool(self.vcpus or self.memory_mb or self.pages or self.exclusive_cpus)

    @property
    def exclusive_cpus(self) -> CpuSet:
        """Host CPUs that no other guest may be pinned to."""
        return frozenset(self.pins.values()) | self.isolated


@dataclass(frozen=True, slots=True)
class NumaPlacement:
    """The placement of a workload; its cells are in the order of the request."""

    cells: tuple[CellPlacement, ...]


def encode_placement(placement: NumaPlacement) -> dict[str, Any]:
    """Return a placement as plain JSON data.

    >>> encode_placement(NumaPlacement((CellPlacement(1, 0, 512, None, 0, {0: 4}),)))["cells"][0]
    ... # doctest: +NORMALIZE_WHITESPACE
    {'host_cell': 1, 'vcpus': 0, 'memory_mb': 512, 'page_size_kb': None, 'pages': 0,
     'pins': {'0': 4}, 'isolated': []}
    """
    return {"cells": encode_cells(placement.cells)}


def encode_cells(cells: Iterable[CellPlacement]) -> list[dict[str, Any]]:
    """Return cells as plain JSON data."""
    return [
        {
            "host_cell": cell.host_cell,
            "vcpus": cell.vcpus,
            "memory_mb": cell.memory_mb,
            "page_size_kb": cell.page_size_kb,
            "pages": cell.pages,
            "pins": {str(guest): host for guest, host in sorted(cell.pins.items())},
            "isolated": sorted(cell.isolated),
        }
        for cell in cells
    ]


def decode_placement(data: Mapping[str, Any]) -> NumaPlacement:
    """Decode the result of `encode_placement`.

    Raises:
        ValueError: the data is not a placement; the node's other data remains valid.
    """
    try:
        return NumaPlacement(tuple(_decode_cell(cell) for cell in data["cells"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{data!r} is not a NUMA placement") from error


def _decode_cell(cell: Mapping[str, Any]) -> CellPlacement:
    size = cell["page_size_kb"]
    return CellPlacement(
        host_cell=int(cell["host_cell"]),
        vcpus=int(cell["vcpus"]),
        memory_mb=int(cell["memory_mb"]),
        page_size_kb=None if size is None else int(size),
        pages=int(cell["pages"]),
        pins={int(guest): int(host) for guest, host in cell["pins"].items()},
        isolated=frozenset(int(cpu) for cpu in cell["isolated"]),
    )
