import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.pci.admission import DeviceDemand, is_met, match_devices


def search(demands, parents):
    """Return by brute force whether all demands can be met together."""

    def go(index, taken):
        if index == len(demands):
            return True
        demand = demands[index]
        free = [address for address in demand.ranks if address not in taken]
        for chosen in itertools.combinations(free, demand.count):
            together = taken | set(chosen)
            if not any(parents[address] in together for address in together) and go(
                index + 1, together
            ):
                return True
        return False

    return go(0, frozenset())


def make_parents(vfs_of_cards):
    """Build cards p0, p1, ... with VFs p0v0, ...: address -> its PF."""
    parents = {}
    for number, vfs in enumerate(vfs_of_cards):
        parents[f"p{number}"] = None
        parents |= {f"p{number}v{index}": f"p{number}" for index in range(vfs)}
    return parents


def demand(count, *addresses):
    return DeviceDemand(count, dict.fromkeys(addresses, 0))


@st.composite
def problems(draw):
    parents = make_parents(draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))
    ranks = st.dictionaries(st.sampled_from(sorted(parents)), st.integers(0, 1))
    demands = draw(st.lists(st.builds(DeviceDemand, st.integers(0, 3), ranks), max_size=4))
    return demands, parents


@st.composite
def problems_of_kinds(draw):
    """Build demands like those of aliases: either for PFs or for VFs."""
    parents = make_parents(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)))
    demands = []
    for is_pf, count in draw(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=4)):
        names = sorted(name for name in parents if (parents[name] is None) is is_pf)
        cards = draw(st.sets(st.sampled_from(range(4))))
        demands.append(demand(count, *(name for name in names if int(name[1]) in cards)))
    return demands, parents


@settings(max_examples=400, deadline=None)
@given(st.one_of(problems(), problems_of_kinds()))
def test_agrees_with_brute_force(problem):
    demands, parents = problem
    chosen = match_devices(demands, parents)
    assert is_met(demands, chosen) == search(demands, parents)
    taken = [address for addresses in chosen for address in addresses]
    assert len(taken) == len(set(taken))
    assert not any(parents[address] in taken for address in taken)
    for wanted, addresses in zip(demands, chosen, strict=True):
        assert len(addresses) <= wanted.count
        assert set(addresses) <= wanted.ranks.keys()
    assert match_devices(demands, parents) == chosen


def test_a_demand_with_alternatives_makes_room():
    demands = [demand(1, "a", "b"), demand(1, "a")]
    assert match_devices(demands, {"a": None, "b": None}) == (("b",), ("a",))


def test_the_smaller_card_is_used_as_a_pf():
    parents = make_parents([3, 1])
    vfs = [name for name in parents if "v" in name]
    assert match_devices([demand(1, "p0", "p1"), demand(3, *vfs)], parents) == (
        ("p1",),
        ("p0v0", "p0v1", "p0v2"),
    )


def test_an_unmet_demand_gets_as_many_as_possible():
    parents = make_parents([2])
    chosen = match_devices([demand(1, "p0"), demand(2, "p0v0", "p0v1")], parents)
    assert chosen == ((), ("p0v0", "p0v1"))


def test_equal_cards_are_not_tried_one_by_one():
    parents = make_parents([8] * 64)
    pfs = [name for name in parents if "v" not in name]
    vfs = [name for name in parents if "v" in name]
    demands = [demand(32, *pfs), demand(257, *vfs)]  # one VF too many: every way is tried
    assert sum(map(len, match_devices(demands, parents))) == 288


def test_cards_with_different_mixtures_of_vfs_are_distinguished():
    parents = make_parents([3, 3])
    demands = [
        demand(1, "p0", "p1"),
        demand(2, "p0v0", "p0v1", "p1v0"),
        demand(1, "p0v2", "p1v1", "p1v2"),
    ]
    assert match_devices(demands, parents) == (("p1",), ("p0v0", "p0v1"), ("p0v2",))
