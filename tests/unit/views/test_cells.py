"""The NUMA cells of a node as screens and REST show them."""

import pytest

from nodetracker.views.hardware import list_cells, render_hardware
from tests.builders import make_record, make_values

BASE = {"size_kb": 4, "total": 100, "used": 0, "reserved": 0}
HUGE = {"size_kb": 2048, "total": 8, "used": 2, "reserved": 0}


def make_node(pools):
    cell = {"id": 0, "cpuset": [0], "pcpuset": [], "memory": 64, "siblings": [], "mempages": pools}
    return make_record(make_values(cpu_info={}, numa_topology={"cells": [cell]}))


@pytest.mark.parametrize("pools", [[BASE, HUGE], [HUGE]], ids=["named", "not named"])
def test_huge_pages_are_shown_whether_ordinary_memory_has_a_pool_or_not(pools):
    (line,) = list_cells(make_node(pools))
    assert line.pages == (HUGE,)


def test_pages_that_are_withheld_are_named_beside_those_in_use():
    pool = HUGE | {"used": 5, "withheld": 3, "reserved": 1}
    (cell,) = render_hardware(make_node([BASE, pool]))["cells"]
    assert cell["memory"][1]["text"] == "5 of 8 used, 3 of them withheld, 1 reserved"
    assert cell["memory"][1]["use"]["free"] == 2
