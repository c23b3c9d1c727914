import dataclasses
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import yaml

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.compute.identity import read_incarnation
from nodetracker.compute.manager import ComputeManager
from nodetracker.model.audit import ALL_NODES, EventKind, NodeEvent
from nodetracker.model.errors import (
    DuplicateAgentError,
    FencedError,
    IdentityError,
    StoreUnavailableError,
)
from nodetracker.model.service import COMPUTE_BINARY, SCHEMA_REVISION, ServiceChange
from nodetracker.model.settings import AgentSettings, PciPolicy, Policy
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AdmissionPolicy, DriverCapability
from nodetracker.views.services import audit_age_seconds
from nodetracker.virt.fake.plugin import FakeDriver
from tests.builders import NOW, make_incarnation, take_service
from tests.probes import SelectiveProbeRunner
from tests.stores import SqliteStore
from tests.unit.compute.manual_timer import ManualTimer

HOST = "host-1"
NODES = [{"nodename": name, "vcpus": 4, "memory_mb": 8192, "disk_gb": 100} for name in ("n1", "n2")]


class OutageStore(SqliteStore):
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

    def load_versions(self, *arguments):
        self._refuse()
        return super().load_versions(*arguments)

    def report_state(self, *arguments):
        self._refuse()
        news = super().report_state(*arguments)
        self._lose_answer()
        return news

    @staticmethod
    def fail_to_mark(agent, reason):
        raise StoreUnavailableError("connection lost")


class EventDriver(FakeDriver):
    """A driver of a file whose events the test sends."""

    capabilities = FakeDriver.capabilities | {DriverCapability.EVENTS}
    send = None

    def events(self, callback):
        self.send = callback


class WaitCallback(threading.Event):
    """Calls something instead of waiting for the end of the process."""

    def __init__(self, waited):
        super().__init__()
        self._waited = waited

    def wait(self, timeout=None):
        self._waited()
        return False


class ManagedHost:
    def __init__(self, tmp_path):
        self.seconds = 0.0
        self.timer = ManualTimer()
        self.skew = 0.0
        self.load_average = None
        self.path = tmp_path / "inventory.yaml"
        self.write()
        self.store = OutageStore(lambda: NOW + timedelta(seconds=self.seconds))
        self.reports = []
        self.manager = self.make_manager()

    def make_manager(self, waited=None, state_path="", **incarnation):
        """Build an agent; `waited` is called while it watches another's heartbeats."""
        self.probes = SelectiveProbeRunner(1.0)
        self.driver = EventDriver(str(self.path), self.probes)
        return ComputeManager(
            AgentSettings(host=HOST, state_path=state_path, policy=Policy()),
            make_incarnation(**incarnation),
            "1.2.3",
            self.driver,
            self.store,
            [self],
            lambda: self.seconds,
            lambda: NOW + timedelta(seconds=self.seconds + self.skew),
            self.timer,
            threading.Event() if waited is None else WaitCallback(waited),
            read_load_average=lambda: self.load_average,
        )

    def audited(self, report):
        self.reports.append(report)

    def write(self, **more):
        self.path.write_text(yaml.safe_dump({"nodes": NODES} | more))

    def hang(self, *nodenames):
        """Make the readings of these nodes hang from the agent's next start."""
        self.write(fail=dict.fromkeys(nodenames, "hang"))
        self.probes.hanging = set(nodenames)

    def service(self):
        return self.store.list_services(HOST, COMPUTE_BINARY)[0]

    def age(self, nodename):
        return audit_age_seconds(self.service(), nodename, self.store.now())


@pytest.fixture
def managed(tmp_path):
    managed = ManagedHost(tmp_path)
    managed.manager.init_host()
    return managed


def test_the_start_audits_before_anything_is_served(managed):
    managed.manager.pre_start_hook()
    assert {record.nodename for record in managed.store.list_nodes()} == {"n1", "n2"}
    service = managed.service()
    assert (service.epoch, service.version) == (1, "1.2.3")


@pytest.mark.parametrize(
    ("is_out", "logged"),
    [
        (False, "Agent of host host-1 is ready"),
        (True, "Agent of host host-1 runs; its rows are written once the database is back"),
    ],
)
def test_only_an_agent_that_has_its_database_is_ready(managed, caplog, is_out, logged):
    caplog.set_level(logging.INFO, "nodetracker.compute.manager")
    managed.store.is_away = is_out
    managed.manager.pre_start_hook()
    managed.manager.post_start_hook()
    assert caplog.messages[-1] == logged


def test_taking_the_host_is_a_heartbeat_that_watchers_see(managed):
    managed.hang("n1", "n2")
    managed.manager.pre_start_hook()
    service = managed.service()
    assert (service.report_count, service.last_seen_up) == (1, NOW)


def test_observers_are_notified_of_every_audit(managed):
    managed.manager.pre_start_hook()
    managed.manager.inventory_host()
    assert [len(report.changes) for report in managed.reports] == [2, 0]


class SlowObserver:
    """Blocks at the first report."""

    def __init__(self):
        self.has_report = threading.Event()
        self.go_on = threading.Event()

    def audited(self, report):
        if not self.has_report.is_set():
            self.has_report.set()
            assert self.go_on.wait(30)


def test_observers_are_notified_of_audits_in_order(managed):
    slow = SlowObserver()
    managed.manager._reports._observers = (slow, managed)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(managed.manager.update_available_resource)
        assert slow.has_report.wait(30)
        second = pool.submit(managed.manager.update_available_resource)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        slow.go_on.set()
    assert managed.reports == [first.result(), second.result()]


def test_a_failing_observer_does_not_affect_the_audit(managed, caplog):
    managed.reports = None
    managed.manager.pre_start_hook()
    assert len(managed.store.list_nodes()) == 2
    assert "Audit observer ManagedHost failed" in caplog.text


def test_the_heartbeat_contains_the_age_of_the_audit_and_of_nodes_that_are_not_fine(managed):
    managed.manager.pre_start_hook()
    managed.seconds = 60
    managed.write(fail={"n2": "boom"})
    managed.manager.inventory_host()
    managed.seconds = 65
    managed.manager.report_state()
    managed.seconds = 68
    assert managed.age("n1") == 8
    assert managed.age("n2") == 68
    assert "boom" in managed.service().last_audit["nodes"]["n2"]["error"]


def test_the_heartbeat_contains_the_machine_s_load_and_the_agent_s_settings(managed):
    managed.load_average = (0.2, 0.12, 0.14)
    managed.manager.pre_start_hook()
    carried = managed.service().last_audit
    assert carried["load_average"] == [0.2, 0.12, 0.14]
    assert carried["audit_interval_seconds"] == 60
    assert carried["reports_devices"] is False
    assert carried["schema_revision"] == SCHEMA_REVISION
    managed.load_average = None
    policy = Policy(pci=PciPolicy(report_in_placement=True))
    settings = AgentSettings(host=HOST, state_path="", policy=policy, audit_interval=None)
    managed.manager.reconfigure(settings)
    managed.manager.report_state()
    carried = managed.service().last_audit
    assert carried.keys() == {
        "age_seconds", "nodes", "reports_devices", "has_driver_uuids", "schema_revision",
    }  # fmt: skip
    assert carried["reports_devices"] is True


def test_the_heartbeat_says_whether_the_driver_knows_uuids_of_nodes(managed):
    def report():
        managed.manager.inventory_host()
        managed.manager.report_state()
        return managed.service().last_audit.get("has_driver_uuids")

    managed.manager.pre_start_hook()
    assert report() is False
    node = NODES[0] | {"uuid": "77777777-7777-4777-8777-777777777777"}
    managed.write(nodes=[node])
    assert report() is True
    managed.write(nodes=[node], fail={node["nodename"]: "boom"})
    assert report() is True


def test_the_report_count_keeps_rising(managed):
    managed.manager.pre_start_hook()
    for count in (2, 3, 4):
        managed.manager.report_state()
        assert managed.service().report_count == count


def test_an_unavailable_database_at_the_start_is_one_line_and_does_not_end_the_agent(
    managed, caplog
):
    caplog.set_level(logging.INFO)
    managed.store.is_away = True
    managed.manager.pre_start_hook()
    managed.manager.report_state()
    managed.manager.inventory_host()
    managed.store.is_away = False
    managed.seconds = 30
    managed.manager.inventory_host()
    managed.manager.report_state()
    assert len(managed.store.list_nodes()) == 2
    assert managed.service().report_count == 2
    logged = [message for message in caplog.messages if "database" in message]
    assert logged == ["The database: connection refused", "The database is back after 30 s"]


def test_a_node_that_fails_since_a_restart_has_the_age_of_the_run_before(managed):
    managed.manager.pre_start_hook()
    managed.seconds += 5
    managed.manager.report_state()
    managed.seconds += 60
    managed.write(fail={"n2": "boom"})
    again = managed.make_manager(process_started_at=6)
    again.init_host()
    again.pre_start_hook()
    again.report_state()
    assert (managed.age("n1"), managed.age("n2")) == (0, 65)
    managed.seconds += 10
    again.inventory_host()
    again.report_state()
    assert (managed.age("n1"), managed.age("n2")) == (0, 75)


def test_the_end_of_an_outage_requests_an_audit(managed):
    wanted = managed.manager.audit_requests
    managed.manager.pre_start_hook()
    managed.manager.report_state()
    managed.store.is_away = True
    managed.manager.report_state()
    managed.manager.report_state()
    assert not wanted.has_request
    managed.store.is_away = False
    managed.manager.report_state()
    assert wanted.has_request
    wanted.clear()
    managed.manager.report_state()
    assert not wanted.has_request


def test_a_heartbeat_takes_the_host_when_the_start_could_not(managed):
    managed.store.is_away = True
    managed.manager.pre_start_hook()
    managed.store.is_away = False
    managed.manager.report_state()
    assert managed.service().report_count == 1


def test_a_heartbeat_after_a_lost_answer_has_the_next_number(managed):
    managed.manager.pre_start_hook()
    managed.store.is_answer_lost = True
    managed.manager.report_state()
    assert managed.manager.status().database_error == "server closed the connection"
    managed.store.is_answer_lost = False
    managed.manager.report_state()
    assert managed.manager.status().database_error is None
    assert managed.manager.status().report_count == managed.service().report_count == 3


def test_a_host_is_taken_again_after_a_lost_answer(managed):
    own = read_incarnation("00000000-0000-4000-8000-00000000000a", 10)
    manager = managed.make_manager(**dataclasses.asdict(own))
    managed.store.is_answer_lost = True
    manager.pre_start_hook()
    managed.store.is_answer_lost = False
    manager.report_state()
    assert (managed.service().epoch, managed.service().report_count) == (2, 1)


def test_a_restart_keeps_the_ages_of_the_last_readings(managed):
    managed.manager.pre_start_hook()
    managed.seconds = 60
    managed.write(fail={"n2": "boom"})
    managed.manager.inventory_host()
    managed.manager.report_state()
    managed.seconds = 100
    managed.hang("n1", "n2")
    again = managed.make_manager(pid=7)
    again.report_state()
    assert (managed.age("n1"), managed.age("n2")) == (40, 100)
    assert "boom" in again.status().audit.nodes["n2"]["error"]


def test_a_second_agent_that_is_alive_is_refused_and_leaves_a_warning(managed):
    managed.manager.pre_start_hook()
    second = managed.make_manager(agent_id="another", waited=managed.manager.report_state)
    with pytest.raises(DuplicateAgentError, match="host-1 already has an agent"):
        second.pre_start_hook()
    (record,) = managed.store.list_warnings(HOST)
    assert record.warning.kind is WarningKind.DUPLICATE_REFUSED
    managed.manager.inventory_host()
    assert managed.store.list_warnings(HOST)[0].resolved_at is None


def test_a_refused_agent_does_not_try_again_until_it_has_stopped(managed, caplog):
    caplog.set_level("INFO")
    managed.manager.pre_start_hook()
    second = managed.make_manager(agent_id="another", waited=managed.manager.report_state)
    for take in (second.pre_start_hook, second.report_state, second.inventory_host):
        with pytest.raises(DuplicateAgentError):
            take()
    assert caplog.text.count("watching its heartbeats") == 1


def test_the_status_has_the_results_of_the_last_audit(managed):
    before = managed.manager.status()
    assert (before.has_started, before.epoch, before.audit.age_seconds) == (False, None, None)
    managed.manager.pre_start_hook()
    managed.seconds, managed.skew = 30, -7
    managed.write(fail={"n2": "boom"})
    managed.manager.inventory_host()
    managed.seconds = 35
    status = managed.manager.status()
    assert (status.host, status.epoch, status.has_started) == (HOST, 1, True)
    assert (status.node_count, list(status.audit.nodes)) == (2, ["n2"])
    assert (status.audit.age_seconds, status.heartbeat_age_seconds) == (5, 35)
    assert status.clock_skew_seconds == -7
    assert (status.database_error, status.driver_error) == (None, None)
    managed.store.is_away = True
    managed.manager.report_state()
    assert managed.manager.status().database_error == "connection refused"
    managed.store.is_away = False
    managed.path.write_text("nodes: [")
    managed.manager.inventory_host()
    managed.manager.report_state()
    status = managed.manager.status()
    assert status.database_error is None
    assert "inventory.yaml" in status.driver_error


def test_observers_are_notified_of_an_audit_that_is_not_stored(managed):
    managed.manager.pre_start_hook()
    managed.store.is_away = True
    managed.manager.inventory_host()
    assert str(managed.reports[-1].store_error) == "connection refused"
    assert not managed.reports[-1].is_good


def test_an_unusable_state_directory_is_a_warning(managed, tmp_path):
    manager = managed.make_manager(state_path=str(tmp_path / "gone"))
    manager.pre_start_hook()
    assert [r.warning.kind for r in managed.store.list_warnings()] == [WarningKind.STATE_PATH]
    (tmp_path / "gone").mkdir()
    manager.inventory_host()
    assert managed.store.list_warnings()[0].resolved_at is not None


def test_an_agent_that_was_taken_over_is_fenced(managed):
    managed.manager.pre_start_hook()
    take_service(managed.store, HOST, make_incarnation(pid=7))
    with pytest.raises(FencedError):
        managed.manager.report_state()
    with pytest.raises(FencedError):
        managed.manager.inventory_host()


@pytest.mark.parametrize(("nodename", "read"), [("n1", {"n1"}), (ALL_NODES, None)])
def test_an_event_requests_an_audit_of_its_node(managed, nodename, read):
    managed.manager.pre_start_hook()
    assert not managed.manager.event_arrivals.has_request
    managed.driver.send(NodeEvent(nodename, EventKind.CHANGED, "a"))
    assert managed.manager.event_arrivals.has_request
    managed.timer.advance(1)
    managed.manager.handle_events()
    assert managed.reports[-1].read == read


def test_the_audit_of_one_node_keeps_the_ages_of_the_others(managed):
    managed.manager.pre_start_hook()
    managed.driver.send(NodeEvent("n1", EventKind.CHANGED, "a"))
    managed.seconds += 50
    managed.timer.advance(1)
    managed.manager.handle_events()
    assert managed.manager.status().audit.age_seconds == 50


def test_a_guest_deleted_during_a_database_outage_is_known_as_deleted(managed):
    managed.manager.pre_start_hook()
    managed.store.is_away = True
    managed.driver.send(NodeEvent("n1", EventKind.GONE, "a"))
    managed.timer.advance(1)
    managed.manager.handle_events()
    assert managed.manager._queue.list_deleted("n1").keys() == {"a"}


def test_observers_are_notified_of_an_audit_whose_mark_is_not_written(managed):
    mark, managed.store.mark_service = managed.store.mark_service, managed.store.fail_to_mark
    managed.manager.pre_start_hook()
    assert [len(report.changes) for report in managed.reports] == [2]
    managed.store.mark_service = mark
    managed.manager.inventory_host()
    assert [len(report.changes) for report in managed.reports] == [2, 0]


def read_mark(managed):
    (service,) = managed.store.list_services(HOST)
    return service.disabled, service.disabled_reason


def test_an_unavailable_source_disables_the_service_until_it_answers(managed):
    managed.manager.pre_start_hook()
    assert read_mark(managed) == (False, None)
    managed.path.unlink()
    managed.manager.inventory_host()
    disabled, reason = read_mark(managed)
    assert disabled
    assert reason.startswith("AUTO: ")
    assert str(managed.path) in reason
    managed.write()
    managed.manager.inventory_host()
    assert read_mark(managed) == (False, None)


def test_a_mark_of_an_earlier_run_is_removed(managed):
    managed.manager.pre_start_hook()
    managed.path.unlink()
    managed.manager.inventory_host()
    managed.write()
    again = managed.make_manager(pid=200)
    again.pre_start_hook()
    assert read_mark(managed) == (False, None)


def test_an_operator_s_reason_is_never_changed(managed):
    managed.manager.pre_start_hook()
    managed.store.set_service(HOST, COMPUTE_BINARY, ServiceChange(True, "disk swap"))
    managed.path.unlink()
    managed.manager.inventory_host()
    assert read_mark(managed) == (True, "disk swap")
    managed.write()
    managed.manager.inventory_host()
    assert read_mark(managed) == (True, "disk swap")


def test_a_mark_is_written_once(managed):
    managed.manager.pre_start_hook()
    reasons = []
    managed.store.mark_service = lambda agent, reason: reasons.append(reason)
    managed.path.unlink()
    for _ in range(3):
        managed.manager.inventory_host()
    assert len(reasons) == 1


def test_an_outage_is_not_over_without_pending_events(managed, caplog):
    managed.manager.pre_start_hook()
    managed.store.is_away = True
    managed.driver.send(NodeEvent("n1", EventKind.CHANGED, "a"))
    managed.timer.advance(1)
    managed.manager.handle_events()
    managed.manager.handle_events()
    assert managed.manager.status().database_error == "connection refused"


def test_a_stop_ends_the_wait_for_events(managed):
    managed.manager.pre_start_hook()
    managed.driver.send(NodeEvent("n1", EventKind.CHANGED, "a"))
    waiting = threading.Thread(target=managed.manager.handle_events, daemon=True)
    waiting.start()
    managed.manager.prepare_stop()
    waiting.join(5)
    assert not waiting.is_alive()


class TestRestoredDatabase:
    """A dump that was loaded while its agents ran."""

    @pytest.fixture(params=["report_state", "inventory_host"])
    def notice(self, request):
        """What notices first that the rows are older than the agent's."""
        return request.param

    def warnings(self, caplog):
        return [r.getMessage() for r in caplog.records if "restored" in r.getMessage()]

    def test_an_agent_that_restarted_since_registers_again_above_every_epoch(
        self, managed, caplog, notice
    ):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        again = managed.make_manager(process_started_at=4)
        again.init_host()
        again.pre_start_hook()
        third = managed.make_manager(process_started_at=5)
        third.init_host()
        third.pre_start_hook()
        managed.store.restore(dump)
        getattr(third, notice)()
        assert managed.service().epoch == 4
        third.inventory_host()
        third.report_state()
        assert len(self.warnings(caplog)) == 1
        assert {node.epoch for node in managed.store.list_nodes()} == {4}
        for earlier in (managed.manager, again):
            with pytest.raises(FencedError):
                earlier.report_state()

    def test_the_heartbeat_that_notices_it_requests_an_audit(self, managed):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        managed.manager.report_state()
        assert not managed.manager.audit_requests.has_request
        managed.store.restore(dump)
        managed.manager.report_state()
        assert managed.manager.audit_requests.has_request

    def test_a_restored_generation_that_a_claim_raised_is_read_again(self, managed, notice, caplog):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        guest = {"uuid": str(uuid.uuid4()), "vcpus": 2, "memory_mb": 2048, "disk_gb": 20}
        managed.write(nodes=[NODES[0] | {"guests": [guest]}, NODES[1]])
        managed.manager.inventory_host()
        managed.manager.report_state()
        (known, _) = managed.store.list_nodes(HOST)
        managed.store.restore(dump)
        body = {"workload": {"uuid": str(uuid.uuid4())}, "resources": {"MEMORY_MB": 512}}
        request = parse_claim_request(body, lambda: str(uuid.uuid4()))
        managed.store.create_claim(request, HOST, "n1", AdmissionPolicy(60, 600))
        (restored, _) = managed.store.list_nodes(HOST)
        assert restored.generation == known.generation
        getattr(managed.manager, notice)()
        managed.manager.inventory_host()
        (now, _) = managed.store.list_nodes(HOST)
        assert now.values.memory_mb_used == 512 + 512 + 2048
        assert len(self.warnings(caplog)) == 1

    def test_a_dump_that_is_loaded_again_meanwhile_is_noticed_again(self, managed, caplog):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        managed.manager.report_state()
        read, loads = managed.store.load_versions, iter(range(2))

        def read_after_a_load(*of):
            if next(loads, None) is not None:
                managed.store.restore(dump)
            return read(*of)

        managed.store.load_versions = read_after_a_load
        managed.manager.inventory_host()
        assert len(self.warnings(caplog)) == 2
        assert {node.epoch for node in managed.store.list_nodes()} == {managed.service().epoch}

    def test_a_dump_that_is_loaded_again_after_the_registration_is_noticed(self, managed, caplog):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        report, loads = managed.store.report_state, iter(range(2))

        def report_after_a_load(*of):
            if next(loads, None) is not None:
                managed.store.restore(dump)
            return report(*of)

        managed.manager.report_state()
        managed.store.report_state = report_after_a_load
        managed.manager.report_state()
        assert len(self.warnings(caplog)) == 2
        managed.manager.inventory_host()
        assert {node.epoch for node in managed.store.list_nodes()} == {managed.service().epoch}

    def test_an_agent_that_was_added_since_registers_after_a_second_look(self, managed, notice):
        dump = managed.store.save()
        looks = []
        manager = managed.make_manager(lambda: looks.append(managed.store.list_services()))
        manager.init_host()
        manager.pre_start_hook()
        uuids = {node.uuid for node in managed.store.list_nodes()}
        managed.store.restore(dump)
        getattr(manager, notice)()
        assert looks == [[]]
        manager.inventory_host()
        assert managed.service().epoch == 2
        assert {node.uuid for node in managed.store.list_nodes()} == uuids

    def test_a_row_that_is_loaded_meanwhile_is_taken_above_its_epoch(self, managed):
        managed.manager.pre_start_hook()
        dump, uuid_in_dump = managed.store.save(), managed.service().uuid
        manager = managed.make_manager(lambda: managed.store.restore(dump), process_started_at=4)
        manager.init_host()
        manager.pre_start_hook()
        managed.store.restore()
        manager.report_state()
        assert (managed.service().epoch, managed.service().uuid) == (3, uuid_in_dump)

    def test_a_row_that_is_away_while_its_last_state_is_loaded_is_taken_again(
        self, managed, notice, caplog, monkeypatch
    ):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        name = {"report_state": "report_state", "inventory_host": "load_versions"}[notice]
        call = getattr(managed.store, name)

        def call_too_early(*arguments):
            monkeypatch.undo()
            managed.store.restore()
            try:
                return call(*arguments)
            finally:
                managed.store.restore(dump)

        monkeypatch.setattr(managed.store, name, call_too_early)
        getattr(managed.manager, notice)()
        assert managed.service().epoch == 2
        assert len(self.warnings(caplog)) == 1

    @pytest.mark.parametrize("names", [[], ["other"], ["other", "third"]])
    @pytest.mark.parametrize("is_deleted", [True, False])
    def test_a_host_that_was_deleted_or_renamed_since_ends_its_agent(
        self, managed, notice, names, is_deleted
    ):
        managed.manager.pre_start_hook()
        at = HOST
        for name in names:
            (seen,) = managed.store.list_services(at)
            managed.store.rename_host(at, name, COMPUTE_BINARY, seen)
            at = name
        if is_deleted or not names:
            managed.store.delete_service(at, COMPUTE_BINARY, -1)
        with pytest.raises(IdentityError):
            getattr(managed.manager, notice)()
        assert managed.store.list_services(HOST) == []

    def test_a_host_that_has_its_former_name_in_the_dump_ends_its_agent_with_the_command(
        self, managed, notice
    ):
        managed.manager.pre_start_hook()
        (seen,) = managed.store.list_services(HOST)
        managed.store.rename_host(HOST, "former", COMPUTE_BINARY, seen)
        dump = managed.store.save()
        (seen,) = managed.store.list_services("former")
        managed.store.rename_host("former", HOST, COMPUTE_BINARY, seen)
        manager = managed.make_manager(lambda: None, process_started_at=4)
        manager.init_host()
        manager.pre_start_hook()
        managed.store.restore(dump)
        with pytest.raises(IdentityError, match=f"host rename former {HOST}"):
            getattr(manager, notice)()

    def test_a_host_that_was_deleted_and_added_before_is_taken_again(self, managed):
        managed.manager.pre_start_hook()
        managed.store.delete_service(HOST, COMPUTE_BINARY, -1)
        dump = managed.store.save()
        manager = managed.make_manager(lambda: None, process_started_at=4)
        manager.init_host()
        manager.pre_start_hook()
        managed.store.restore(dump)
        manager.report_state()
        assert managed.service().epoch == 2

    def test_a_host_that_was_deleted_and_added_since_is_not_the_former_run_s(self, managed):
        managed.manager.pre_start_hook()
        managed.manager.report_state()
        managed.store.delete_service(HOST, COMPUTE_BINARY, -1)
        take_service(managed.store, HOST, make_incarnation(process_started_at=4))
        with pytest.raises(FencedError):
            managed.manager.report_state()

    def test_a_host_that_another_agent_held_before_is_not_taken(self, managed, notice):
        other = take_service(managed.store, HOST, make_incarnation(agent_id="another"))
        dump = managed.store.save()
        manager = managed.make_manager(lambda: None)
        manager.init_host()
        manager.pre_start_hook()
        managed.store.restore(dump)
        with pytest.raises(FencedError):
            getattr(manager, notice)()
        assert managed.service() == other

    def test_the_reason_of_a_disabled_service_is_written_again(self, managed):
        managed.manager.pre_start_hook()
        dump = managed.store.save()
        managed.write(ready=False)
        managed.manager.inventory_host()
        managed.manager.report_state()
        assert managed.service().disabled
        managed.store.restore(dump)
        managed.manager.inventory_host()
        assert managed.service().disabled


@pytest.mark.parametrize("call", ["report_state", "inventory_host"])
def test_a_failed_call_to_the_store_makes_the_next_audit_read_all_rows(managed, call):
    managed.manager.pre_start_hook()
    before = managed.manager._tracker._rows.full_loads
    managed.manager.inventory_host()
    assert managed.manager._tracker._rows.full_loads == before
    managed.store.is_away = True
    getattr(managed.manager, call)()
    managed.store.is_away = False
    managed.manager.inventory_host()
    managed.manager.inventory_host()
    assert managed.manager._tracker._rows.full_loads == before + 1


def test_calls_that_cannot_be_taken_are_named_once_unless_the_database_is_away(
    managed, monkeypatch, caplog
):
    def fail(agent):
        raise StoreUnavailableError("denied")

    manager, store = managed.manager, managed.store
    manager.pre_start_hook()
    with monkeypatch.context() as patch:
        patch.setattr(store, "take_news", fail)
        manager.take_news()
        assert "cannot be taken" not in caplog.text  # the next heartbeat may say that it is away
        for _ in range(3):
            manager.take_news()
    assert caplog.text.count("Calls of host host-1 cannot be taken: denied") == 1
    assert manager.take_news() is not None
