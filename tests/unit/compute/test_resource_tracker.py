"""Audits over SQLite in memory and the file-driven driver, run one by one."""

import itertools
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import yaml

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.compute.host_rows import FULL_LOAD_SECONDS
from nodetracker.model.audit import EventKind, NodeEvent
from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import (
    ClaimRefusedError,
    ConfigError,
    ConflictError,
    FencedError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.fact import FactState, fresh
from nodetracker.model.provider import ClassInventory, ProviderConfig
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import CandidatePolicy
from nodetracker.process.loops import Progress
from tests.builders import WORKLOAD, make_incarnation, read_history, take_service
from tests.refusals import refusing
from tests.stores import SqliteStore
from tests.threads import count_threads, no_threads
from tests.unit.compute.manual_timer import wait_for
from tests.unit.compute.tracked_host import HOST, TrackedHost, guest, node


@pytest.fixture
def store(clock):
    return SqliteStore(clock.now)


@pytest.fixture
def agent(store, clock, tmp_path):
    return TrackedHost(store, tmp_path / "inventory.yaml", clock)


def test_the_first_audit_creates_one_row_per_node(agent):
    report = agent.audit(node(1, guest(1)), node(2))
    assert report.is_good
    assert [change.kind for change in report.changes] == [ChangeKind.CREATE] * 2
    records = agent.records()
    assert records["node-1"].values.memory_mb_used == 512 + 2048
    assert list(records["node-1"].guests) == [guest(1)["uuid"]]
    assert report.nodes == records


class MistypedDriver:
    """A driver whose readings of one node have a value of another type."""

    is_faulty = False

    def __init__(self, driver):
        self._driver = driver

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def get_available_resource(self, nodename):
        snapshot = self._driver.get_available_resource(nodename)
        is_wrong = self.is_faulty and nodename == "node-1"
        return replace(snapshot, cpu=fresh("faulty", 4)) if is_wrong else snapshot


def test_a_node_that_cannot_be_accounted_does_not_keep_others_from_being_written(
    store, clock, tmp_path, caplog
):
    path = tmp_path / "inventory.yaml"
    agent = TrackedHost(store, path, clock, wrap_driver=MistypedDriver)
    agent.driver.is_faulty = True
    assert agent.audit(node(1), node(2)).errors.keys() == {"node-1"}
    assert agent.records().keys() == {"node-2"}
    agent.driver.is_faulty = False
    assert agent.audit().is_good
    agent.driver.is_faulty = True
    report = agent.audit(node(1), node(2, guest(1)), node(3, vcpus=0))
    assert report.errors.keys() == {"node-1"}
    assert "cannot be accounted: AttributeError" in report.errors["node-1"]
    assert "The reading of node node-1 cannot be accounted" in caplog.text
    records = agent.records()
    assert records["node-1"].values.facts["cpu"].state is FactState.HELD
    assert records["node-2"].values.vcpus_used == 2
    assert records["node-3"].values.vcpus == 0
    assert "node-1" in agent.audit().errors
    agent.driver.is_faulty = False
    assert agent.audit().is_good


def test_a_steady_audit_changes_nothing(agent):
    agent.audit(node(1, guest(1)))
    before = agent.records()
    for _ in range(5):
        assert agent.audit().changes == ()
    assert agent.records() == before


def test_one_more_guest_is_one_change_of_its_node(agent):
    agent.audit(node(1), node(2))
    report = agent.audit(node(1), node(2, guest(1)))
    assert [(change.nodename, change.kind) for change in report.changes] == [
        ("node-2", ChangeKind.UPDATE)
    ]
    records = agent.records()
    assert records["node-2"].generation == records["node-1"].generation + 1
    history = read_history(agent.store, HOST, "node-2")
    assert [entry.what for entry in history] == [ChangeKind.CREATE, ChangeKind.UPDATE]


def test_a_report_has_what_administrators_decided(agent):
    assert not agent.audit(node(1)).admin.is_excluded
    for change in (ServiceChange(disabled=True), ServiceChange(disabled=False, maintenance=True)):
        agent.store.set_service(HOST, COMPUTE_BINARY, change)
        report = agent.audit()
        assert report.admin.is_excluded
        assert (report.admin.disabled, report.changes) == (bool(change.disabled), ())


def test_a_lost_row_is_created_again_with_its_uuid(agent):
    agent.audit(node(1))
    uuid = agent.records()["node-1"].uuid
    agent.store.delete_node(HOST, "node-1")
    agent.audit()
    assert agent.records()["node-1"].uuid == uuid


def test_a_uuid_from_the_driver_is_used(agent):
    uuid = WORKLOAD
    agent.audit(node(1, uuid=uuid))
    assert agent.records()["node-1"].uuid == uuid


class TestFailures:
    def test_one_failing_node_is_held_and_the_others_are_read(self, agent):
        agent.audit(node(1), node(2))
        report = agent.audit(node(1, guest(1)), node(2, guest(2)), fail={"node-2": "boom"})
        records = agent.records()
        assert records["node-1"].values.memory_mb_used == 2560
        assert records["node-2"].values.memory_mb_used == 512
        assert records["node-2"].values.facts["cpu"].state is FactState.HELD
        assert records["node-2"].values.facts["cpu"].error == "boom"
        assert list(report.errors) == ["node-2"]
        assert agent.audit().changes == ()
        agent.audit(node(1, guest(1)), node(2, guest(2)))
        records = agent.records()
        assert records["node-2"].values.memory_mb_used == 2560
        assert records["node-2"].values.facts["cpu"].state is FactState.FRESH

    def test_nodes_without_a_free_thread_are_held_and_recover(self, agent, monkeypatch):
        with no_threads(monkeypatch, "audit"):
            report = agent.audit(node(1), node(2))
        assert set(report.errors) == {"node-1", "node-2"}
        assert all("no thread can be started" in error for error in report.errors.values())
        assert agent.audit().is_good

    def test_at_a_limit_of_threads_nodes_are_read_one_after_the_other(self, agent, monkeypatch):
        agent.audit(node(1), node(2))
        with no_threads(monkeypatch):
            report = agent.audit(node(1, guest(1)), node(2))
        assert report.is_good
        assert agent.records()["node-1"].values.memory_mb_used == 2560

    def test_a_hung_node_delays_no_other_and_recovers(self, agent):
        agent.audit(node(1), node(2))
        report = agent.audit(node(1, guest(1)), node(2), hanging=["node-2"])
        assert agent.records()["node-1"].values.memory_mb_used == 2560
        assert "no answer within 0.5 s" in report.errors["node-2"]
        agent.audit(node(1, guest(1)), node(2))
        agent.audit_until_good()
        assert agent.records()["node-2"].values.facts["cpu"].state is FactState.FRESH

    def test_hung_nodes_leak_no_thread_per_audit(self, agent):
        nodes = [node(number) for number in range(20)]
        agent.audit(*nodes)
        agent.audit(*nodes, hanging=[f"node-{number}" for number in range(20)])
        threads = count_threads("probe")
        for _ in range(5):
            report = agent.audit()
            assert len(report.errors) == 20
        assert count_threads("probe") <= threads
        agent.path.write_text(yaml.safe_dump({"nodes": nodes}))
        agent.audit_until_good()

    def test_a_malformed_node_keeps_its_row(self, agent):
        agent.audit(node(1), node(2))
        for _ in range(5):
            report = agent.audit(node(1), {"nodename": "node-2", "vcpus": "many"})
        assert "nodes[1].vcpus" in report.errors["node-2"]
        assert agent.records()["node-2"].values.vcpus == 16

    def test_a_missing_file_keeps_all_rows_held(self, agent):
        agent.audit(node(1))
        agent.path.unlink()
        for _ in range(3):
            report = agent.audit()
        assert report.listing_error == f"fake:{agent.path}: No such file or directory"
        assert agent.records()["node-1"].values.facts["memory"].state is FactState.HELD

    def test_a_driver_that_is_not_ready_keeps_all_rows(self, agent):
        agent.audit(node(1))
        for _ in range(3):
            report = agent.audit(node(1), ready=False)
        assert "is not ready" in report.listing_error
        assert list(agent.records()) == ["node-1"]

    def test_a_held_fact_is_unknown_after_its_expiry(self, agent, clock):
        agent.audit(node(1))
        agent.audit(node(1), fail={"node-1": "boom"})
        clock.seconds += 601
        agent.audit()
        entry = agent.records()["node-1"].values.facts["cpu"]
        assert entry.state is FactState.UNKNOWN
        assert agent.records()["node-1"].values.vcpus == 16

    def test_a_node_that_never_answered_has_no_row(self, agent):
        report = agent.audit(node(1), fail={"node-1": "boom"})
        assert agent.records() == {}
        assert "node-1" in report.errors

    def test_warnings_are_stored_and_resolve_themselves(self, agent):
        agent.audit(node(1))
        agent.audit(node(1), fail={"node-1": "boom"})
        (warning,) = agent.store.list_warnings(HOST)
        assert (warning.warning.nodename, warning.resolved_at) == ("node-1", None)
        agent.audit(node(1))
        (warning,) = agent.store.list_warnings(HOST)
        assert warning.resolved_at is not None


class TestOrphans:
    def test_are_deleted_after_two_complete_audits(self, agent):
        agent.audit(node(1), node(2))
        agent.audit(node(1))
        assert set(agent.records()) == {"node-1", "node-2"}
        report = agent.audit(node(1))
        assert [change.kind for change in report.changes] == [ChangeKind.DELETE]
        assert set(agent.records()) == {"node-1"}
        assert read_history(agent.store, HOST, "node-2")[-1].what is ChangeKind.DELETE

    def test_are_kept_while_the_list_of_nodes_is_incomplete(self, agent):
        agent.audit(node(1), node(2))
        for _ in range(5):
            agent.audit(node(1), {"vcpus": 1})
        assert set(agent.records()) == {"node-1", "node-2"}

    def test_have_held_facts_while_the_list_of_nodes_is_incomplete(self, agent):
        agent.audit(node(1), node(2))
        report = agent.audit(node(1), {"vcpus": 1})
        assert "node-2" in report.errors
        facts = agent.records()["node-2"].values.facts
        assert {facts[name].state for name in ("cpu", "memory", "guests")} == {FactState.HELD}
        agent.clock.seconds += 3601
        agent.audit(node(1), {"vcpus": 1})
        facts = agent.records()["node-2"].values.facts
        assert facts["cpu"].state is FactState.UNKNOWN

    def test_that_claims_keep_have_unknown_facts(self, agent):
        agent.audit(node(1), node(2))
        request = parse_claim_request(
            {"workload": {"uuid": guest(1)["uuid"]}, "resources": {"VCPU": 1}}
        )
        agent.store.create_claim(request, HOST, "node-2", agent.tracker.policy)
        for _ in range(3):
            assert "node-2" in agent.audit(node(1)).errors
        assert "node-2" in agent.records()

    def test_that_come_back_are_counted_from_the_start(self, agent):
        agent.audit(node(1), node(2))
        for _ in range(3):
            agent.audit(node(1))
            agent.audit(node(1), node(2))
        assert set(agent.records()) == {"node-1", "node-2"}


class TestOtherWriters:
    def test_an_agent_whose_services_row_was_deleted_is_fenced(self, agent):
        agent.audit(node(1))
        agent.store.delete_service(HOST, COMPUTE_BINARY, -1)
        with pytest.raises(FencedError, match="host-1 has no services row"):
            agent.audit(node(1, guest(1)))

    def test_an_agent_whose_epoch_was_raised_is_fenced(self, agent):
        agent.audit(node(1))
        take_service(agent.store, HOST, make_incarnation(pid=7))
        with pytest.raises(FencedError, match="has taken over host host-1"):
            agent.audit(node(1, guest(1)))

    def test_a_row_of_a_live_host_is_not_taken(self, store, clock, tmp_path):
        uuid = WORKLOAD
        first = TrackedHost(store, tmp_path / "a.yaml", clock, host="a")
        first.audit(node(1, uuid=uuid))
        second = TrackedHost(
            store,
            tmp_path / "b.yaml",
            clock,
            host="b",
            agent_id="44444444-4444-4444-8444-444444444444",
        )
        report = second.audit(node(1, uuid=uuid), node(2))
        assert "node-1" in report.errors
        assert set(second.records()) == {"node-2"}
        assert set(first.records()) == {"node-1"}

    def test_a_row_of_a_dead_host_moves_by_command_and_not_back(self, store, clock, tmp_path):
        uuid = WORKLOAD
        first = TrackedHost(store, tmp_path / "a.yaml", clock, host="a")
        first.audit(node(1, uuid=uuid))
        clock.seconds += 3600
        second = TrackedHost(
            store,
            tmp_path / "b.yaml",
            clock,
            host="b",
            agent_id="44444444-4444-4444-8444-444444444444",
        )
        (refused,) = second.audit(node(1, uuid=uuid)).warnings
        assert (refused.kind, refused.item) == (WarningKind.NODE_UUID_REFUSED, uuid)
        assert second.records() == {}
        assert store.take_over_node("a", "node-1", None, 60) == "b"
        assert second.audit(node(1, uuid=uuid)).warnings == ()
        assert second.records()["node-1"].uuid == uuid
        clock.seconds += 3600
        (refused,) = first.audit(node(1, uuid=uuid)).warnings
        assert "belongs to host b as node-1" in refused.message
        assert first.records() == {}


class RefusingStore(SqliteStore):
    """A store that rejects one node's values, as a database rejects a value that does not fit."""

    def apply_changes(self, agent, changes, service_down_time):
        if any(change.nodename == "node-7" for change in changes):
            raise StoreError("statement rejected: DataError 1406")
        return super().apply_changes(agent, changes, service_down_time)


def test_a_row_that_the_database_rejects_does_not_affect_other_rows(clock, tmp_path):
    agent = TrackedHost(RefusingStore(clock.now), tmp_path / "inventory.yaml", clock)
    report = agent.audit(*(node(number) for number in range(20)))
    assert set(agent.records()) == {f"node-{number}" for number in range(20)} - {"node-7"}
    assert report.errors == {"node-7": "statement rejected: DataError 1406"}
    (warning,) = agent.store.list_warnings(HOST)
    assert (warning.warning.kind, warning.warning.nodename) == ("row_refused", "node-7")


@pytest.mark.parametrize("error", [StoreUnavailableError, SchemaError, ConflictError])
def test_a_database_that_fails_rejects_no_row(clock, tmp_path, error):
    agent = TrackedHost(SqliteStore(clock.now), tmp_path / "inventory.yaml", clock)
    calls = []

    def fail(*arguments):
        calls.append(arguments)
        raise error("down")

    agent.store.apply_changes = fail
    with pytest.raises(error):
        agent.audit(node(1), node(2))
    assert len(calls) == 1
    assert agent.store.list_warnings() == []


class FaultyDriver:
    """A third-party driver that runs no probes and raises unexpected errors."""

    def __init__(self, driver):
        self._driver = driver
        self.error = None
        self.gate = None
        self.entered = 0

    def get_available_nodes(self):
        return self._driver.get_available_nodes()

    def get_available_resource(self, nodename):
        if nodename == "node-2" and self.gate is not None:
            self.entered += 1
            self.gate.wait()
        if nodename == "node-2" and self.error is not None:
            raise self.error
        return self._driver.get_available_resource(nodename)


class TestFaultyDriver:
    @pytest.fixture
    def agent(self, store, clock, tmp_path):
        path = tmp_path / "inventory.yaml"
        return TrackedHost(store, path, clock, probe_timeout=1, wrap_driver=FaultyDriver)

    def test_a_fault_affects_only_its_node_and_is_logged_once(self, agent, caplog):
        agent.audit(node(1), node(2))
        agent.driver.error = KeyError("oops")
        for _ in range(3):
            report = agent.audit(node(1, guest(1)), node(2))
        assert agent.records()["node-1"].values.memory_mb_used == 2560
        assert "KeyError: 'oops'" in report.errors["node-2"]
        assert caplog.messages.count("Node node-2 cannot be read: driver: KeyError: 'oops'") == 1

    def test_a_reading_that_hangs_without_a_probe_leaks_one_thread_in_all(self, agent):
        agent.audit(node(1), node(2))
        agent.driver.gate = threading.Event()
        for _ in range(3):
            report = agent.audit(node(1, guest(1)), node(2))
            assert "does not answer" in report.errors["node-2"]
        assert agent.records()["node-1"].values.memory_mb_used == 2560
        assert agent.driver.entered == 1
        agent.driver.gate.set()
        agent.audit_until_good()


class FlakyStore:
    """A store whose writes can be made to fail, as in an outage."""

    def __init__(self, store):
        self._store = store
        self.is_away = False
        self.loads = []

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*arguments, **more):
            if name == "load_nodes":
                self.loads.append(arguments[1] if len(arguments) > 1 else None)
            if self.is_away:
                raise StoreUnavailableError("the database is away")
            return method(*arguments, **more)

        return call


class TestOutages:
    @pytest.fixture
    def agent(self, store, clock, tmp_path):
        return TrackedHost(FlakyStore(store), tmp_path / "inventory.yaml", clock)

    def test_the_next_audit_writes_what_an_outage_interrupted(self, agent):
        agent.audit(node(1))
        agent.store.is_away = True
        with pytest.raises(StoreUnavailableError):
            agent.audit(node(1, guest(1)))
        agent.store.is_away = False
        report = agent.audit()
        assert [change.kind for change in report.changes] == [ChangeKind.UPDATE]
        assert agent.records()["node-1"].values.memory_mb_used == 2560

    def test_rows_are_read_again_only_when_due(self, agent, clock):
        agent.audit(node(1))
        agent.store.loads.clear()
        for _ in range(3):
            agent.audit()
        assert agent.store.loads == []
        clock.seconds += FULL_LOAD_SECONDS
        agent.audit()
        assert agent.store.loads == [None]


class TestActiveWarnings:
    def find(self, agent, kind):
        return [r for r in agent.store.list_warnings(HOST) if r.warning.kind is kind]

    def test_a_clock_offset_is_a_warning_until_it_is_corrected(self, agent, clock):
        agent.audit(node(1))
        clock.skew = 3600
        report = agent.audit()
        assert round(report.clock_skew_seconds) == 3600
        clock.skew = 3602
        agent.audit()
        (record,) = self.find(agent, WarningKind.CLOCK_SKEW)
        assert record.warning.message == "this host's clock is about 3600 s ahead of the database's"
        assert (record.count, record.resolved_at) == (1, None)
        clock.skew = -3600
        agent.audit()
        (record,) = self.find(agent, WarningKind.CLOCK_SKEW)
        assert "3600 s behind" in record.warning.message
        clock.skew = 4
        agent.audit()
        (record,) = self.find(agent, WarningKind.CLOCK_SKEW)
        assert record.resolved_at is not None

    @pytest.mark.parametrize("seconds", [(20, 0), (0, 20)], ids=["before", "after"])
    def test_a_slow_answer_is_not_a_clock_offset(self, agent, store, clock, monkeypatch, seconds):
        load_versions = store.load_versions

        def load_slowly(*arguments):
            clock.seconds += seconds[0]
            versions = load_versions(*arguments)
            clock.seconds += seconds[1]
            return versions

        monkeypatch.setattr(store, "load_versions", load_slowly)
        assert agent.audit(node(1)).warnings == ()

    def test_a_clock_offset_changes_no_row(self, agent, clock):
        agent.audit(node(1))
        before = agent.records()
        for clock.skew in (3600, -3600, 0):
            assert agent.audit().changes == ()
        assert agent.records() == before

    def test_active_warnings_are_stored_again_with_each_full_load(self, agent, clock):
        agent.audit(node(1), fail={"node-1": "boom"})
        agent.audit(node(1))
        agent.audit(node(1), fail={"node-1": "boom"})
        (first,) = self.find(agent, WarningKind.FACT_HELD)
        agent.audit()
        assert self.find(agent, WarningKind.FACT_HELD) == [first]
        clock.seconds += FULL_LOAD_SECONDS
        agent.audit()
        (again,) = self.find(agent, WarningKind.FACT_HELD)
        assert again.count == first.count + 1
        assert again.last_seen > first.last_seen
        assert again.first_seen == first.first_seen

    def test_a_row_kept_for_an_unreachable_source_is_a_warning(self, agent):
        agent.audit(node(1), node(2))
        agent.audit(node(1), {"nodename": 7})
        (record,) = self.find(agent, WarningKind.ORPHAN_NODE_KEPT)
        assert record.warning.nodename == "node-2"
        agent.audit(node(1), node(2))
        (record,) = self.find(agent, WarningKind.ORPHAN_NODE_KEPT)
        assert record.resolved_at is not None

    def test_known_warnings_are_stored_with_the_others(self, agent):
        full = HostWarning(WarningKind.STATE_PATH, "", "", "full")
        agent.path.write_text(yaml.safe_dump({"nodes": [node(1)]}))
        report = agent.tracker.audit(agent.key, known_warnings=[full])
        assert report.warnings == (full,)
        assert [r.warning for r in agent.store.list_warnings(HOST)] == [full]

    def test_known_warnings_of_nodes_are_kept_by_audits_of_all_and_of_some(self, agent):
        """What placement refuses does not follow from what an audit reads."""
        refused = [
            HostWarning(WarningKind.PLACEMENT_REFUSED, f"node-{n}", "", "full") for n in (1, 2)
        ]
        agent.path.write_text(yaml.safe_dump({"nodes": [node(1), node(2)]}))
        assert agent.tracker.audit(agent.key, known_warnings=refused).warnings == (*refused,)
        report = agent.tracker.audit_nodes(agent.key, ["node-1"], refused)
        assert report.warnings == (*refused,)
        report = agent.tracker.audit_nodes(agent.key, ["node-1"], refused[1:])
        assert report.warnings == (refused[1],)


def test_a_report_has_the_duration_of_its_audit(agent, clock):
    agent.audit(node(1))
    load_versions = agent.store.load_versions

    def load_slowly(*arguments):
        clock.seconds += 3
        return load_versions(*arguments)

    agent.store.load_versions = load_slowly
    assert agent.audit().duration_seconds == pytest.approx(3, abs=0.1)


def test_settings_may_change_between_audits(agent):
    agent.audit(node(1))
    policy = Policy(reserved_memory_mb=1024)
    agent.tracker.reconfigure(AgentSettings(host=HOST, state_path="", policy=policy))
    agent.audit()
    assert agent.records()["node-1"].values.memory_mb_used == 1024


class CountedProgress(Progress):
    count = 0

    def note(self):
        self.count += 1


def test_an_audit_notes_its_progress(store, clock, tmp_path):
    progress = CountedProgress()
    path = tmp_path / "inventory.yaml"
    agent = TrackedHost(store, path, clock, progress=progress)
    agent.audit(*(node(number) for number in range(250)))
    assert progress.count >= 3


LICENSE = ProviderConfig(
    "l.yaml", name="node-1", inventories={"CUSTOM_LICENSE": ClassInventory(4, reserved=1)}
)


def test_classes_of_provider_files_are_claimed_and_refused(store, clock, tmp_path):
    policy = Policy(providers=(LICENSE,))
    tracked = TrackedHost(store, tmp_path / "inventory.yaml", clock, policy)
    tracked.audit(node(1), node(2), startup=True)
    store.report_state(tracked.key, 1, AuditState(0.0))

    def ask(amount):
        workload = {"uuid": str(uuid.uuid4())}
        return parse_claim_request(
            {"workload": workload, "resources": {"CUSTOM_LICENSE": amount}, "host": HOST}
        )

    admission = tracked.tracker.policy
    store.create_claim(ask(2), HOST, "node-1", admission)
    with refusing(CUSTOM_LICENSE=1):
        store.create_claim(ask(2), HOST, "node-1", admission)
    with pytest.raises(ClaimRefusedError, match="is not a resource class of this node"):
        store.create_claim(ask(1), HOST, "node-2", admission)
    page = store.find_candidates(ask(1), CandidatePolicy(60), 10)
    assert [candidate.nodename for candidate in page.nodes] == ["node-1"]


def test_two_provider_entries_of_a_node_stop_the_start_and_no_later_audit(store, clock, tmp_path):
    uuids = {"uuid": "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"}
    again = ProviderConfig("u.yaml", uuid=uuids["uuid"], traits=("CUSTOM_RACK_7",))
    tracked = TrackedHost(
        store, tmp_path / "inventory.yaml", clock, Policy(providers=(LICENSE, again))
    )
    assert tracked.audit(node(1, **uuids)).warnings == ()
    with pytest.raises(ConfigError, match="has another entry, node-1 in l.yaml"):
        tracked.audit(startup=True)
    settings = AgentSettings(HOST, "", Policy(providers=(again, LICENSE)))
    with pytest.raises(ConfigError, match="has another entry"):
        tracked.tracker.check(settings)


def test_the_driver_may_keep_names_of_rows_that_a_listing_lacks(store, clock, tmp_path):
    """It is asked only while there are rows without a node and nodes without a row."""
    tracked = TrackedHost(store, tmp_path / "inventory.yaml", clock)
    asked = []
    tracked.driver.keep_names = lambda known: asked.append([item.nodename for item in known])
    tracked.audit(node(1), node(3))
    tracked.audit(node(2), node(3))
    assert asked == [["node-1"]]
    tracked.audit(node(2), node(3))
    assert asked == [["node-1"]]


def test_a_provider_entry_of_no_node_is_a_warning(store, clock, tmp_path):
    tracked = TrackedHost(store, tmp_path / "inventory.yaml", clock, Policy(providers=(LICENSE,)))
    (warning,) = tracked.audit(node(2)).warnings
    assert (warning.kind, warning.item) == (WarningKind.PROVIDER_CONFIG, "node-1")
    assert tracked.audit(node(1), node(2)).warnings == ()


def test_a_cpu_set_without_an_online_cpu_stops_the_start_and_no_later_audit(store, clock, tmp_path):
    policy = Policy(cpu_shared_set=frozenset({40}))
    agent = TrackedHost(store, tmp_path / "inventory.yaml", clock, policy)
    with pytest.raises(ConfigError, match="cpu_shared_set: none of 40 is online on node node-1"):
        agent.audit(node(1), startup=True)
    assert "cpu_shared_set" in agent.audit(node(1)).errors["node-1"]


@pytest.mark.parametrize(("nodes", "guests"), list(itertools.product((1, 250), (0, 3))))
def test_usage_does_not_depend_on_the_order_of_audits(store, clock, tmp_path, nodes, guests):
    agent = TrackedHost(store, tmp_path / "inventory.yaml", clock)
    whole = [node(n, *(guest(n * 10 + g) for g in range(guests))) for n in range(nodes)]
    agent.audit(*(node(n) for n in range(nodes)))
    agent.audit(*whole)
    used = {record.values.memory_mb_used for record in agent.records().values()}
    assert used == {512 + 2048 * guests}


def test_an_audit_of_one_node_reads_and_writes_no_other(agent):
    agent.audit(node(1), node(2))
    agent.path.write_text(
        yaml.safe_dump({"nodes": [node(1, guest(1)), node(2, guest(2))]}), encoding="utf-8"
    )
    agent.driver.get_available_nodes()  # reads the file
    report = agent.tracker.audit_nodes(agent.key, {"node-2"})
    assert report.read == {"node-2"}
    assert [change.nodename for change in report.changes] == ["node-2"]
    assert set(report.nodes) == {"node-1", "node-2"}


def test_an_audit_of_one_node_keeps_the_errors_and_warnings_of_the_others(agent):
    agent.audit(node(1), node(2), fail={"node-1": "boom"})
    before = agent.tracker.audit(agent.key)
    report = agent.tracker.audit_nodes(agent.key, {"node-2"})
    assert report.errors == before.errors
    assert report.errors["node-1"]
    assert report.warnings == before.warnings
    agent.audit(node(1), node(2))
    assert agent.tracker.audit_nodes(agent.key, {"node-1"}).errors == {}


def test_an_audit_of_a_node_without_a_row_audits_all_nodes(agent):
    agent.audit(node(1))
    agent.path.write_text(yaml.safe_dump({"nodes": [node(1), node(2)]}), encoding="utf-8")
    report = agent.tracker.audit_nodes(agent.key, {"node-2"})
    assert report.read is None
    assert set(report.nodes) == {"node-1", "node-2"}


def test_an_audit_that_handles_an_event_has_each_warning_once(store, clock, tmp_path):
    agent = TrackedHost(store, tmp_path / "inventory.yaml", clock, wrap_driver=FaultyDriver)
    agent.audit(node(1), node(2))
    agent.driver.gate = threading.Event()
    queue = agent.tracker._queue
    with ThreadPoolExecutor(1) as pool:
        # node-1 fails immediately, and again for its event while node-2 is slow
        audit = pool.submit(agent.audit, node(1), node(2), fail={"node-1": "boom"})
        assert wait_for(lambda: agent.driver.entered == 1)
        queue.put_event(NodeEvent("node-1", EventKind.CHANGED, "a"))
        assert wait_for(lambda: queue._events.due_at() is None)
        agent.driver.gate.set()
        report = audit.result()
    assert [warning.nodename for warning in report.warnings] == ["node-1"]
    assert list(report.errors) == ["node-1"]
    assert [change.nodename for change in report.changes] == ["node-1"]


def test_readings_of_an_interrupted_audit_are_discarded_by_the_next(store, clock, tmp_path):
    agent = TrackedHost(
        FlakyStore(store),
        tmp_path / "inventory.yaml",
        clock,
        wrap_driver=FaultyDriver,
    )
    agent.audit(node(1), node(2))
    gate = agent.driver.gate = threading.Event()
    agent.store.is_away = True
    with pytest.raises(StoreUnavailableError):
        agent.audit()
    agent.store.is_away = False
    agent.driver.gate = None
    report = agent.audit(node(1), node(2, guest(1)))
    gate.set()
    assert report.is_good
    assert agent.records()["node-2"].values.memory_mb_used == 2560
    assert agent.audit().changes == ()
