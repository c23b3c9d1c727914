"""Test the results of the search and the number of sets it visits, independent of time."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.accounting.numa.assignment import MAX_VISITED, CellChoice, find_shortage

EIGHT = frozenset(range(8))
SETS_OF_EIGHT = 2**8

CANDIDATES = st.integers(1, 5).flatmap(
    lambda guests: st.lists(st.frozensets(st.integers(0, 5)), min_size=guests, max_size=guests)
)


def refuses_all(cell_ids):
    return False


def all_matchings(candidates):
    """Yield every way to place guest cells on distinct host cells, by brute force."""
    for hosts in itertools.permutations(range(6), len(candidates)):
        if all(host in fitting for host, fitting in zip(hosts, candidates, strict=True)):
            yield hosts


@given(CANDIDATES, st.permutations(range(6)), st.frozensets(st.integers(0, 5)))
def test_it_finds_a_choice_whenever_one_exists(candidates, order, needed):
    def accepts(cell_ids):
        return needed <= set(cell_ids)

    expected = [hosts for hosts in all_matchings(candidates) if accepts(hosts)]
    found = CellChoice(candidates, order, accepts).find()
    assert (found in expected) if expected else (found is None)


@given(CANDIDATES, st.permutations(range(6)))
def test_no_other_choice_has_better_host_cells(candidates, order):
    def rank(hosts):
        return sorted(order.index(host) for host in hosts)

    found = CellChoice(candidates, order, bool).find()
    if found is not None:
        assert rank(found) == min(rank(hosts) for hosts in all_matchings(candidates))


@given(CANDIDATES)
def test_a_shortage_is_found_exactly_when_no_placement_exists(candidates):
    shortage = find_shortage(candidates)
    assert (shortage is None) == any(True for _ in all_matchings(candidates))
    if shortage:
        guests, hosts = shortage
        assert set(hosts) == frozenset().union(*(candidates[guest] for guest in guests))
        assert len(hosts) < len(guests)


def test_alike_guest_cells_keep_the_order_of_the_host_cells():
    assert CellChoice([EIGHT] * 4, (7, 6, 5, 4, 3, 2, 1, 0), bool).find() == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("candidates", "accepts", "most"),
    [
        pytest.param([EIGHT] * 8, bool, 8, id="all-alike"),
        pytest.param([EIGHT] * 8, refuses_all, 8, id="all-alike-and-refused"),
        pytest.param([frozenset()] * 8, bool, 0, id="nothing-fits-anywhere"),
        pytest.param([EIGHT] * 7 + [frozenset()], bool, 0, id="the-last-fits-nowhere"),
        pytest.param([EIGHT - {7}] * 8, bool, 0, id="eight-on-seven"),
        pytest.param(
            [EIGHT] * 6 + [frozenset({0})] * 2, bool, 0, id="two-of-eight-fit-only-the-same"
        ),
        pytest.param(
            [frozenset(range(guest, 8)) for guest in range(8)], bool, 8, id="one-choice-is-right"
        ),
        pytest.param([EIGHT] * 4, refuses_all, SETS_OF_EIGHT, id="four-refused"),
        pytest.param(
            [EIGHT] * 4,
            lambda cell_ids: cell_ids == (0, 1, 2, 3),
            SETS_OF_EIGHT,
            id="the-least-preferred-set-alone-accepted",
        ),
    ],
)
def test_few_sets_are_visited_on_eight_host_cells(candidates, accepts, most):
    choice = CellChoice(candidates, (7, 6, 5, 4, 3, 2, 1, 0), accepts)
    choice.find()
    assert choice.visited <= most
    assert not choice.has_given_up


@pytest.mark.parametrize("guests", range(1, 9))
def test_no_set_of_host_cells_is_checked_twice(guests):
    checked = []
    CellChoice([EIGHT] * guests, tuple(range(8)), lambda ids: bool(checked.append(ids))).find()
    assert sorted(checked) == sorted(itertools.combinations(range(8), guests))


def test_a_hopeless_search_on_a_large_host_ends():
    hosts = range(32)
    choice = CellChoice([frozenset(hosts)] * 8, tuple(hosts), refuses_all)
    assert choice.find() is None
    assert choice.has_given_up
    assert choice.visited == MAX_VISITED
