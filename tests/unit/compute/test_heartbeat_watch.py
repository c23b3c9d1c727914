"""Whether the agent of a services row is alive, without comparing clocks."""

import pytest

from nodetracker.compute.takeover import HeartbeatWatch
from nodetracker.model.errors import StoppingError
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.ports import AgentKey
from tests.builders import make_incarnation, take_service
from tests.stores import SqliteStore


class WatchedHost:
    """A services row; time passes only while it is watched."""

    def __init__(self):
        self.seconds = 0.0
        self.store = SqliteStore()
        self.record = take_service(self.store, "host-1", make_incarnation())
        self.events = {}  # by number of the wait
        self.waits = 0
        self.stops = False

    def wait(self, seconds):
        self.seconds += seconds
        self.waits += 1
        self.events.get(self.waits, lambda: None)()
        return self.stops

    def report_state(self, is_last=False):
        incarnation = self.record.incarnation
        key = AgentKey(
            "host-1", COMPUTE_BINARY, incarnation.agent_id, self.record.epoch, self.record.uuid
        )
        self.store.report_state(key, self.record.report_count + 1, AuditState(), is_last=is_last)

    def find_alive(self):
        return HeartbeatWatch(self.store, self.wait).find_alive(self.record, 10)


@pytest.fixture
def watched():
    return WatchedHost()


def test_an_agent_without_heartbeats_is_watched_for_two_intervals(watched):
    assert watched.find_alive() is None
    assert watched.seconds == pytest.approx(20)
    assert watched.waits == 10


def test_a_heartbeat_ends_the_watch(watched):
    watched.events[3] = watched.report_state
    assert watched.find_alive().report_count == watched.record.report_count + 1
    assert watched.seconds == pytest.approx(6)


def test_a_heartbeat_at_the_very_end_counts(watched):
    watched.events[10] = watched.report_state
    assert watched.find_alive() is not None


def test_a_time_without_answers_of_the_database_is_not_watched(watched, monkeypatch):
    list_services = watched.store.list_services

    def answer_late(*arguments):
        watched.seconds += 60
        watched.events[7] = watched.report_state
        monkeypatch.setattr(watched.store, "list_services", list_services)
        return list_services(*arguments)

    monkeypatch.setattr(watched.store, "list_services", answer_late)
    assert watched.find_alive() is not None


def test_another_holder_of_the_row_is_alive(watched):
    watched.events[2] = lambda: take_service(watched.store, "host-1", make_incarnation())
    assert watched.find_alive().epoch == watched.record.epoch + 1


def test_a_deleted_row_has_no_live_agent(watched):
    watched.events[2] = lambda: watched.store.delete_service("host-1", COMPUTE_BINARY, -1)
    assert watched.find_alive() is None
    assert watched.waits == 2


def test_an_agent_that_reports_its_end_is_not_alive(watched):
    watched.events[2] = lambda: watched.report_state(is_last=True)
    assert watched.find_alive() is None
    assert watched.waits == 2


def test_the_watch_ends_with_its_process(watched):
    watched.stops = True
    with pytest.raises(StoppingError):
        watched.find_alive()
