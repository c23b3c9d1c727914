from dataclasses import replace

import pytest

from nodetracker.accounting.ledger.tolerance import (
    Review,
    choose_nodes,
    find_nearest,
    list_gained,
    list_worst_pairs,
    review,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.tolerance import HostTolerance, LossPlan, NodeGuests, NodeRoom, Verdict
from tests.builders import ask


def room(number, cpus=8, **given):
    left = Amounts(cpus * 1000, 0, 1024 * cpus, 1024)
    shown = {"generation": 5, "is_bounded": True, "is_up": True, "accepts": True} | given
    return NodeRoom(number, f"h{number}", "n", left=left, **shown)


def as_rooms(*rooms):
    return {item.id: item for item in rooms}


ROOMS = (room(1), room(2), room(3))
PLAN = LossPlan((ROOMS[0],), (NodeGuests(2, 5, "h2", "n", ("vm-1",)),))
YES = HostTolerance("h1", Verdict.SURVIVED, "", PLAN)
NO = HostTolerance("h1", Verdict.NOT_SURVIVED, "1 guest", LossPlan((ROOMS[0],)))


@pytest.mark.parametrize(
    ("stored", "changed", "gained", "expected"),
    [
        (None, (), (), Review.RENEW),
        (YES, (), (), Review.KEEP),
        (YES, (room(3, generation=6),), ("h3",), Review.KEEP),
        (YES, (room(2, generation=6),), (), Review.CHECK),
        (YES, (room(1, generation=6),), (), Review.CHECK),
        (YES, (room(2, accepts=False),), (), Review.RENEW),
        (NO, (), (), Review.KEEP),
        (NO, (), ("h1",), Review.KEEP),
        (NO, (), ("h3",), Review.RENEW),
        (NO, (room(1, generation=6),), (), Review.RENEW),
    ],
)
def test_an_answer_holds_until_what_it_rests_on_changes(stored, changed, gained, expected):
    rooms = as_rooms(*ROOMS, *changed)
    assert review(stored, [rooms[1]], rooms, gained) is expected


def test_a_plan_on_a_node_that_is_gone_is_made_anew():
    assert review(YES, [ROOMS[0]], as_rooms(ROOMS[0]), ()) is Review.RENEW


@pytest.mark.parametrize(
    ("before", "now", "is_more"),
    [
        (room(1), room(1), False),
        (None, room(1), True),
        (None, room(1, accepts=False), False),
        (room(1, accepts=False), room(1), True),
        (room(1, 4), room(1, 5, generation=6), True),
        (room(1, 5), room(1, 4, generation=6), False),
        # A device was added.
        (room(1, 5), room(1, 5, generation=6), True),
        # Two writes: one may have released a device.
        (room(1, 5), room(1, 4, generation=7), True),
        (room(1, 5), room(1, 4, generation=6, is_bounded=False), True),
    ],
)
def test_a_node_has_more_room_unless_it_only_lost_some(before, now, is_more):
    known = {} if before is None else as_rooms(before)
    assert list_gained(known, as_rooms(now)) == ({"h1"} if is_more else set())


def test_few_nodes_are_chosen_and_others_for_each_start():
    rooms = [room(number) for number in range(100)]
    requests = [ask(VCPU=2) for _ in range(8)]
    chosen = list(choose_nodes(requests, rooms, 7))
    assert [item.id for item in chosen] == [7, 8, 9, 10]
    assert not {item.id for item in choose_nodes(requests, rooms, 50)} & {7, 8, 9, 10}


def test_nodes_that_are_too_small_for_every_guest_are_not_chosen():
    rooms = [room(1, 1), room(2, 8), room(3, 1), room(4, 0, is_bounded=False)]
    assert [item.id for item in choose_nodes([ask(VCPU=2)], rooms, 0)] == [2, 4]


def test_the_nearest_nodes_lack_the_least():
    rooms = [room(1, 2), room(2, 6), room(3, 4)]
    assert [item.id for item in find_nearest(ask(VCPU=8), rooms, 2)] == [2, 3]


def test_the_worst_pairs_ask_for_the_most_of_what_is_left():
    needs = {"h1": Amounts(2000), "h2": Amounts(6000), "h3": Amounts(4000)}
    rooms = [*ROOMS, room(4)]
    assert list_worst_pairs(needs, rooms)[0] == ("h2", "h3")
    full = [replace(item, left=Amounts()) if item.id == 4 else item for item in rooms]
    assert len(list_worst_pairs(needs, full)) == 3
