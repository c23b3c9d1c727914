"""Describe a host's processors as Nova does: cells, sockets, cores and threads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import NumaTopology


def cpu_topology(cpu: CpuInfo, cells: Sequence[CpuSet]) -> dict[str, int]:
    """Return the ``topology`` of ``cpu_info``.

    As in Nova, each number is per unit of the one before: sockets of a cell,
    cores of a socket and threads of a core, each the largest of the host. When
    they do not multiply to the number of CPUs, as with cores of two kinds, all
    CPUs count as cores of one socket.

    Args:
        cells: online CPUs of each NUMA cell; empty without NUMA.

    Source: nova's ``_get_cpu_info`` and libvirt's ``virHostCPUGetInfo``.

    >>> pairs = tuple(frozenset({n, n + 4}) for n in range(4))
    >>> cpu = CpuInfo(frozenset(range(8)), siblings=pairs, threads=2)
    >>> cpu_topology(cpu, [frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7})])
    {'cells': 2, 'sockets': 1, 'cores': 2, 'threads': 2}
    """
    populated = [cell & cpu.online for cell in cells if cell & cpu.online] or [cpu.online]
    sockets = [list(_split_by_socket(cpu, cell)) for cell in populated]
    found = {
        "cells": max(1, len(cells)),
        "sockets": max(len(groups) for groups in sockets),
        "cores": max(_count_cores(cpu, group) for groups in sockets for group in groups),
        "threads": cpu.threads,
    }
    product = len(populated) * found["sockets"] * found["cores"] * found["threads"]
    count = len(cpu.online | cpu.offline)
    return found if product == count else found | {"sockets": 1, "cores": count, "threads": 1}


def list_cell_cpus(topology: NumaTopology | None, column: Mapping[str, Any]) -> list[CpuSet]:
    """Return the CPUs of each NUMA cell.

    Args:
        topology: as read, None while it cannot be read.
        column: the row's ``numa_topology``, which is then used instead.
    """
    if topology is not None:
        return [cell.cpus for cell in topology.cells]
    return [
        frozenset(cell["cpuset"]).union(cell["pcpuset"], *cell["siblings"])
        for cell in column.get("cells", ())
    ]


def _split_by_socket(cpu: CpuInfo, cell: CpuSet) -> Iterable[CpuSet]:
    """Return a cell's CPUs by socket; those whose socket is unknown are in one."""
    groups: dict[int | None, set[int]] = {}
    for member in cell:
        groups.setdefault(cpu.socket_of.get(member), set()).add(member)
    return map(frozenset, groups.values())


def _count_cores(cpu: CpuInfo, group: CpuSet) -> int:
    grouped = [core for core in cpu.siblings if core & group]
    return len(grouped) + len(group.difference(*grouped))
