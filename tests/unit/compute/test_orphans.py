"""Rows of nodes that listings lack."""

from nodetracker.compute.resource_tracker import OrphanTracker
from nodetracker.model.claim import ClaimState
from nodetracker.model.node import NodeListing
from tests.builders import make_record
from tests.unit.accounting.ledger.fakes import make_claim

RELEASED = make_claim("claim-2", state=ClaimState.RELEASED)
ROWS = {
    "empty": make_record(nodename="empty", claims={"claim-2": RELEASED}),
    "claimed": make_record(nodename="claimed", claims={"claim-1": make_claim()}),
    "listed": make_record(nodename="listed"),
}
LISTING = NodeListing(("listed",))


def test_a_row_is_deleted_or_its_facts_are_unknown_from_the_second_listing_on():
    tracker = OrphanTracker()
    first, second = tracker.evaluate(LISTING, ROWS), tracker.evaluate(LISTING, ROWS)
    assert (first.missed, first.due) == (("empty",), ())
    assert (first.kept, first.gone) == (("claimed",), ())
    assert (second.missed, second.due) == ((), ("empty",))
    assert (second.kept, second.gone) == (("claimed",), ("claimed",))


def test_an_incomplete_listing_does_not_count():
    tracker = OrphanTracker()
    tracker.evaluate(LISTING, ROWS)
    waiting = tracker.evaluate(NodeListing(("listed",), ("libvirt",)), ROWS)
    assert (waiting.waiting, waiting.due, waiting.gone) == (("claimed", "empty"), (), ())
    assert tracker.evaluate(LISTING, ROWS).due == ("empty",)


def test_a_node_that_is_listed_again_is_counted_from_the_start():
    tracker = OrphanTracker()
    tracker.evaluate(LISTING, ROWS)
    tracker.evaluate(NodeListing(tuple(ROWS)), ROWS)
    assert tracker.evaluate(LISTING, ROWS).missed == ("empty",)
