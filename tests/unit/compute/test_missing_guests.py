"""Who is gone, and which listing may judge it."""

import pytest

from nodetracker.compute.missing_guests import MissingGuestTracker
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import GuestListing
from tests.builders import NOW, make_snapshot

UUID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def book():
    return MissingGuestTracker()


def gone(book):
    return book.time("node-1", NOW).gone


def test_who_was_gone_before_a_reading_is_judged_by_it_once(book):
    book.mark_deleted({"node-1": {UUID}})
    book.begin("node-1")
    assert gone(book) == {UUID}
    book.update(make_snapshot("node-1"))
    book.begin("node-1")
    assert gone(book) == set()


def test_who_goes_during_a_reading_is_judged_by_the_next(book):
    book.begin("node-1")
    book.mark_deleted({"node-1": {UUID}})
    assert gone(book) == set()
    book.update(make_snapshot("node-1"))
    book.begin("node-1")
    assert gone(book) == {UUID}


@pytest.mark.parametrize(
    "listing",
    [failed("test", "boom"), fresh("test", GuestListing((), ("domain x",)))],
    ids=["failed", "incomplete"],
)
def test_only_a_complete_listing_settles_who_is_gone(book, listing):
    book.mark_deleted({"node-1": {UUID}})
    book.begin("node-1")
    book.update(make_snapshot("node-1", guests=listing))
    book.begin("node-1")
    assert gone(book) == {UUID}
