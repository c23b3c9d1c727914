"""What a conductor says of the broker, and of the agents that it cuts off."""

from datetime import timedelta

import pytest

from nodetracker.clock import DatabaseClock
from nodetracker.conductor.broker_watch import GRACE_SECONDS, BrokerWatch
from nodetracker.conductor.fleet_watch import FleetWatch
from nodetracker.conductor.membership import Membership
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import RpcUnavailableError
from nodetracker.model.service import (
    BROKER,
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    AuditState,
)
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey
from tests.builders import NOW, make_incarnation, take_service

DOWN = 60


class WatchedFleet:
    def __init__(self):
        self.seconds = 0.0
        self.error = None
        self.store = MemoryStore(lambda: NOW + timedelta(seconds=self.seconds))
        self.watch = BrokerWatch(self.call_self, lambda: self.seconds)
        self.members = {}
        self.fleets = {}
        self.add_conductor("c-1")

    def call_self(self):
        if self.error is not None:
            raise self.error

    def add_conductor(self, host):
        incarnation = make_incarnation(agent_id=f"00000000-0000-4000-8000-{len(self.members):012d}")
        self.members[host] = Membership(
            self.store, host, CONDUCTOR_BINARY, "conductor", "1", incarnation,
            DatabaseClock(lambda: self.seconds), self.watch.state,
        )  # fmt: skip
        self.fleets[host] = FleetWatch(self.store, host, DOWN)

    def add_agent(self, host, by_broker=True):
        record = take_service(self.store, host, make_incarnation())
        key = AgentKey(host, COMPUTE_BINARY, record.incarnation.agent_id, record.epoch, record.uuid)
        self.store.report_state(key, 1, AuditState(by_broker=by_broker))
        return key

    def tick(self, seconds):
        """Let time pass and every conductor look and beat."""
        self.seconds += seconds
        self.watch.check()
        for host, member in self.members.items():
            member.report_state()
            self.fleets[host].check(self.watch.is_out)

    def cut_off(self):
        return [
            record.host
            for record in self.store.list_warnings()
            if record.warning.kind is WarningKind.AGENT_UNREACHABLE and record.resolved_at is None
        ]


@pytest.fixture
def watched():
    watched = WatchedFleet()
    watched.tick(0)
    return watched


def test_agents_that_the_broker_cuts_off_are_warned_of_until_it_is_back(watched):
    key = watched.add_agent("h-1")
    watched.add_agent("h-2", by_broker=False)
    watched.error = RpcUnavailableError("no answer")
    watched.tick(10)
    assert watched.cut_off() == []
    watched.tick(DOWN)
    assert watched.cut_off() == ["h-1"]
    watched.error = None
    watched.tick(10)
    assert watched.cut_off() == ["h-1"]  # it has not come back yet
    watched.store.report_state(key, 2, AuditState(by_broker=True))
    watched.tick(GRACE_SECONDS)
    watched.tick(10)
    assert watched.cut_off() == []


def test_an_agent_that_died_before_is_not_taken_for_cut_off(watched):
    watched.add_agent("h-1")
    watched.tick(600)
    watched.error = RpcUnavailableError("no answer")
    watched.tick(10)
    watched.tick(DOWN)
    assert watched.cut_off() == []


def test_of_several_conductors_one_warns(watched):
    watched.add_conductor("c-2")
    watched.add_agent("h-1")
    watched.tick(1)
    watched.error = RpcUnavailableError("no answer")
    watched.tick(10)
    watched.tick(DOWN)
    (record,) = watched.store.list_warnings("h-1")
    assert record.count == 1


def test_a_broker_that_never_answered_is_not_known_to_be_lost(watched):
    watch = BrokerWatch(lambda: (_ for _ in ()).throw(RpcUnavailableError("no")), lambda: 5.0)
    watch.check()
    assert watch.state().nodes[BROKER] == {"age_seconds": None, "error": "no"}


def test_two_that_share_a_host_name_take_the_row_in_turn_and_say_so(watched, caplog):
    other = WatchedFleet()
    other.store = watched.store
    twin = make_incarnation(agent_id="99999999-0000-4000-8000-000000000000")
    member = Membership(
        watched.store, "c-1", CONDUCTOR_BINARY, "conductor", "1", twin, DatabaseClock()
    )
    member.report_state()
    watched.tick(1)
    assert "Another nodetracker-conductor uses the host name c-1" in caplog.text
    watched.tick(1)
    (service,) = watched.store.list_services("c-1")
    assert service.incarnation.agent_id != twin.agent_id


def test_each_heartbeat_sets_the_clock():
    store, clock = MemoryStore(lambda: NOW), DatabaseClock(lambda: 0.0)
    member = Membership(store, "c-1", CONDUCTOR_BINARY, "", "1", make_incarnation(), clock)
    member.report_state()
    assert clock.read() == NOW
