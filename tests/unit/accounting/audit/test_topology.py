"""The processors in a row are described as Nova describes them."""

import pytest

from nodetracker.accounting.audit.inventory import cpu_topology
from nodetracker.accounting.audit.view import account
from nodetracker.model.fact import failed, fresh
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import NumaCell, NumaTopology
from nodetracker.model.settings import Policy
from tests.builders import NOW, SOURCE, make_record, make_snapshot


def make_cpu(sockets: int, cores: int, threads: int, offline: frozenset[int] = frozenset()):
    """Build a machine on which the threads of all first cores come first, as on x86."""
    total = sockets * cores
    present = frozenset(range(total * threads))
    siblings = (frozenset(range(core, total * threads, total)) for core in range(total))
    groups = tuple(core - offline for core in siblings if core - offline)
    return CpuInfo(
        online=present - offline,
        offline=offline,
        sockets=sockets,
        cores=len(groups),
        threads=max(len(group) for group in groups),
        siblings=groups,
        socket_of={cpu: cpu % total // cores for cpu in present - offline},
    )


def split(cpu: CpuInfo, count: int) -> list[frozenset[int]]:
    cores = list(cpu.siblings)
    size = len(cores) // count
    return [frozenset().union(*cores[n * size : (n + 1) * size]) for n in range(count)]


TWO_SOCKETS = make_cpu(2, 8, 2)
HYBRID = CpuInfo(
    online=frozenset(range(8)),
    threads=2,
    siblings=(frozenset({0, 1}), frozenset({2, 3}), *(frozenset({n}) for n in range(4, 8))),
    socket_of=dict.fromkeys(range(8), 0),
)
CASES = {
    "a cell for each socket": (TWO_SOCKETS, split(TWO_SOCKETS, 2), (2, 1, 8, 2)),
    "two cells in each socket": (TWO_SOCKETS, split(TWO_SOCKETS, 4), (4, 1, 4, 2)),
    "one cell for both sockets": (TWO_SOCKETS, split(TWO_SOCKETS, 1), (1, 2, 8, 2)),
    "without NUMA": (TWO_SOCKETS, [], (1, 2, 8, 2)),
    "a cell with memory only": (
        TWO_SOCKETS, [*split(TWO_SOCKETS, 2), frozenset()], (3, 1, 8, 2)
    ),
    "a thread offline": (make_cpu(1, 8, 2, frozenset({9})), [], (1, 1, 8, 2)),
    "cores of two kinds": (HYBRID, [], (1, 1, 8, 1)),
    "sockets unknown": (CpuInfo(frozenset(range(4))), [], (1, 1, 4, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("cpu", "cells", "expected"), CASES.values(), ids=CASES)
def test_each_number_is_per_unit_of_the_one_before(cpu, cells, expected):
    names = ("cells", "sockets", "cores", "threads")
    assert cpu_topology(cpu, cells) == dict(zip(names, expected, strict=True))


def test_the_row_counts_the_stored_cells_while_numa_is_held():
    cells = tuple(
        NumaCell(number, cpus, 1024, tuple(c for c in TWO_SOCKETS.siblings if c <= cpus))
        for number, cpus in enumerate(split(TWO_SOCKETS, 2))
    )
    snapshot = make_snapshot(
        cpu=fresh(SOURCE, TWO_SOCKETS), numa=fresh(SOURCE, NumaTopology(cells))
    )
    values = account(snapshot, None, Policy(), NOW).values
    assert values.cpu_info["topology"] == {"cells": 2, "sockets": 1, "cores": 8, "threads": 2}
    held = make_snapshot(cpu=fresh(SOURCE, TWO_SOCKETS), numa=failed(SOURCE, "boom"))
    again = account(held, make_record(values), Policy(), NOW).values
    assert again.cpu_info == values.cpu_info
