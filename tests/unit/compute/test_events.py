"""Events on their way to an audit: storms are one, half a reboot is none, the gone are known."""

import pytest

from nodetracker.compute.events import (
    LONGEST_SECONDS,
    QUIET_SECONDS,
    STOP_SECONDS,
    EventBatch,
    EventQueue,
)
from nodetracker.model.event import EventKind, NodeEvent


class Events:
    def __init__(self):
        self.now = 100.0
        self.queue = EventQueue(lambda: self.now)

    def tell(self, kind, uuid="a", nodename="n1"):
        self.queue.add(NodeEvent(nodename, kind, uuid))

    def take_after(self, seconds):
        self.now += seconds
        return self.queue.take()


@pytest.fixture
def events():
    return Events()


def test_nothing_waits_at_first(events):
    assert events.queue.delay() is None
    assert events.take_after(9) == EventBatch()


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (EventKind.CHANGED, QUIET_SECONDS),
        (EventKind.SOURCE, QUIET_SECONDS),
        (EventKind.STOPPED, STOP_SECONDS),
        (EventKind.GONE, STOP_SECONDS),
    ],
)
def test_a_node_is_due_once_its_event_has_settled(events, kind, seconds):
    events.tell(kind)
    assert events.queue.delay() == pytest.approx(seconds)
    assert events.take_after(seconds / 2).nodenames == frozenset()
    assert events.take_after(seconds / 2 + 0.001).nodenames == {"n1"}
    assert events.queue.delay() is None


def test_a_storm_is_one_audit_of_each_node(events):
    for number in range(50):
        events.tell(EventKind.CHANGED, f"guest-{number}", f"n{number % 2}")
    assert events.take_after(QUIET_SECONDS + 0.001).nodenames == {"n0", "n1"}
    assert events.queue.delay() is None


def test_a_start_takes_the_place_of_the_stop_before_it(events):
    events.tell(EventKind.STOPPED)
    events.now += STOP_SECONDS * 0.9
    events.tell(EventKind.CHANGED)
    assert events.queue.delay() == pytest.approx(QUIET_SECONDS)


def test_another_guest_s_event_does_not_show_half_a_reboot(events):
    events.tell(EventKind.STOPPED, "a")
    events.tell(EventKind.CHANGED, "b")
    assert events.take_after(QUIET_SECONDS * 2).nodenames == frozenset()


def test_events_without_end_put_the_audit_off_no_longer_than_that(events):
    began = events.now
    while not events.queue.take().nodenames:
        events.tell(EventKind.STOPPED)
        events.now += 0.01
    assert events.now - began < LONGEST_SECONDS + 0.02
    assert LONGEST_SECONDS < 1


def test_events_of_nodes_that_are_not_wanted_stay_due(events):
    events.tell(EventKind.GONE, "a", "n1")
    events.tell(EventKind.GONE, "b", "n2")
    events.now += 1
    assert events.queue.take(lambda nodename: nodename == "n2").gone == {"n2": frozenset({"b"})}
    assert events.queue.delay() == 0
    assert events.queue.take() == EventBatch(frozenset({"n1"}), {"n1": frozenset({"a"})})


def test_who_is_gone_is_told_with_the_node(events):
    events.tell(EventKind.GONE, "a")
    events.tell(EventKind.STOPPED, "b")
    assert events.take_after(1) == EventBatch(frozenset({"n1"}), {"n1": frozenset({"a"})})


def test_who_was_defined_again_is_not_gone(events):
    events.tell(EventKind.GONE, "a")
    events.tell(EventKind.CHANGED, "a")
    assert events.take_after(1).gone == {}
