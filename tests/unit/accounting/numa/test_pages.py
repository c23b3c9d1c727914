"""Huge pages that are in use beyond claims and bound guests are offered in no cell."""

from dataclasses import replace

import pytest

from nodetracker.accounting.audit.inventory import numa_columns
from nodetracker.accounting.numa.assignment import NumaRefusal, fit_numa
from nodetracker.accounting.numa.cells import (
    decode_host_cells,
    find_conflicts,
    list_assignments,
    topology_with_usage,
)
from nodetracker.accounting.numa.pages import withhold_pages
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import GuestPins, LoosePages
from nodetracker.model.numa import (
    CellAssignment,
    GuestCell,
    NumaAssignment,
    NumaCell,
    NumaRequest,
    NumaTopology,
    PagePool,
)
from nodetracker.model.settings import Policy, ReservedPages
from tests.builders import NOW, make_claim, make_guest

GIB = 1048576
PLAIN = make_claim("c-1", "w-1")


def make_topology(*in_use, total=96):
    """Return one cell with pages of 1 GiB for each number of those in use."""
    return NumaTopology(
        tuple(
            NumaCell(
                number,
                frozenset({number}),
                131072,
                pages=(PagePool(4, 8000000), PagePool(GIB, total, in_use=used)),
            )
            for number, used in enumerate(in_use)
        )
    )


def bound(cell, pages):
    return CellAssignment(cell, 0, pages * 1024, GIB, pages)


def loose(count, *cells, **more):
    return make_guest("g", pins=GuestPins(pages=(LoosePages(GIB, count, cells),)), **more)


def on_cell(cell, pages, **more):
    return make_guest("b", pins=GuestPins((bound(cell, pages),)), **more)


def claim_of(cell, pages, state=ClaimState.CONFIRMED):
    return replace(PLAIN, numa=NumaAssignment((bound(cell, pages),)), state=state)


def withhold(topology, claims=(), guests=(), reserved=()):
    """Return cell id -> withheld pages of 1 GiB, after a look at the whole column."""
    policy = Policy(reserved_pages=tuple(reserved))
    before = numa_columns(topology, policy)["numa_topology"]
    column = withhold_pages(before, topology, claims, guests)
    shown = {cell["id"]: cell["mempages"][1].get("withheld", 0) for cell in column["cells"]}
    used = topology_with_usage(column, {})
    for cell, was in zip(used["cells"], before["cells"], strict=True):
        assert cell["mempages"][1]["used"] == shown[cell["id"]]
        assert cell["mempages"][0] == was["mempages"][0]
    return shown


CLAIM = claim_of(0, 60)


@pytest.mark.parametrize(
    ("claims", "guests", "reserved", "withheld"),
    [
        ((), (), (), (80, 96)),
        ((), (), [ReservedPages(0, GIB, 30)], (50, 86)),
        ((), [on_cell(1, 70)], (), (46, 26)),
        ((), [loose(50)], (), (80, 96)),
    ],
    ids=["a program", "with reserved pages", "with a bound guest", "with a loose guest"],
)
def test_committed_pages_are_withheld_where_they_may_be(claims, guests, reserved, withheld):
    """80 of the machine are committed, and 36 of cell 1 are in use, of 96 in each."""
    topology = replace(make_topology(0, 36), committed_pages={GIB: 80})
    found = withhold(topology, claims, guests, reserved)
    assert (found[0], found[1]) == withheld


@pytest.mark.parametrize(
    ("in_use", "claims", "guests", "expected"),
    [
        pytest.param((0, 0), [], [], (0, 0), id="none in use"),
        pytest.param((60, 60), [], [loose(120)], (60, 60), id="loose guest"),
        pytest.param((70, 50), [], [], (70, 50), id="programs of the host"),
        pytest.param((None, None), [], [], (0, 0), id="nothing known, no guest"),
        pytest.param((None, None), [], [loose(60)], (60, 60), id="unknown in both cells"),
        pytest.param((None, 20), [], [loose(60)], (40, 60), id="unknown in one cell"),
        pytest.param((0, 0), [], [loose(60)], (60, 60), id="not touched yet, or off"),
        pytest.param((10, 20), [], [loose(60)], (40, 50), id="touched in part"),
        pytest.param((0, 0), [], [loose(120)], (96, 96), id="more than a cell has"),
        pytest.param((60, 0), [], [on_cell(0, 60)], (0, 0), id="bound guest"),
        pytest.param((80, 5), [], [on_cell(0, 60)], (20, 5), id="bound guest and others"),
        pytest.param((0, 0), [], [on_cell(0, 60)], (0, 0), id="bound guest that is off"),
        pytest.param((60, 60), [], [on_cell(0, 60), loose(60)], (0, 60), id="bound and loose"),
        pytest.param((0, 0), [], [loose(60, 1)], (0, 60), id="cells of the guest"),
        pytest.param((60, 0), [], [loose(60, 1)], (60, 60), id="others in its other cells"),
        pytest.param((60, 60), [], [loose(60), loose(60, 1)], (60, 60), id="narrow guest first"),
        pytest.param((0, 0), [], [loose(60, 7)], (60, 60), id="cell that does not exist"),
        pytest.param((60, 0), [CLAIM], [], (0, 0), id="confirmed claim"),
        pytest.param(
            (60, 0), [claim_of(0, 60, ClaimState.HELD)], [], (60, 0), id="claim without a guest"
        ),
        pytest.param((60, 60), [CLAIM], [loose(60)], (0, 60), id="claim and loose guest"),
        pytest.param(
            (60, 0), [CLAIM], [loose(60, claim_uuid=CLAIM.uuid)], (0, 0), id="loose with a claim"
        ),
        pytest.param(
            (20, 40), [CLAIM], [loose(60, claim_uuid=CLAIM.uuid)], (0, 40),
            id="in another cell than its claim",
        ),
        pytest.param(
            (60, 0), [CLAIM], [loose(60, claim_uuid=CLAIM.uuid, missing_since=NOW)], (60, 0),
            id="guest of the claim is missing",
        ),
        pytest.param(
            (60, 0), [PLAIN],
            [on_cell(0, 60, claim_uuid=CLAIM.uuid)], (60, 0),
            id="bound, of a claim without cells",
        ),
        pytest.param(
            (None, None), [PLAIN],
            [on_cell(0, 60, claim_uuid=CLAIM.uuid)], (60, 0),
            id="bound, of a claim without cells, unknown",
        ),
        pytest.param(
            (60, 0), [replace(CLAIM, state=ClaimState.RELEASED)], [], (60, 0), id="released"
        ),
    ],
)  # fmt: skip
def test_pages_in_use_that_nobody_accounts_for_are_withheld(in_use, claims, guests, expected):
    found = withhold(make_topology(*in_use), claims, guests)
    assert tuple(found.values()) == expected
    for cell, used in enumerate(in_use):  # no page in use is offered
        charged = sum(
            part.pages
            for numa in list_assignments(claims, guests)
            for part in numa.cells
            if part.host_cell == cell
        )
        assert charged + found[cell] >= (used or 0)


@pytest.mark.parametrize(
    ("in_use", "guests", "expected"),
    [
        pytest.param((10, 0), [], (0, 0), id="as reserved"),
        pytest.param((15, 0), [], (5, 0), id="more"),
        pytest.param((60, 60), [loose(120)], (60, 60), id="loose guest, reserve unused"),
        pytest.param((70, 60), [loose(120)], (60, 60), id="loose guest, reserve used"),
        pytest.param((10, 0), [loose(20)], (20, 10), id="guest or program of the host"),
    ],
)
def test_what_the_operator_reserves_is_for_programs_of_the_host(in_use, guests, expected):
    found = withhold(make_topology(*in_use), [], guests, [ReservedPages(0, GIB, 10)])
    assert tuple(found.values()) == expected


def test_pages_that_are_withheld_in_case_do_not_take_those_of_others():
    claims, guests = [claim_of(0, 60, ClaimState.HELD)], [loose(80)]
    assert withhold(make_topology(0, 0), claims, guests) == {0: 36, 1: 80}
    topology = make_topology(0, 0)
    column = withhold_pages(
        numa_columns(topology, Policy())["numa_topology"], topology, claims, guests
    )
    assert not find_conflicts(decode_host_cells(column), {"c": claims[0].numa})


def test_pages_of_other_sizes_are_apart():
    guest = make_guest("g", pins=GuestPins(pages=(LoosePages(2048, 60), LoosePages(4, 60))))
    assert withhold(make_topology(0, 0), [], [guest]) == {0: 0, 1: 0}


def test_on_a_host_without_huge_pages_the_column_is_as_it_is():
    column = numa_columns(make_topology(None, total=0), Policy())["numa_topology"]
    assert withhold_pages(column, make_topology(None, total=0), [], [loose(4)]) == column


def test_a_refusal_says_how_many_pages_are_withheld():
    topology = make_topology(60, 60)
    column = withhold_pages(
        numa_columns(topology, Policy())["numa_topology"], topology, [], [loose(120)]
    )
    request = NumaRequest((GuestCell(1, 0, 90 * 1024),), page_size=GIB)
    found = fit_numa(request, decode_host_cells(column), {})
    assert isinstance(found, NumaRefusal)
    reason = "free pages of 1048576 KiB 36 (of 96, 60 withheld) < requested 90"
    assert all(reason in line for line in found.reasons[:2])
    smaller = replace(request, cells=(GuestCell(1, 0, 36 * 1024),))
    assert not isinstance(fit_numa(smaller, decode_host_cells(column), {}), NumaRefusal)
