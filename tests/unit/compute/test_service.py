"""The service's threads, and the line that systemd shows of an agent."""

import dataclasses
import threading

import pytest

from nodetracker.accounting.liveness import is_service_up
from nodetracker.compute.manager import ComputeManager
from nodetracker.compute.service import ComputeService, describe_status
from nodetracker.model.audit import EventKind, NodeEvent
from nodetracker.model.health import AgentStatus
from nodetracker.model.node import NodeListing
from nodetracker.model.service import AuditState
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import DriverCapability
from tests.builders import make_guest, make_incarnation, make_snapshot
from tests.stores import SqliteStore
from tests.unit.compute.manual_timer import ManualTimer, wait_for

FINE = AgentStatus("host-1", "agent-a", epoch=1, has_started=True, fine_nodes=3)
ONE_HELD = AuditState(2.0, {"n2": {"age_seconds": 90.0, "error": "cpu: no answer"}})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Host host-1: 3 nodes, all fine"),
        ({"fine_nodes": 1}, "Host host-1: 1 node, all fine"),
        ({"has_started": False}, "Host host-1: starting"),
        ({"database_error": "MariaDB at db: refused"}, "Host host-1: MariaDB at db: refused"),
        ({"driver_error": "libvirt: away", "fine_nodes": 0}, "Host host-1: libvirt: away"),
        (
            {"audit": ONE_HELD, "fine_nodes": 2},
            "Host host-1: 1 of 3 nodes not fine, n2: cpu: no answer",
        ),
    ],
)
def test_the_status_is_one_line(changes, line):
    assert describe_status(dataclasses.replace(FINE, **changes)) == line


class EventDriver:
    """One node whose guests the test changes."""

    capabilities = frozenset({DriverCapability.EVENTS})

    def __init__(self):
        self.guests = []
        self.readings = 0
        self.send = None

    def init_host(self):
        pass

    def close(self):
        pass

    def events(self, callback):
        self.send = callback

    def get_available_nodes(self):
        return NodeListing(("n1",))

    def get_available_resource(self, nodename):
        self.readings += 1
        return make_snapshot(nodename, *self.guests)


class RunningAgent:
    def __init__(self, timer=None, servers=()):
        self.driver, self.store = EventDriver(), SqliteStore()
        settings = AgentSettings("host-1", "/tmp", Policy(), audit_interval=None)
        self.manager = ComputeManager(
            settings, make_incarnation(), "1", self.driver, self.store, timer=timer
        )
        self.service = ComputeService(settings, self.manager, servers)
        self.service.begin()
        assert self.service.has_started.wait(30)

    @property
    def guests(self):
        (record,) = self.store.load_nodes("host-1")
        return len(record.guests)


@pytest.fixture
def running():
    agent = RunningAgent()
    yield agent
    assert agent.service.end()
    assert agent.service.fatal is None


class RecordingServer:
    def __init__(self, calls):
        self._calls = calls

    def start(self):
        self._calls.append("server starts")

    def stop(self, timeout_seconds):
        self._calls.append("server stops")
        return True


def test_the_hooks_are_called_in_nova_s_order(monkeypatch):
    calls = []

    def record(name):
        hook = getattr(ComputeManager, name)

        def run(self):
            if name not in calls:
                calls.append(name)
            return hook(self)

        monkeypatch.setattr(ComputeManager, name, run)

    for name in (
        "init_host", "pre_start_hook", "post_start_hook", "prepare_stop", "report_end",
        "cleanup_host",
    ):  # fmt: skip
        record(name)
    agent = RunningAgent(servers=[RecordingServer(calls)])
    assert agent.service.end()
    assert calls == [
        "init_host", "pre_start_hook", "server starts", "post_start_hook",
        "prepare_stop", "server stops", "report_end", "cleanup_host",
    ]  # fmt: skip


def test_an_event_brings_its_node_up_to_date(running):
    running.driver.guests.append(make_guest(1))
    running.driver.send(NodeEvent("n1", EventKind.CHANGED, make_guest(1).uuid))
    assert wait_for(lambda: running.guests == 1)
    assert running.service.is_making_progress()


def test_a_requested_audit_runs_without_an_interval(running):
    running.driver.guests.append(make_guest(1))
    running.manager.audit_requests.request()
    assert wait_for(lambda: running.guests == 1)


def test_a_heartbeat_follows_each_audit_of_all_nodes(running):
    def audit_age():
        (service,) = running.store.list_services()
        return service.last_audit["age_seconds"]

    assert wait_for(lambda: audit_age() is not None)
    before = running.manager.status().report_count
    running.manager.audit_requests.request()
    assert wait_for(lambda: running.manager.status().report_count > before)
    assert audit_age() < running.manager.status().audit.age_seconds


def test_other_settings_lead_to_an_audit(running):
    running.driver.guests.append(make_guest(1))
    settings = AgentSettings("host-1", "/tmp", Policy(reserved_memory_mb=7), audit_interval=None)
    running.service.reconfigure(settings)
    assert wait_for(lambda: running.guests == 1)


def test_the_last_heartbeat_reports_the_end_of_the_agent(running):
    (before,) = running.store.list_services()
    assert is_service_up(before, running.store.now(), 60)
    assert running.service.end()
    (after,) = running.store.list_services()
    assert not is_service_up(after, running.store.now(), 60)
    assert (after.ended_epoch, after.epoch) == (before.epoch, before.epoch)


def test_a_database_that_hangs_does_not_keep_an_agent_from_ending(running, monkeypatch):
    hung = threading.Event()
    monkeypatch.setattr(running.store, "report_state", lambda *arguments: hung.wait(60))
    monkeypatch.setattr("nodetracker.compute.service.LAST_HEARTBEAT_SECONDS", 0.01)
    assert running.service.end()
    hung.set()


def test_a_stop_does_not_wait_for_an_event_to_become_due():
    running = RunningAgent(ManualTimer())
    running.driver.send(NodeEvent("n1", EventKind.GONE, make_guest(1).uuid))
    readings = running.driver.readings
    assert running.service.end()
    assert running.driver.readings == readings


def test_a_node_whose_ledger_moved_is_audited(running):
    running.driver.guests.append(make_guest(1))
    running.manager.ledger_moved("n1")
    assert wait_for(lambda: running.guests == 1)


def test_a_service_that_changed_is_audited_once_for_many_changes():
    timer = ManualTimer()
    running = RunningAgent(timer)
    before = running.driver.readings
    for _ in range(20):
        running.manager.ledger_moved()
    timer.advance_until(lambda: running.driver.readings > before, at_most=1)
    assert running.service.end()
    assert running.driver.readings == before + 1
