"""Sets of CPUs that guests name: what of them is theirs alone, and which CPUs they share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.accounting.numa.cells import restrict_pins
from nodetracker.model.cpuset import parse_cpu_set, render_cpu_set
from nodetracker.model.guest import CpuAffinity, GuestPins
from nodetracker.model.numa import CellAssignment
from nodetracker.model.settings import Policy

HOST = {0: parse_cpu_set("0-7"), 1: parse_cpu_set("8-15")}
POLICY = Policy(cpu_dedicated_set=parse_cpu_set("6-9"))


def restrict(text, milli, cells=()):
    affinities = (CpuAffinity(parse_cpu_set(text), milli),)
    return restrict_pins(GuestPins(cells, affinities=affinities), POLICY, HOST)


@pytest.mark.parametrize(
    ("text", "milli", "taken", "shared_milli", "in_cells"),
    [
        pytest.param("6-7", 2000, "6-7", 0, {}, id="dedicated CPUs alone"),
        pytest.param("6-9", 8000, "6-9", 0, {}, id="more CPUs than the set, in two cells"),
        pytest.param("4-7", 500, "6-7", 500, {0: 1}, id="few CPUs of a mixed set"),
        pytest.param("4-7", 4000, "6-7", 2000, {0: 2}, id="as many as a mixed set has"),
        pytest.param("4-9", 6000, "6-9", 2000, {0: 2}, id="as many as a mixed set of two cells"),
        pytest.param("4-9", 1000, "6-9", 1000, {}, id="few CPUs of a set of two cells"),
        pytest.param("4-5", 8000, "", 8000, {0: 8}, id="shared CPUs alone"),
        pytest.param("5,10", 2000, "", 2000, {0: 1, 1: 1}, id="shared CPUs of two cells"),
        pytest.param("0-15", 4000, "", 4000, {}, id="all CPUs of the host"),
        pytest.param("0-15,99", 4000, "", 4000, {}, id="all CPUs and one that is offline"),
        pytest.param("0-14", 4000, "6-9", 4000, {}, id="all CPUs but one"),
        pytest.param("99", 1000, "", 1000, {}, id="an offline CPU"),
        pytest.param("6", 0, "6", 0, {}, id="an emulator"),
    ],
)
def test_dedicated_cpus_of_a_named_set_are_taken(text, milli, taken, shared_milli, in_cells):
    found = restrict(text, milli)
    isolated = frozenset().union(*(cell.isolated for cell in found.cells))
    assert render_cpu_set(isolated) == taken
    assert milli - found.dedicated_milli == shared_milli
    assert {cell.host_cell: cell.vcpus for cell in found.cells if cell.vcpus} == in_cells
    assert all(cell.isolated <= HOST[cell.host_cell] for cell in found.cells)


def test_a_set_is_in_the_assignment_of_its_cell():
    pinned = CellAssignment(0, 0, 64, pins={0: 6})
    found = restrict("4-7", 1000, (pinned, CellAssignment(0, 0, 8, 2048, 4)))
    assert found.cells == (
        CellAssignment(0, 1, 64, pins={0: 6}, isolated=parse_cpu_set("7")),
        CellAssignment(0, 0, 8, 2048, 4),
    )


def test_without_dedicated_cpus_sets_take_none():
    pins = GuestPins(affinities=(CpuAffinity(parse_cpu_set("6-7"), 2000),))
    found = restrict_pins(pins, Policy(), HOST)
    assert found == GuestPins((CellAssignment(0, 2),))
    assert restrict_pins(pins, POLICY) == GuestPins()  # the cells are not known


@given(
    sets=st.lists(
        st.builds(
            CpuAffinity,
            st.frozensets(st.integers(0, 17), min_size=1),
            st.sampled_from([0, 500, 1000, 2000, 8000]),
        ),
        max_size=3,
    ),
    pinned=st.frozensets(st.integers(0, 7), max_size=3),
)
def test_pins_that_were_restricted_stay_as_they_are(sets, pinned):
    cells = (CellAssignment(0, pins=dict(enumerate(sorted(pinned)))),)
    found = restrict_pins(GuestPins(cells, affinities=tuple(sets)), POLICY, HOST)
    assert restrict_pins(found, POLICY, HOST) == found
