import pytest

from nodetracker.accounting.ledger.packing import pack
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
