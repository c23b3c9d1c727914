"""What conductors say of agents that reach none of them, and of hosts that are down."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from nodetracker.accounting.liveness import Liveness, is_cut_off, is_service_up
from nodetracker.conductor.service import AgentWatch
from nodetracker.db.schema import tables
from nodetracker.model.errors import StoreError
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    SCHEMA_REVISION,
    AuditState,
)
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.membership import Membership
from nodetracker.usecases.watch import FleetWatch, TrendWatch
from tests.builders import NOW, make_incarnation, take_service
from tests.stores import SqliteStore

DOWN = 60


class WatchedFleet:
    def __init__(self):
        self.seconds = 0.0
        self.called_at = None
        self.called_hosts = 2
        self.is_silent = False
        self.store = SqliteStore(lambda: NOW + timedelta(seconds=self.seconds))
        self.watch = AgentWatch(self, self.store, DOWN)
        self.members = {}
        self.fleets = {}
        self.add_conductor("c-1")

    @property
    def silent_seconds(self):
        return None if self.called_at is None else self.seconds - self.called_at

    def recall(self, hosts, seconds_ago):
        self.called_hosts = len(hosts)
        if self.called_at is None:
            self.called_at = self.seconds - seconds_ago

    def restart(self):
        """Start the conductors again, which know nothing from before."""
        self.called_at, self.called_hosts = None, 0
        self.watch = AgentWatch(self, self.store, DOWN)
        hosts = list(self.members)
        for host in hosts:
            del self.members[host]
            self.add_conductor(host)

    def add_conductor(self, host):
        incarnation = make_incarnation(agent_id=f"00000000-0000-4000-8000-{len(self.members):012d}")
        self.members[host] = Membership(
            self.store, host, CONDUCTOR_BINARY, "conductor", "1", incarnation,
            DatabaseClock(lambda: self.seconds), self.watch.state,
        )  # fmt: skip
        self.fleets[host] = FleetWatch(self.store, host, DOWN)

    def add_agent(self, host, by_conductor=True):
        record = take_service(self.store, host, make_incarnation())
        key = AgentKey(host, COMPUTE_BINARY, record.incarnation.agent_id, record.epoch, record.uuid)
        self.store.report_state(key, record.report_count + 1, AuditState(by_conductor=by_conductor))
        return key

    def tick(self, seconds):
        """Let time pass and every conductor look and report."""
        self.seconds += seconds
        if not self.is_silent:
            self.called_at = self.seconds
        for host, member in self.members.items():
            member.report_state()
            self.fleets[host].check(self.watch.is_out)

    def list_down(self, later=timedelta()):
        now = self.store.now() + later
        return [s.host for s in self.store.list_services() if not is_service_up(s, now, DOWN)]

    def list_cut_off(self, later=timedelta()):
        """Return the agents that are cut off, by the rows as they are now."""
        services, now = self.store.list_services(), self.store.now()
        liveness = Liveness.of(services, now, DOWN)._replace(now=now + later)
        return [s.host for s in services if is_cut_off(s, liveness)]

    def cut_off(self):
        return self.find(WarningKind.AGENT_UNREACHABLE)

    def find(self, kind):
        return [
            record.host
            for record in self.store.list_warnings()
            if record.warning.kind is kind and record.resolved_at is None
        ]


@pytest.fixture
def watched():
    watched = WatchedFleet()
    watched.tick(0)
    return watched


def test_agents_that_are_silent_at_once_are_warned_of_until_they_are_back(watched):
    key = watched.add_agent("h-1")
    watched.add_agent("h-2", by_conductor=False)
    watched.is_silent = True
    watched.tick(10)
    assert watched.cut_off() == []
    watched.tick(DOWN)
    assert watched.cut_off() == ["h-1"]
    watched.store.report_state(key, 2, AuditState(by_conductor=True))
    watched.is_silent = False
    watched.tick(10)
    watched.tick(1)
    assert watched.cut_off() == []


def test_a_single_agent_that_is_silent_is_down(watched):
    watched.called_hosts = 1
    watched.add_agent("h-1")
    watched.is_silent = True
    for _ in range(20):
        watched.tick(10)
    assert watched.cut_off() == []
    assert watched.find(WarningKind.HOST_DOWN) == ["h-1"]


def test_a_conductor_that_was_started_again_knows_who_called_before(watched):
    watched.add_agent("h-1")
    watched.add_agent("h-2")
    watched.is_silent = True
    watched.tick(10)
    watched.restart()
    watched.tick(DOWN)
    assert watched.list_cut_off() == ["h-1", "h-2"]
    watched.tick(DOWN / 2 - 1)
    assert watched.cut_off() == []  # they have time to call
    watched.tick(1)
    assert watched.cut_off() == ["h-1", "h-2"]
    assert watched.find(WarningKind.HOST_DOWN) == []


def test_agents_that_were_stopped_did_not_call_before(watched):
    for host in ("h-1", "h-2"):
        watched.store.report_state(watched.add_agent(host), 2, AuditState(), is_last=True)
    watched.is_silent = True
    watched.restart()
    for _ in range(8):
        watched.tick(10)
    assert watched.cut_off() == []


def test_agents_are_unreachable_as_soon_as_they_would_be_down(watched):
    for host in ("h-1", "h-2"):
        watched.add_agent(host)
    watched.is_silent = True
    for _ in range(DOWN):
        watched.tick(1)
        assert watched.list_down(timedelta(seconds=1)) == watched.list_cut_off(timedelta(seconds=1))
    assert watched.list_cut_off(timedelta(seconds=1)) == ["h-1", "h-2"]


def test_an_agent_that_died_before_is_not_taken_for_cut_off(watched):
    watched.add_agent("h-1")
    watched.tick(600)
    watched.is_silent = True
    watched.tick(10)
    watched.tick(DOWN)
    assert watched.cut_off() == []


def test_a_host_that_stays_down_is_warned_of_until_it_is_back(watched):
    watched.add_conductor("c-2")
    key = watched.add_agent("h-1")
    for _ in range(6):
        watched.tick(10)
    assert watched.find(WarningKind.HOST_DOWN) == []
    watched.tick(10)
    watched.tick(10)
    (record,) = watched.store.list_warnings("h-1")
    assert (record.warning.kind, record.count) == (WarningKind.HOST_DOWN, 1)
    watched.store.report_state(key, 2, AuditState())
    watched.tick(1)
    assert watched.find(WarningKind.HOST_DOWN) == []


def test_a_stopped_agent_is_warned_of_if_it_is_not_started_again(watched):
    for host in ("stopped", "restarted"):
        watched.store.report_state(watched.add_agent(host), 2, AuditState(), is_last=True)
    watched.tick(10)
    watched.add_agent("restarted")
    for _ in range(5):
        watched.tick(10)
    assert watched.find(WarningKind.HOST_DOWN) == []
    watched.tick(1)
    assert watched.find(WarningKind.HOST_DOWN) == ["stopped"]


def test_one_that_said_that_it_rarely_reports_is_down_and_not_cut_off_by_a_later_outage(watched):
    keys = [watched.add_agent("h-1"), watched.add_agent("h-2")]
    watched.add_agent("rare")
    with watched.store.engine.begin() as connection:
        rare = sa.update(tables.services).where(tables.services.c.host == "rare")
        connection.execute(rare.values(report_interval=10**9))
    for count in range(2, 42):
        watched.tick(10)
        for key in keys:
            watched.store.report_state(key, count, AuditState(by_conductor=True))
    watched.is_silent = True
    for _ in range(8):
        watched.tick(10)
    assert watched.list_cut_off() == ["h-1", "h-2"]


def test_no_host_is_warned_of_because_the_database_was_away(watched):
    keys = [watched.add_agent("h-1"), watched.add_agent("h-2")]
    watched.tick(600)
    watched.tick(10)
    assert watched.find(WarningKind.HOST_DOWN) == []
    watched.store.report_state(keys[0], 2, AuditState())
    for _ in range(6):
        watched.tick(10)
    assert watched.find(WarningKind.HOST_DOWN) == ["h-2"]


def test_a_conductor_that_starts_resolves_what_another_one_raised(watched):
    key = watched.add_agent("h-1")
    for _ in range(8):
        watched.tick(10)
    assert watched.find(WarningKind.HOST_DOWN) == ["h-1"]
    watched.store.report_state(key, 2, AuditState())
    watched.fleets.clear()
    watched.members.clear()
    watched.add_conductor("c-1")
    watched.tick(1)
    assert watched.find(WarningKind.HOST_DOWN) == []


def test_a_conductor_that_stops_is_down(watched):
    watched.members["c-1"].report_end()
    (service,) = watched.store.list_services("c-1")
    assert not is_service_up(service, watched.store.now(), DOWN)


def test_of_several_conductors_one_warns(watched):
    watched.add_conductor("c-2")
    watched.add_agent("h-1")
    watched.tick(1)
    watched.is_silent = True
    watched.tick(10)
    watched.tick(DOWN)
    watched.tick(1)
    (record,) = watched.store.list_warnings("h-1")
    assert record.count == 1


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


def test_a_row_that_was_deleted_or_restored_is_written_again_without_a_warning(watched, caplog):
    (mine,) = watched.store.list_services("c-1")
    watched.seconds += DOWN + 1
    watched.store.delete_service("c-1", CONDUCTOR_BINARY, DOWN)
    watched.tick(0)
    watched.tick(1)
    (again,) = watched.store.list_services("c-1")
    assert (again.uuid != mine.uuid, again.last_seen_up) == (True, watched.store.now())
    # A backup from before this process: its row is older than this process's last heartbeat.
    earlier = make_incarnation(agent_id="99999999-0000-4000-8000-000000000000")
    watched.seconds -= DOWN
    record = watched.store.register_agent("c-1", CONDUCTOR_BINARY, "", "1", earlier, again)
    key = AgentKey("c-1", CONDUCTOR_BINARY, earlier.agent_id, record.epoch, record.uuid)
    watched.store.report_state(key, record.report_count + 1, AuditState())
    watched.seconds += DOWN
    watched.tick(1)
    watched.tick(1)
    (mine,) = watched.store.list_services("c-1")
    assert mine.incarnation.agent_id != earlier.agent_id
    assert not caplog.records


def test_each_heartbeat_sets_the_clock_and_names_the_schema():
    store, clock = SqliteStore(lambda: NOW), DatabaseClock(lambda: 0.0)
    member = Membership(store, "c-1", CONDUCTOR_BINARY, "", "1", make_incarnation(), clock)
    member.report_state()
    assert clock.read() == NOW
    (service,) = store.list_services()
    assert service.last_audit["schema_revision"] == SCHEMA_REVISION


class TestTrends:
    """The first of the watchers samples each hour."""

    def count_samples(self, fleet):
        with fleet.store.engine.connect() as connection:
            return len(connection.execute(sa.select(tables.trends)).all())

    def test_one_sample_an_hour(self):
        fleet = WatchedFleet()
        fleet.add_conductor("c-2")
        sampled = []
        sample = fleet.store.sample_trends
        fleet.store.sample_trends = lambda: sampled.append(fleet.seconds) or sample()
        for _ in range(3 * 360 + 1):
            fleet.tick(10)
        assert self.count_samples(fleet) == len(sampled) == 4

    def test_the_next_watcher_samples_when_the_first_one_is_gone(self):
        fleet = WatchedFleet()
        fleet.add_conductor("c-2")
        fleet.tick(10)
        assert self.count_samples(fleet) == 1
        del fleet.members["c-1"]
        for _ in range(7):
            fleet.tick(10)
        assert self.count_samples(fleet) == 1
        fleet.tick(3600)
        fleet.tick(10)
        assert self.count_samples(fleet) == 2

    def test_a_sample_that_failed_is_taken_at_the_next_check(self, monkeypatch):
        fleet = WatchedFleet()
        watch = TrendWatch(fleet.store)
        with monkeypatch.context() as patch:
            patch.setattr(fleet.store, "sample_trends", fail)
            with pytest.raises(StoreError):
                watch.check(NOW)
        watch.check(NOW)
        assert self.count_samples(fleet) == 1


def fail():
    raise StoreError("away")
