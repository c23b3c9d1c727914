import dataclasses
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import yaml

from nodetracker.accounting.reports.summary import audit_age_seconds
from nodetracker.compute.identity import read_incarnation
from nodetracker.compute.manager import ComputeManager
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import DuplicateAgentError, FencedError, StoreUnavailableError
from nodetracker.model.event import EventKind, NodeEvent
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.warning import WarningKind
from nodetracker.ports import DriverCapability
from nodetracker.settings import AgentSettings, Policy
from nodetracker.virt.fake.driver import FakeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import NOW, make_incarnation, take_service

HOST = "host-1"
NODES = [{"nodename": name, "vcpus": 4, "memory_mb": 8192, "disk_gb": 100} for name in ("n1", "n2")]


class AwayStore(MemoryStore):
    is_away = False
    is_answer_lost = False

    def _refuse(self):
        if self.is_away:
            raise StoreUnavailableError("connection refused")

    def _lose_answer(self):
        if self.is_answer_lost:
            raise StoreUnavailableError("server closed the connection")

    def list_services(self, *arguments, **named):
        self._refuse()
        return super().list_services(*arguments, **named)

    def register_agent(self, *arguments):
        self._refuse()
        record = super().register_agent(*arguments)
        self._lose_answer()
        return record

    def load_stamps(self, *arguments):
        self._refuse()
        return super().load_stamps(*arguments)

    def beat(self, *arguments):
        self._refuse()
        super().beat(*arguments)
        self._lose_answer()

    @staticmethod
    def fail_to_mark(agent, reason):
        raise StoreUnavailableError("connection lost")


class TellingDriver(FakeDriver):
    """A driver of a file whose events the test tells."""

    capabilities = FakeDriver.capabilities | {DriverCapability.EVENTS}
    tell = None

    def events(self, callback):
        self.tell = callback


class World:
    def __init__(self, tmp_path):
        self.seconds = 0.0
        self.skew = 0.0
        self.path = tmp_path / "inventory.yaml"
        self.write()
        self.store = AwayStore(lambda: NOW + timedelta(seconds=self.seconds))
        self.reports = []
        self.manager = self.make_manager()

    def make_manager(self, waited=None, state_path="", **incarnation):
        """Make an agent; `waited` is called while it watches another's heartbeats."""
        self.driver = TellingDriver(str(self.path), ProbeRunner(1.0))
        manager = ComputeManager(
            AgentSettings(host=HOST, state_path=state_path, policy=Policy()),
            make_incarnation(**incarnation),
            "1.2.3",
            self.driver,
            self.store,
            [self],
            lambda: self.seconds,
            lambda: NOW + timedelta(seconds=self.seconds + self.skew),
        )
        if waited is not None:
            manager.bind(lambda: None, lambda: None, waited)
        return manager

    def audited(self, report):
        self.reports.append(report)

    def write(self, **more):
        self.path.write_text(yaml.safe_dump({"nodes": NODES} | more))

    def service(self):
        return self.store.list_services(HOST, COMPUTE_BINARY)[0]

    def age(self, nodename):
        return audit_age_seconds(self.service(), nodename, self.store.now())


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.manager.init_host()
    return world


def test_the_start_audits_before_anything_is_served(world):
    world.manager.pre_start_hook()
    assert {record.nodename for record in world.store.list_nodes()} == {"n1", "n2"}
    service = world.service()
    assert (service.epoch, service.version) == (1, "1.2.3")


def test_taking_the_host_is_a_heartbeat_that_those_see_who_watch_it(world):
    world.write(fail={"n1": "hang", "n2": "hang"})
    world.manager.pre_start_hook()
    service = world.service()
    assert (service.report_count, service.last_seen_up) == (1, NOW)


def test_observers_are_told_of_every_audit(world):
    world.manager.pre_start_hook()
    world.manager.inventory_host()
    assert [len(report.changes) for report in world.reports] == [2, 0]


class SlowObserver:
    """Takes its time over the first report."""

    def __init__(self):
        self.is_at_it = threading.Event()
        self.go_on = threading.Event()

    def audited(self, report):
        if not self.is_at_it.is_set():
            self.is_at_it.set()
            assert self.go_on.wait(10)


def test_observers_are_told_of_audits_in_their_order(world):
    slow = SlowObserver()
    world.manager._observers = (slow, world)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.manager.update_available_resource)
        assert slow.is_at_it.wait(10)
        second = pool.submit(world.manager.update_available_resource)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        slow.go_on.set()
    assert world.reports == [first.result(), second.result()]


def test_an_observer_that_fails_stops_nothing(world, caplog):
    world.reports = None
    world.manager.pre_start_hook()
    assert len(world.store.list_nodes()) == 2
    assert "was told of an audit and failed" in caplog.text


def test_the_heartbeat_carries_the_age_of_the_audit_and_of_what_is_not_fine(world):
    world.manager.pre_start_hook()
    world.seconds = 60
    world.write(fail={"n2": "boom"})
    world.manager.inventory_host()
    world.seconds = 65
    world.manager.beat()
    world.seconds = 68
    assert world.age("n1") == 8
    assert world.age("n2") == 68
    assert "boom" in world.service().last_audit["nodes"]["n2"]["error"]


def test_the_heartbeat_goes_on_rising(world):
    world.manager.pre_start_hook()
    for count in (2, 3, 4):
        world.manager.beat()
        assert world.service().report_count == count


def test_a_database_away_at_the_start_is_one_line_and_no_end(world, caplog):
    caplog.set_level(logging.INFO)
    world.store.is_away = True
    world.manager.pre_start_hook()
    world.manager.beat()
    world.manager.inventory_host()
    world.store.is_away = False
    world.seconds = 30
    world.manager.inventory_host()
    world.manager.beat()
    assert len(world.store.list_nodes()) == 2
    assert world.service().report_count == 2
    told = [message for message in caplog.messages if "database" in message]
    assert told == ["The database: connection refused", "The database is back after 30 s"]


def test_a_node_that_fails_since_a_restart_was_read_by_the_run_before(world):
    world.manager.pre_start_hook()
    world.seconds += 5
    world.manager.beat()
    world.seconds += 60
    world.write(fail={"n2": "boom"})
    again = world.make_manager(process_started_at=NOW)
    again.init_host()
    again.pre_start_hook()
    again.beat()
    assert (world.age("n1"), world.age("n2")) == (0, 65)
    world.seconds += 10
    again.inventory_host()
    again.beat()
    assert (world.age("n1"), world.age("n2")) == (0, 75)


def test_the_end_of_an_outage_asks_for_an_audit_at_once(world):
    wanted = []
    world.manager.bind(lambda: wanted.append(1), lambda: None, lambda: None)
    world.manager.pre_start_hook()
    world.manager.beat()
    world.store.is_away = True
    world.manager.beat()
    world.manager.beat()
    assert wanted == []
    world.store.is_away = False
    world.manager.beat()
    world.manager.beat()
    assert wanted == [1]


def test_a_heartbeat_takes_the_host_when_the_start_could_not(world):
    world.store.is_away = True
    world.manager.pre_start_hook()
    world.store.is_away = False
    world.manager.beat()
    assert world.service().report_count == 1


def test_a_heartbeat_that_was_written_though_its_answer_was_lost_is_followed_by_the_next(world):
    world.manager.pre_start_hook()
    world.store.is_answer_lost = True
    world.manager.beat()
    assert world.manager.status().database_error == "server closed the connection"
    world.store.is_answer_lost = False
    world.manager.beat()
    assert world.manager.status().database_error is None
    assert world.manager.status().report_count == world.service().report_count == 3


def test_a_host_that_was_taken_though_the_answer_was_lost_is_taken_again(world):
    own = read_incarnation("00000000-0000-4000-8000-00000000000a", 10)
    manager = world.make_manager(**dataclasses.asdict(own))
    world.store.is_answer_lost = True
    manager.pre_start_hook()
    world.store.is_answer_lost = False
    manager.beat()
    assert (world.service().epoch, world.service().report_count) == (2, 1)


def test_a_restart_carries_on_how_old_the_last_readings_are(world):
    world.manager.pre_start_hook()
    world.seconds = 60
    world.write(fail={"n2": "boom"})
    world.manager.inventory_host()
    world.manager.beat()
    world.seconds = 100
    world.write(fail={"n1": "hang", "n2": "hang"})
    again = world.make_manager(pid=7)
    again.beat()
    assert (world.age("n1"), world.age("n2")) == (40, 100)
    assert "boom" in again.status().audit.nodes["n2"]["error"]


def test_a_second_agent_that_is_alive_is_refused_and_leaves_a_warning(world):
    world.manager.pre_start_hook()
    second = world.make_manager(agent_id="another", waited=world.manager.beat)
    with pytest.raises(DuplicateAgentError, match="host-1 has an agent already"):
        second.pre_start_hook()
    (record,) = world.store.list_warnings(HOST)
    assert record.warning.kind is WarningKind.DUPLICATE_REFUSED
    world.manager.inventory_host()
    assert world.store.list_warnings(HOST)[0].resolved_at is None


def test_its_status_tells_what_it_knows(world):
    before = world.manager.status()
    assert (before.has_started, before.epoch, before.audit.age_seconds) == (False, None, None)
    world.manager.pre_start_hook()
    world.seconds, world.skew = 30, -7
    world.write(fail={"n2": "boom"})
    world.manager.inventory_host()
    world.seconds = 35
    status = world.manager.status()
    assert (status.host, status.epoch, status.has_started) == (HOST, 1, True)
    assert (status.node_count, list(status.audit.nodes)) == (2, ["n2"])
    assert (status.audit.age_seconds, status.heartbeat_age_seconds) == (5, 35)
    assert status.clock_skew_seconds == -7
    assert (status.database_error, status.driver_error) == (None, None)
    world.store.is_away = True
    world.manager.beat()
    assert world.manager.status().database_error == "connection refused"
    world.store.is_away = False
    world.path.write_text("nodes: [")
    world.manager.inventory_host()
    world.manager.beat()
    status = world.manager.status()
    assert status.database_error is None
    assert "inventory.yaml" in status.driver_error


def test_an_audit_that_is_not_stored_is_told_too(world):
    world.manager.pre_start_hook()
    world.store.is_away = True
    world.manager.inventory_host()
    assert str(world.reports[-1].store_error) == "connection refused"
    assert not world.reports[-1].is_good


def test_a_state_directory_that_cannot_be_used_is_a_standing_warning(world, tmp_path):
    manager = world.make_manager(state_path=str(tmp_path / "gone"))
    manager.pre_start_hook()
    assert [r.warning.kind for r in world.store.list_warnings()] == [WarningKind.STATE_PATH]
    (tmp_path / "gone").mkdir()
    manager.inventory_host()
    assert world.store.list_warnings()[0].resolved_at is not None


def test_an_agent_that_was_taken_over_is_told_so(world):
    world.manager.pre_start_hook()
    take_service(world.store, HOST, make_incarnation(pid=7))
    with pytest.raises(FencedError):
        world.manager.beat()
    with pytest.raises(FencedError):
        world.manager.inventory_host()


@pytest.mark.parametrize(("nodename", "read"), [("n1", {"n1"}), ("", None)])
def test_an_event_asks_for_an_audit_of_its_node(world, nodename, read):
    asked = []
    world.manager.bind(lambda: None, lambda: None, lambda: None, lambda: asked.append(True))
    world.manager.pre_start_hook()
    world.driver.tell(NodeEvent(nodename, EventKind.CHANGED, "a"))
    assert asked == [True]
    world.seconds += 1
    world.manager.handle_events()
    assert world.reports[-1].read == read


def test_the_audit_of_one_node_makes_the_others_no_younger(world):
    world.manager.pre_start_hook()
    world.driver.tell(NodeEvent("n1", EventKind.CHANGED, "a"))
    world.seconds += 50
    world.manager.handle_events()
    assert world.manager.status().audit.age_seconds == 50


def test_a_guest_that_went_while_the_database_was_away_is_known_to_have_gone(world):
    world.manager.pre_start_hook()
    world.store.is_away = True
    world.driver.tell(NodeEvent("n1", EventKind.GONE, "a"))
    world.seconds += 1
    world.manager.handle_events()
    absences = world.manager._tracker._absences
    absences.begin("n1")
    assert absences.time("n1", NOW).gone == {"a"}


def test_an_audit_whose_mark_is_not_written_has_told_what_it_wrote(world):
    mark, world.store.mark_service = world.store.mark_service, world.store.fail_to_mark
    world.manager.pre_start_hook()
    assert [len(report.changes) for report in world.reports] == [2]
    world.store.mark_service = mark
    world.manager.inventory_host()
    assert [len(report.changes) for report in world.reports] == [2, 0]


def read_mark(world):
    (service,) = world.store.list_services(HOST)
    return service.disabled, service.disabled_reason


def test_a_driver_whose_source_is_away_takes_its_host_out_and_back(world):
    world.manager.pre_start_hook()
    assert read_mark(world) == (False, None)
    world.path.unlink()
    world.manager.inventory_host()
    disabled, reason = read_mark(world)
    assert disabled
    assert reason.startswith("AUTO: ")
    assert str(world.path) in reason
    world.write()
    world.manager.inventory_host()
    assert read_mark(world) == (False, None)


def test_a_mark_that_an_earlier_run_left_is_taken_off(world):
    world.manager.pre_start_hook()
    world.path.unlink()
    world.manager.inventory_host()
    world.write()
    again = world.make_manager(pid=200)
    again.pre_start_hook()
    assert read_mark(world) == (False, None)


def test_an_operator_s_reason_is_never_touched(world):
    world.manager.pre_start_hook()
    world.store.set_service(HOST, COMPUTE_BINARY, ServiceChange(True, "disk swap"))
    world.path.unlink()
    world.manager.inventory_host()
    assert read_mark(world) == (True, "disk swap")
    world.write()
    world.manager.inventory_host()
    assert read_mark(world) == (True, "disk swap")


def test_what_is_marked_is_written_once(world):
    world.manager.pre_start_hook()
    told = []
    world.store.mark_service = lambda agent, reason: told.append(reason)
    world.path.unlink()
    for _ in range(3):
        world.manager.inventory_host()
    assert len(told) == 1
