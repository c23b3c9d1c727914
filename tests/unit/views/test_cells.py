"""The NUMA cells of a node as screens and REST show them."""

import pytest

from nodetracker.views.hardware import list_cells
from tests.builders import make_record, make_values

BASE = {"size_kb": 4, "total": 100, "used": 0, "reserved": 0}
HUGE = {"size_kb": 2048, "total": 8, "used": 2, "reserved": 0}


@pytest.mark.parametrize("pools", [[BASE, HUGE], [HUGE]], ids=["named", "not named"])
def test_huge_pages_are_shown_whether_ordinary_memory_has_a_pool_or_not(pools):
    cell = {"id": 0, "cpuset": [0], "pcpuset": [], "memory": 64, "siblings": [], "mempages": pools}
    (line,) = list_cells(make_record(make_values(cpu_info={}, numa_topology={"cells": [cell]})))
    assert line.pages == (HUGE,)
