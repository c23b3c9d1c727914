"""The budgets that can be counted: statements and written rows, never the clock."""

import compileall
import dataclasses
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

import nodetracker
from nodetracker.compute import audit_queue
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.fact import fresh
from nodetracker.model.host import MemoryInfo
from nodetracker.model.node import VOLATILE_COLUMNS, HostSnapshot
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import AgentKey, Driver
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.local.plugin import LocalDriver
from nodetracker.virt.monitored import MonitoredDriver, MonitorSource
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.bench.audits import BenchHost, Statements
from tests.bench.databases import rss_mib
from tests.builders import later, make_incarnation, take_service
from tests.contract.stores import SQL_BACKENDS, make_stores
from tests.functional.conductors import Conductor, Remote
from tests.programs import Programs
from tests.stores import SqliteStore

STEADY = 3
REREAD = 8
ONE_CHANGE = 9  # with a warning that begins or ends, and its line of the history
PER_HUNDRED = 6
MEASURES_PER_HOUR = 12
CALLS_OF_A_NODE = 100
CALLS_OF_AN_AUDIT = 2000
RSS_MIB = {"with a database": 70.0, "with conductors": 44.0}

Rows = dict[str, dict[int, tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def _one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all readings of an audit be one batch, however slow the machine is."""
    monkeypatch.setattr(audit_queue, "LINGER_SECONDS", 600.0)


@pytest.fixture(params=SQL_BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """A store on an empty, migrated database."""
    for maker in make_stores(request.param, request, tmp_path):
        opened = maker.open()
        assert isinstance(opened, SqlStore)
        yield opened


def read_rows(store: SqlStore) -> Rows:
    """Return every row of every table by its id."""
    with store.engine.connect() as connection:
        return {
            table.name: {row.id: tuple(row) for row in connection.execute(sa.select(table))}
            for table in metadata.sorted_tables
        }


def count_written(before: Rows, after: Rows) -> dict[str, int]:
    """Return how many rows of each table are new, gone or different."""
    counts = {
        name: sum(before[name].get(key) != row for key, row in rows.items())
        + len(before[name].keys() - rows.keys())
        for name, rows in after.items()
    }
    return {name: count for name, count in counts.items() if count}


def verbs(statements: Statements) -> set[str]:
    """Return the statements' first words."""
    return {statement.split()[0] for statement in statements}


def test_a_thousand_nodes_with_a_guest_each(store: SqlStore, tmp_path: Path) -> None:
    host = BenchHost(store, tmp_path, nodes=1000, guests_per_node=1)
    host.audit()
    before = read_rows(store)
    assert {name: len(before[name]) for name in ("compute_nodes", "guests", "history")} == {
        "compute_nodes": 1000,
        "guests": 1000,
        "history": 1001,  # with the start of the service
    }

    steady, reread = host.audit(), host.reread()
    assert len(steady) <= STEADY
    assert len(reread) <= REREAD
    assert verbs(steady + reread) == {"SELECT"}
    assert read_rows(store) == before

    host.add_guests(host.nodes[500:501])
    assert len(host.audit()) <= ONE_CHANGE
    after = read_rows(store)
    assert count_written(before, after) == {"compute_nodes": 1, "guests": 1, "history": 1}
    assert {name: len(after[name]) - len(before[name]) for name in after} == {
        name: int(name in ("guests", "history")) for name in after
    }
    generation = list(metadata.tables["compute_nodes"].c.keys()).index("generation")
    (moved,) = (
        (before["compute_nodes"][key][generation], row[generation])
        for key, row in after["compute_nodes"].items()
        if before["compute_nodes"][key] != row
    )
    assert moved[1] == moved[0] + 1


@pytest.mark.parametrize(
    "guests", [0, 64, 100, 1000], ids=["none", "its first warning", "a warning", "many"]
)
def test_one_node_whatever_its_guests(store: SqlStore, tmp_path: Path, guests: int) -> None:
    costs = BenchHost(store, tmp_path, 1, guests).audit_each()
    assert len(costs["steady"]) <= STEADY
    assert len(costs["all rows read"]) <= REREAD
    assert len(costs["one guest more"]) <= ONE_CHANGE
    assert verbs(costs["steady"] + costs["all rows read"]) == {"SELECT"}


class CallCounter:
    """Counts the calls of Python functions in this thread and in those that start."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: object, event: str, argument: object) -> None:
        self.calls += event == "call"

    def count(self, act: Callable[[], object]) -> int:
        """Return the calls of an action."""
        before = self.calls
        sys.setprofile(self)
        try:
            act()
        finally:
            sys.setprofile(None)
        return self.calls - before


@pytest.fixture
def counter() -> Iterator[CallCounter]:
    """A counter of calls, also in the threads of readers."""
    found = CallCounter()
    threading.setprofile(found)
    yield found
    threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_steady_audit_calls_few_functions_for_each_node(
    store: SqlStore, tmp_path: Path, counter: CallCounter
) -> None:
    counts = []
    for nodes in (100, 300):
        host = BenchHost(store, tmp_path, nodes=nodes, guests_per_node=10)
        for _ in range(3):
            host.audit()
        counts.append(min(counter.count(host.audit) for _ in range(3)))
    assert (counts[1] - counts[0]) / 200 <= CALLS_OF_A_NODE
    assert counts[0] - 100 * CALLS_OF_A_NODE <= CALLS_OF_AN_AUDIT


@pytest.fixture(params=RSS_MIB)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Programs, float]]:
    """A host, and how much memory its agent may have."""
    limit = RSS_MIB[request.param]
    if request.param == "with a database":
        direct = Programs(tmp_path / "agent", update_resources_interval=1)
        direct.inventory.write_text("nodes: [{nodename: n, vcpus: 16, memory_mb: 65536}]")
        direct.make_schema()
        yield direct, limit
        return
    conductor = Conductor(tmp_path / "conductor", f"sqlite:///{tmp_path}/db.sqlite")
    conductor.make_schema()
    with conductor.start_conductor():
        token = conductor.make_token()
        yield (
            Remote(tmp_path / "agent", conductor.endpoint, token, update_resources_interval=1),
            limit,
        )


def test_an_agent_stays_small(small: tuple[Programs, float]) -> None:
    host, limit = small
    assert compileall.compile_dir(Path(nodetracker.__file__).parent, quiet=1)
    with host.start(is_forked=False) as agent:
        agent.wait_for("is ready")
        for _ in range(20):
            assert host.manage("node", "audit", host.host).returncode == 0
        memory = rss_mib(psutil.Process(agent.process.pid))
        agent.stop()
    assert memory < limit


def test_two_hundred_changed_nodes_cost_two_transactions_of_statements(
    store: SqlStore, tmp_path: Path
) -> None:
    host = BenchHost(store, tmp_path, nodes=200, guests_per_node=1)
    host.audit()
    versions = len(host.audit())
    before = read_rows(store)
    host.add_guests(host.nodes)
    assert len(host.audit()) <= 2 * PER_HUNDRED + versions
    assert count_written(before, read_rows(store)) == {
        "compute_nodes": 200,
        "guests": 200,
        "history": 200,
    }


def test_a_heartbeat_is_one_statement_and_one_row(store: SqlStore, tmp_path: Path) -> None:
    host = BenchHost(store, tmp_path, nodes=1, guests_per_node=0)
    host.audit()
    host.report_state()
    before = read_rows(store)
    assert len(host.report_state()) == 1
    assert count_written(before, read_rows(store)) == {"services": 1}


class RestlessDriver(LocalDriver):
    """This machine, its available memory another one at each reading."""

    def __init__(self, environment: DriverEnvironment) -> None:
        super().__init__(environment)
        self._readings = 0

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        snapshot = super().get_available_resource(nodename)
        assert snapshot.memory.value is not None
        self._readings += 1
        total_mb = snapshot.memory.value.total_mb
        info = MemoryInfo(total_mb, total_mb // (2 + self._readings % 2))
        return dataclasses.replace(snapshot, memory=fresh("test", info))


class RestlessMonitor:
    """A monitor with other values at each reading."""

    def __init__(self) -> None:
        self._readings = 0

    def read(self) -> dict[str, int]:
        self._readings += 1
        return {"cpu_percent": self._readings % 100}


def add_monitor(environment: DriverEnvironment) -> MonitoredDriver:
    """This machine with a restless monitor."""
    source = MonitorSource("cpu", frozenset({"cpu_percent"}), RestlessMonitor)
    return MonitoredDriver(LocalDriver(environment), (source,), environment.probes)


def audit_an_hour(
    driver: Callable[[DriverEnvironment], Driver], directory: Path
) -> list[NodeChange]:
    """Audit this machine every minute of an hour that takes no time; return what was written."""
    seconds = 0.0
    store = SqliteStore(lambda: later(seconds))
    incarnation = make_incarnation()
    service = take_service(store, "host-1", incarnation)
    agent = AgentKey("host-1", COMPUTE_BINARY, incarnation.agent_id, service.epoch, service.uuid)
    environment = DriverEnvironment("host-1", str(directory), Roots(), ProbeRunner(20.0))
    settings = AgentSettings("host-1", str(directory), Policy())
    tracker = ResourceTracker(settings, driver(environment), store, lambda: seconds)
    changes: list[NodeChange] = []
    for _ in range(1 + timedelta(hours=1) // timedelta(minutes=1)):
        changes += tracker.audit(agent).changes
        seconds += 60.0
    return changes


def list_unexpected(changes: list[NodeChange]) -> list[tuple[str, ...]]:
    """Return the columns of each update, save of one whose only news is the cells.

    A virtual machine's cells may grow while it runs.
    """
    return [
        change.columns
        for change in changes
        if change.kind is ChangeKind.UPDATE
        and (
            change.guests
            or change.devices
            or set(change.columns) - VOLATILE_COLUMNS != {"numa_topology"}
        )
    ]


def test_an_hour_of_this_machine_writes_measurements_alone(tmp_path: Path) -> None:
    changes = audit_an_hour(LocalDriver, tmp_path)
    kinds = Counter(change.kind for change in changes)
    assert kinds[ChangeKind.CREATE] == 1
    assert kinds[ChangeKind.DELETE] == 0
    assert kinds[ChangeKind.MEASURE] <= MEASURES_PER_HOUR
    assert list_unexpected(changes) == []


@pytest.mark.parametrize("driver", [RestlessDriver, add_monitor], ids=["memory", "a monitor"])
def test_an_hour_of_unrest_writes_a_measurement_every_five_minutes(
    tmp_path: Path, driver: Callable[[DriverEnvironment], Driver]
) -> None:
    changes = audit_an_hour(driver, tmp_path)
    kinds = Counter(change.kind for change in changes)
    assert kinds[ChangeKind.CREATE] == 1
    assert kinds[ChangeKind.MEASURE] == MEASURES_PER_HOUR
    assert list_unexpected(changes) == []
