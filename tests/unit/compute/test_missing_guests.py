"""Deleted guests, and which listing decides on them."""

import pytest

from nodetracker.compute.missing_guests import MissingGuestTracker
from nodetracker.compute.reading import NodeReading
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import GuestListing
from tests.builders import NOW, make_snapshot

UUID = "00000000-0000-4000-8000-000000000001"


class Guests:
    """The tracker, and readings of one node as audits make them."""

    def __init__(self):
        self.tracker = MissingGuestTracker()

    def delete(self):
        self.tracker.mark_deleted({"node-1": {UUID}})

    def start(self, **facts):
        return NodeReading(
            make_snapshot("node-1", **facts), deleted_before=self.tracker.list_deleted("node-1")
        )

    def decided_by(self, reading):
        return self.tracker.listing_time(reading, NOW).deleted


@pytest.fixture
def guests():
    return Guests()


def test_guests_deleted_before_a_reading_are_decided_by_it_once(guests):
    guests.delete()
    reading = guests.start()
    assert guests.decided_by(reading) == {UUID}
    guests.tracker.update(reading)
    assert guests.decided_by(guests.start()) == set()


def test_a_guest_deleted_during_a_reading_is_decided_by_the_next(guests):
    reading = guests.start()
    guests.delete()
    assert guests.decided_by(reading) == set()
    guests.tracker.update(reading)
    assert guests.decided_by(guests.start()) == {UUID}


def test_a_later_reading_that_has_started_does_not_change_what_an_earlier_decides(guests):
    earlier = guests.start()
    guests.delete()
    later = guests.start()
    guests.tracker.update(earlier)
    assert (guests.decided_by(earlier), guests.decided_by(later)) == (set(), {UUID})
    guests.tracker.update(later)
    assert guests.decided_by(guests.start()) == set()


@pytest.mark.parametrize(
    "listing",
    [failed("test", "boom"), fresh("test", GuestListing((), ("domain x",)))],
    ids=["failed", "incomplete"],
)
def test_only_a_complete_listing_decides_on_deleted_guests(guests, listing):
    guests.delete()
    guests.tracker.update(guests.start(guests=listing))
    assert guests.decided_by(guests.start()) == {UUID}
