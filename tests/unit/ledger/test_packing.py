import pytest

from nodetracker.accounting.ledger import packing
from nodetracker.accounting.ledger.packing import Refusals, kind_of, pack, place_in_turn
from tests.builders import ask
from tests.packing_fleets import POLICY, draw_fleet, fits_by_force, make_shared_node

STEPS = 1000


def places(found):
    return {request.uuid: node_id for request, node_id in found.places}


@pytest.mark.parametrize("seed", range(40))
def test_no_fleet_that_has_a_packing_is_missed(seed):
    nodes, requests = draw_fleet(seed, max_nodes=4, max_guests=7)
    found = pack(requests, nodes, POLICY)
    assert len(found.places) + len(found.left) == len(requests)
    assert not found.left or not fits_by_force(requests, nodes, STEPS)


def test_the_largest_comes_first_and_a_small_one_makes_room():
    nodes = [make_shared_node(1), make_shared_node(2)]
    small = [ask(VCPU=3, MEMORY_MB=1) for _ in range(2)]
    large = ask(VCPU=8, MEMORY_MB=1)
    found = pack([*small, large], nodes, POLICY)
    assert not found.left
    assert places(found)[small[0].uuid] == places(found)[small[1].uuid] != places(found)[large.uuid]


def test_what_no_node_would_take_alone_certainly_does_not_fit():
    too_large = ask(VCPU=9)
    found = pack([ask(VCPU=1), too_large], [make_shared_node(1), make_shared_node(2)], POLICY)
    assert (found.left, found.is_certain) == ((too_large,), True)


def test_what_exceeds_the_sum_of_all_nodes_certainly_does_not_fit():
    requests = [ask(MEMORY_MB=4096) for _ in range(5)]
    found = pack(requests, [make_shared_node(1), make_shared_node(2)], POLICY)
    assert (len(found.left), found.is_certain) == (1, True)


def test_an_assumed_request_makes_nothing_certain():
    too_large = ask(VCPU=9)
    assert not pack([too_large], [make_shared_node(1)], POLICY, {too_large.uuid}).is_certain


def test_a_request_with_limits_of_its_own_may_exceed_the_sum():
    wide = [ask(MEMORY_MB=8192, limits={"MEMORY_MB": 10**6}) for _ in range(3)]
    assert not pack(wide, [make_shared_node(1)], POLICY).left


NIC = [{"alias": "nic"}]


@pytest.fixture
def tried(monkeypatch):
    """The requests whose grant is tried, in order."""
    found, grant = [], packing.try_grant
    monkeypatch.setattr(
        packing, "try_grant", lambda request, *rest: found.append(request) or grant(request, *rest)
    )
    return found


def test_a_node_is_asked_once_for_requests_alike_that_no_node_takes(tried):
    nodes = [make_shared_node(number) for number in range(20)]
    requests = [ask(VCPU=1, pci_requests=NIC) for _ in range(10)]
    found = pack(requests, nodes, POLICY)
    assert (len(found.left), found.is_certain, len(tried)) == (10, True, 20)


def test_packings_of_the_same_nodes_share_what_these_refuse(tried):
    nodes = [make_shared_node(number) for number in range(20)]
    refusals = Refusals()
    for _ in range(3):
        assert pack([ask(VCPU=1, pci_requests=NIC)], nodes, POLICY, refusals=refusals).left
    assert len(tried) == 20


def test_no_request_takes_the_place_of_one_alike(tried):
    requests = [ask(VCPU=5) for _ in range(30)]
    nodes = [make_shared_node(number) for number in range(29)]
    found = pack(requests, nodes, POLICY)
    assert (len(found.left), found.is_certain) == (1, False)
    orders = 2 + len(packing.SEEDS)
    assert len(tried) <= orders * 29 + 10


def test_what_fits_nowhere_is_certain_without_the_nodes_that_only_others_may_take():
    large, small = ask(VCPU=9), [ask(VCPU=5) for _ in range(3)]
    nodes = [make_shared_node(1), make_shared_node(2)]
    assert pack([large, *small], nodes, POLICY, are_all=False).is_certain
    assert pack([ask(MEMORY_MB=4096) for _ in range(5)], nodes, POLICY).is_certain
    some = pack([ask(MEMORY_MB=4096) for _ in range(5)], nodes, POLICY, are_all=False)
    assert (len(some.left), some.is_certain) == (1, False)


def test_each_takes_the_first_of_its_own_candidates_and_no_more_of_them_than_needed():
    large, small = ask(VCPU=5), [ask(VCPU=2) for _ in range(3)]
    nodes = [make_shared_node(number) for number in range(4)]
    own = {kind_of(large): iter(nodes[:2]), kind_of(small[0]): iter(nodes[1::-1] + nodes[2:])}
    found = place_in_turn([*small, large], own, POLICY)
    assert places(found) == {large.uuid: 0, **dict.fromkeys([one.uuid for one in small], 1)}
    assert [len(list(rest)) for rest in own.values()] == [1, 3]


def test_what_none_of_its_candidates_accepts_is_left():
    large = ask(VCPU=9)
    found = place_in_turn([large], {kind_of(large): iter([make_shared_node(1)])}, POLICY)
    assert (found.places, found.left) == ((), (large,))
