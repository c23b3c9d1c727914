"""Events until their audit: storms, reboots and deleted guests."""

import pytest

from nodetracker.compute.audit_queue import (
    LONGEST_SECONDS,
    QUIET_SECONDS,
    STOP_SECONDS,
    DeletedGuests,
    EventBatch,
    PendingEvents,
)
from nodetracker.model.audit import ALL_NODES, EventKind, NodeEvent


class Events:
    def __init__(self):
        self.now = 100.0
        self.pending = PendingEvents()
        self.deleted = DeletedGuests()

    def add(self, kind, uuid="a", nodename="n1"):
        for kept in (self.pending, self.deleted):
            kept.add(NodeEvent(nodename, kind, uuid), self.now)

    def take_after(self, seconds):
        self.now += seconds
        return self.pending.take(self.now)

    @property
    def delay(self):
        due_at = self.pending.due_at()
        return None if due_at is None else due_at - self.now


@pytest.fixture
def events():
    return Events()


def test_nothing_is_pending_at_first(events):
    assert events.delay is None
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
def test_a_node_is_due_after_the_quiet_time_of_its_event(events, kind, seconds):
    events.add(kind)
    assert events.delay == pytest.approx(seconds)
    assert events.take_after(seconds / 2).nodenames == frozenset()
    assert events.take_after(seconds / 2 + 0.001).nodenames == {"n1"}
    assert events.delay is None


def test_a_storm_is_one_audit_of_each_node(events):
    for number in range(50):
        events.add(EventKind.CHANGED, f"guest-{number}", f"n{number % 2}")
    assert events.take_after(QUIET_SECONDS + 0.001).nodenames == {"n0", "n1"}
    assert events.delay is None


def test_a_start_replaces_the_stop_before_it(events):
    events.add(EventKind.STOPPED)
    events.now += STOP_SECONDS * 0.9
    events.add(EventKind.CHANGED)
    assert events.delay == pytest.approx(QUIET_SECONDS)


def test_another_guest_s_event_does_not_end_the_wait_for_a_reboot(events):
    events.add(EventKind.STOPPED, "a")
    events.add(EventKind.CHANGED, "b")
    assert events.take_after(QUIET_SECONDS * 2).nodenames == frozenset()


def test_endless_events_postpone_the_audit_only_up_to_the_limit(events):
    started_at = events.now
    while not events.take_after(0).nodenames:
        events.add(EventKind.STOPPED)
        events.now += 0.01
    assert events.now - started_at < LONGEST_SECONDS + 0.02
    assert LONGEST_SECONDS < 1


def test_events_of_unwanted_nodes_remain_due(events):
    events.add(EventKind.GONE, "a", "n1")
    events.add(EventKind.GONE, "b", "n2")
    events.now += 1
    assert events.pending.take(events.now, lambda node: node == "n2").nodenames == {"n2"}
    assert events.delay < 0
    assert events.take_after(0) == EventBatch(frozenset({"n1"}))


def test_events_of_unknown_nodes_concern_all_and_name_no_deleted_guest(events):
    events.add(EventKind.GONE, "a", ALL_NODES)
    assert events.take_after(1) == EventBatch(has_all_nodes=True)
    assert events.deleted.of_node("n1") == {}


def test_a_guest_was_deleted_at_the_last_such_event(events):
    events.add(EventKind.STOPPED, "a")
    assert events.deleted.of_node("n1") == {}
    for kind, deleted in (
        (EventKind.GONE, {"a": 101.0}),
        (EventKind.STOPPED, {"a": 101.0}),
        (EventKind.GONE, {"a": 103.0}),
        (EventKind.CHANGED, {}),  # defined again
    ):
        events.now += 1
        events.add(kind, "a")
        assert events.deleted.of_node("n1") == deleted


def test_a_guest_that_was_deleted_again_is_not_forgotten(events):
    events.add(EventKind.GONE, "a")
    first = events.deleted.of_node("n1")
    events.now += 1
    events.add(EventKind.GONE, "a")
    second = events.deleted.of_node("n1")
    events.deleted.forget("n1", first)
    assert events.deleted.of_node("n1") == second == {"a": events.now}
    events.deleted.forget("n1", second)
    assert events.deleted.of_node("n1") == {}
