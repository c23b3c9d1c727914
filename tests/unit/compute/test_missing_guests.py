"""Deleted guests, and which listing decides on them."""

import pytest

from nodetracker.compute.audit_queue import AuditQueue, NodeReading
from nodetracker.compute.row_writer import MissingGuestTracker
from nodetracker.model.audit import EventKind, NodeEvent
from tests.builders import NOW, make_snapshot
from tests.unit.compute.manual_timer import ManualTimer

UUID = "00000000-0000-4000-8000-000000000001"


class Guests:
    """The tracker, and readings of one node as audits make them."""

    def __init__(self):
        self.queue = AuditQueue(ManualTimer())
        self.tracker = MissingGuestTracker(self.queue)

    def send(self, kind):
        self.queue.timer.advance(1)
        self.queue.put_event(NodeEvent("node-1", kind, UUID))

    def delete(self):
        self.send(EventKind.GONE)

    def start(self):
        return NodeReading(
            make_snapshot("node-1"), deleted_before=self.queue.list_deleted("node-1")
        )

    def decided_by(self, reading):
        return self.tracker.evidence_of(reading, NOW, lambda moment: NOW).deleted.keys()

    def account(self, reading):
        self.tracker.update(reading, None)


@pytest.fixture
def guests():
    return Guests()


def test_guests_deleted_before_a_reading_are_decided_by_it_once(guests):
    guests.delete()
    reading = guests.start()
    assert guests.decided_by(reading) == {UUID}
    guests.account(reading)
    assert guests.decided_by(guests.start()) == set()


def test_a_guest_deleted_during_a_reading_is_decided_by_the_next(guests):
    reading = guests.start()
    guests.delete()
    assert guests.decided_by(reading) == set()
    guests.account(reading)
    assert guests.decided_by(guests.start()) == {UUID}


def test_a_later_reading_that_has_started_does_not_change_what_an_earlier_decides(guests):
    earlier = guests.start()
    guests.delete()
    later = guests.start()
    guests.account(earlier)
    assert (guests.decided_by(earlier), guests.decided_by(later)) == (set(), {UUID})
    guests.account(later)
    assert guests.decided_by(guests.start()) == set()


@pytest.mark.parametrize("kind", [EventKind.CHANGED, EventKind.GONE])
def test_a_guest_that_is_defined_or_deleted_again_is_not_decided_by_a_reading_before(guests, kind):
    guests.delete()
    reading = guests.start()
    guests.send(kind)
    assert guests.decided_by(reading) == set()
    guests.account(reading)
    assert guests.decided_by(guests.start()) == ({UUID} if kind is EventKind.GONE else set())
