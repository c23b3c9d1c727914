"""No stored value fails a reader, whatever it is: each column of each table, one by one.

Every column of a row gets values by SQL that it may not have. Then the host's agent
audits, every method that reads is called, every resource of the REST service is read,
and all metrics are rendered, with little memory. `-s` prints how many of each there were.
A server checks more of what it stores, so by default fewer columns are damaged there.
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_db.exception import DBError

from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.api.routes import ROUTES
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.db.columns import list_damage
from nodetracker.db.connection.dialect import JsonText, Real, UtcDateTime, Whole
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.metrics.agent import render_nodes
from nodetracker.metrics.fleet import render_page
from nodetracker.model.candidate import CandidateOrder
from nodetracker.model.claim import PlacedRequest
from nodetracker.model.credential import hash_secret
from nodetracker.model.errors import (
    ClaimRefusedError,
    FencedError,
    NodetrackerError,
    StoreError,
)
from nodetracker.model.fact import fresh
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.host import Gpu, Nic, SystemInfo
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    ServiceQuery,
    WarningQuery,
    WorkloadQuery,
)
from nodetracker.model.node import (
    NODE_COLUMNS,
    NODE_TIMES,
    HostSnapshot,
    NodeListing,
    VersionSums,
)
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.model.pci import PciDevice
from nodetracker.model.service import AuditState
from nodetracker.model.settings import AgentSettings, CandidatePolicy, Policy
from nodetracker.model.trend import Step, TrendQuery
from nodetracker.model.warning import WarningKind
from nodetracker.usecases.scheduler import Scheduler
from nodetracker.usecases.tolerance import refresh_tolerances
from nodetracker.views.problems import view_fleet
from tests.builders import make_incarnation, make_snapshot, take_service
from tests.contract.dumps import Rows
from tests.contract.scene import POLICY, Scene, ask, build, list_guests, node_uuid, uuid_of
from tests.contract.stores import SQL_BACKENDS, open_sharing
from tests.hostile.limits import limited
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api, make_backend

SECRET = hash_secret("of alpha")
OF_NODE = "compute_node_id IN (SELECT id FROM compute_nodes WHERE host = 'alpha')"
ROWS = {
    "compute_nodes": "host = 'alpha' AND hypervisor_hostname = 'n1'",
    "services": "agent_id = 'nodetracker-compute of alpha'",
    "guests": OF_NODE,
    "pci_devices": OF_NODE,
    "claims": f"uuid = '{uuid_of('lost a1')}'",
    "migrations": f"uuid = '{uuid_of('move of web')}'",
    "history": "host = 'alpha' AND kind = 'claim'",
    "warnings": "host = 'alpha'",
    "provider_removals": "host = 'alpha'",
}
"""Table -> which row is damaged, the first of these: those that its own agent reads."""

EVERY = bool(os.environ.get("NODETRACKER_DAMAGE"))
"""Whether each column gets everything that it may not have, and not one thing of it."""

SAMPLED = 9
"""On a server each so many columns get one thing, unless each gets everything."""

NUMBERS = ("4611686018427387904", "-4611686018427387904", "1e300", "'[[['", "x'ff'", "'NaN'")
TEXTS = (f"'{'x' * 100_000}'", "x'ff00'", "''", "CONTROLS")
TIMES = (
    "'[[['",
    "4611686018427387904",
    "'9999-12-31 23:59:59.999999'",
    "'0001-01-01 00:00:00.0'",
    "'0000-00-00'",
    "'infinity'",
    "'0044-03-15 BC'",
)
CONTROLS = {"postgresql": "chr(10) || chr(27)"}
DOCUMENTS = (
    "'[[['",
    "'{\"cells\":1}'",
    "'[1]'",
    "'[{\"cells\":[{}]}]'",
    "'4611686018427387904'",
    "'{\"a\":1e400}'",
    "'NaN'",
    f"'{'[' * 100_000}'",
    f"'[{'[],' * 2_000_000}[]]'",
)


def garbage_for(column: sa.Column[Any]) -> tuple[str, ...]:
    """Return SQL expressions of what a column may not have."""
    if isinstance(column.type, Whole | Real | sa.BigInteger | sa.Boolean):
        return NUMBERS
    if isinstance(column.type, UtcDateTime):
        return TIMES
    if isinstance(column.type, JsonText):
        return DOCUMENTS
    return TEXTS


class Machine:
    """A driver of the nodes of alpha, which has something of everything."""

    def get_available_nodes(self) -> NodeListing:
        return NodeListing(("n1", "n2"))

    def keep_names(self, known: Any) -> None:
        pass

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        cpus = [frozenset(range(16 * n, 16 * n + 16)) for n in range(2)]
        cells = tuple(
            NumaCell(n, cpus[n], 32768, tuple(frozenset({c}) for c in cpus[n]), (PagePool(4, 99),))
            for n in range(2)
        )
        read = make_snapshot(nodename, *list_guests("a1" if nodename == "n1" else "a2"))
        system = SystemInfo(nodename, "linux", "Debian", "6.1", "b1", nics=(Nic("eth0"),))
        return replace(
            read,
            uuid=node_uuid("a1" if nodename == "n1" else "a2"),
            numa=fresh("test", NumaTopology(cells)),
            pci=fresh(
                "test", tuple(PciDevice(f"0000:81:00.{n}", "8086", "154c") for n in range(8))
            ),
            gpus=fresh("test", (Gpu("0000:c1:00.0", "NVIDIA", "H100", 80_000, "GPU-1"),)),
            system=fresh("test", system),
        )


class Fleet:
    """All that reads a store: one agent, methods, REST and metrics.

    Args:
        store: without rows.
        rows: those of a server; None = the store is in memory.
    """

    def __init__(self, store: SqlStore, rows: Rows | None = None) -> None:
        self.store = store
        self._rows = rows
        self.scene: Scene = build(store)
        for host in ("alpha", "beta"):
            token = hash_secret(f"token of {host}")
            store.create_join_token(token, host, 2, timedelta(hours=1), "admin")
            store.join_agent(token, host, f"agent of {host}", hash_secret(f"of {host}"), "")
            store.find_credential(hash_secret(f"of {host}"), "")
        self.scene.call_id = store.create_call("alpha", "audit", {}, "test", timedelta(minutes=9))
        self.audit()
        for label in ("a1", "g1"):
            self.scene.record(label)
        with store.engine.begin() as connection:  # of an hour ago, so that they have a trend
            time = tables.compute_nodes.c.created_at
            connection.execute(
                sa.update(tables.compute_nodes).values({time: store.now() - timedelta(hours=1)})
            )
            mark = {"system_identifier": "another server", "timeline": 2, "address": "db2:5432"}
            connection.execute(sa.insert(tables.primaries).values(mark))
        store.sample_trends()
        refresh_tolerances(store, POLICY, 600)
        self.store.raise_warning("beta", next(iter(store.list_warnings("alpha"))).warning)
        self.api = Api(make_backend(store))
        self.paths = tuple(list_paths(store))
        self._saved: Any = self._keeper.save()

    @property
    def _keeper(self) -> Any:
        return self._rows or self.store

    def restore(self) -> None:
        """Undo all writes."""
        self._keeper.restore(self._saved)

    def choose_garbage(self, place: int, column: sa.Column[Any]) -> Sequence[str]:
        """Return the SQL expressions that a column gets.

        Args:
            place: of the column in its table.
        """
        known = garbage_for(column)
        if column.name == "id" and self.store.engine.name == "mysql":
            return []  # all rows that are created later would have larger ones
        if EVERY:
            return known
        is_chosen = self._rows is None or place % SAMPLED == len(column.table.name) % SAMPLED
        return [known[place % len(known)]] if is_chosen else []

    def audit(self) -> Any:
        """Audit alpha as its agent does after a start."""
        settings = AgentSettings(host="alpha", state_path="", policy=Policy(), probe_timeout=60)
        tracker = ResourceTracker(settings, Machine(), self.store)  # type: ignore[arg-type]
        report = tracker.audit(self.scene.agents["alpha"], False)
        assert report.store_error is None, report
        return report

    def damage(self, column: sa.Column[Any], garbage: str, where: str = "") -> bool:
        """Write garbage into one row; return whether the database takes it.

        Args:
            where: which row, "" = that of `ROWS`.
        """
        table, engine = column.table, self.store.engine if self._rows is None else self._rows.engine
        dialect = engine.dialect
        sql = garbage.replace("CONTROLS", CONTROLS.get(dialect.name, "char(10, 27)"))
        name = dialect.identifier_preparer.quote(column.name)
        where = where or ROWS.get(table.name, "1 = 1")
        with engine.connect() as connection:
            row = connection.exec_driver_sql(f"SELECT min(id) FROM {table.name} WHERE {where}")
            number = row.scalar_one()
            assert number is not None, f"no row of {table} where {where}"
            connection.rollback()
        try:
            with engine.begin() as connection:
                if dialect.name == "mysql":  # as other programs write, and administrators
                    connection.exec_driver_sql("SET sql_mode = '', foreign_key_checks = 0")
                connection.exec_driver_sql(
                    f"UPDATE {table.name} SET {name} = {sql} WHERE id = {number}"
                )
        except (sa.exc.DBAPIError, DBError):
            return False
        return True

    def list_damage(self, table: sa.Table) -> list[tuple[str, ...]]:
        """Return the damaged columns of each row of a table."""
        with self.store.engine.connect() as connection:
            return [list_damage(row) for row in connection.execute(sa.select(table)).mappings()]

    def readers(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield everything that reads, by name."""
        store, request = self.store, ask(f"other {next(_numbers)}")
        plain = replace(request, pci_requests=(), uuid=uuid_of(f"plain {next(_numbers)}"))
        plain = ask(
            f"more {next(_numbers)}", resources={"VCPU": 1, "MEMORY_MB": 64}, pci_requests=None
        )
        scheduler = Scheduler(store, POLICY)
        everything = FleetQuery(
            columns=(*NODE_COLUMNS, *NODE_TIMES), reads_audits=True, counts_siblings=True
        )
        ids = [node.id for node in store.list_nodes()]
        yield "load_versions", lambda: store.load_versions("alpha", "nodetracker-compute")
        yield "sum_versions", lambda: store.sum_versions("alpha", "nodetracker-compute")
        yield "load_nodes", lambda: [store.load_nodes(host) for host in ("alpha", "beta")]
        yield "list_fleet", lambda: store.list_fleet(everything)
        yield "sum_fleet", store.sum_fleet
        yield "read_overview", store.read_overview
        for step, node in itertools.product(Step, (None, ids[0])):
            yield (
                f"read_trend {step}",
                partial(store.read_trend, TrendQuery(step=step, node_id=node)),
            )
        yield "list_services", store.list_services
        yield "list_outage_services", lambda: store.list_outage_services(60)
        yield "list_service_page", lambda: store.list_service_page(ServiceQuery())
        yield (
            "list_workloads",
            lambda: store.list_workloads(WorkloadQuery(reads_details=True, reads_numa=True)),
        )
        yield "sum_hosts", store.sum_hosts
        yield "sum_usage", store.sum_usage
        yield "list_claims", store.list_claims
        yield "list_claim_page", lambda: store.list_claim_page(ClaimQuery())
        yield "list_migrations", store.list_migrations
        yield "list_migration_page", lambda: store.list_migration_page(MigrationQuery())
        yield "list_history_page", lambda: store.list_history_page(HistoryQuery())
        yield "list_warnings", store.list_warnings
        yield "list_warning_page", lambda: store.list_warning_page(WarningQuery())
        yield "list_device_page", lambda: store.list_device_page(DeviceQuery(node_id=ids[0]))
        yield "list_gpus", store.list_gpus
        yield "list_custom_traits", store.list_custom_traits
        yield "list_tolerances", lambda: store.list_tolerances(with_plans=True)
        yield "list_provider_removals", store.list_provider_removals
        yield "list_credentials", store.list_credentials
        yield "list_split_brains", lambda: store.list_split_brains("alpha")
        yield "list_expired_claims", lambda: store.list_expired_claims("alpha", [uuid_of("web")])
        yield "find_answer", lambda: store.find_answer("alpha", self.scene.call_id)
        yield "load_ledger_nodes", lambda: store.load_ledger_nodes(ids)
        for order in CandidateOrder:
            policy = CandidatePolicy(3600, order=order)
            yield f"find_candidates {order}", partial(store.find_candidates, request, policy, 10)
        yield "count_exclusions", lambda: store.count_exclusions(request, POLICY)
        yield "find_nearest", lambda: store.find_nearest(request, POLICY, 20)
        limited = replace(plain, limits={"VCPU": 100, "DISK_GB": 100})
        yield "count_exclusions limits", lambda: store.count_exclusions(limited, POLICY)
        yield "select", lambda: scheduler.select(request)
        yield "select plain", lambda: scheduler.select(plain, of_all=True)
        yield "create_claim", lambda: scheduler.create_claim(plain)
        placed = PlacedRequest(
            ask(f"bulk {next(_numbers)}", resources={"VCPU": 1}, pci_requests=None), "beta", "n2"
        )
        yield "create_claims", lambda: store.create_claims([placed], POLICY)
        yield (
            "describe_tree",
            lambda: [describe_tree(n, False, True) for n in store.load_nodes("alpha")],
        )
        yield (
            "render_nodes",
            lambda: list(
                render_nodes({n.nodename: n for n in store.load_nodes("alpha")}, AuditState())
            ),
        )
        yield "sample_trends", store.sample_trends
        yield (
            "metrics of the fleet",
            lambda: render_page(view_fleet(store.read_overview(), 60, 3600).overview, 1000),
        )
        for path in self.paths:
            yield f"GET {path}", partial(check_get, self.api, path)
        yield "abort_claim", lambda: store.abort_claim(uuid_of("lost a1"))


def list_paths(store: SqlStore) -> Iterator[str]:
    """Yield a path of each resource that the REST service shows."""
    names = {
        "uuid": node_uuid("a1"),
        "host": "alpha",
        "id": "1",
        "claims": uuid_of("web b1"),
        "migrations": uuid_of("move of web"),
        "workloads": uuid_of("web"),
        "services": store.find_service(1).uuid,
        "action": "",
    }
    for route in ROUTES:
        if route.path == "/v1/openapi.json":
            continue
        if "GET" in route.methods and not route.methods["GET"][0].is_change:
            noun = route.path.split("/")[2:3]
            path = route.path
            if noun and noun[0] in names:
                path = path.replace("{uuid}", names[noun[0]])
            for name, value in names.items():
                path = path.replace(f"{{{name}}}", value)
            yield path
    yield "/v1/candidates?resources=VCPU:1"
    yield "/v1/history?limit=1000"


def check_get(api: Api, path: str) -> None:
    status = api.request("GET", path).status_code
    assert status in (200, 300, 400, 404, 501), (path, status)


_numbers = itertools.count()


@pytest.fixture(scope="module", params=SQL_BACKENDS)
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A fleet in memory, or in a database of its own."""
    if request.param == "sqlite":
        yield Fleet(SqliteStore())
        return
    url = request.getfixturevalue(request.param).create_database("ntdamage")
    store, rows = open_sharing(url), Rows(url, {})
    # Whether a table is there is looked up in the database that its dialect was shared by.
    tables.metadata.create_all(store.engine, checkfirst=False)
    yield Fleet(store, rows)
    store.close()
    rows.close()


def read_everything(fleet: Fleet, counted: Counter[str]) -> list[str]:
    """Call the agent first and then every other reader; return what failed."""
    failed = []
    for name, read in itertools.chain([("audit", fleet.audit)], fleet.readers()):
        try:
            read()
        except Exception as error:
            if isinstance(error, NodetrackerError) and not isinstance(error, StoreError):
                counted["refused"] += 1
            else:
                failed.append(f"{name}: {type(error).__name__}: {error}"[:300])
        counted["reads"] += 1
    return failed


@pytest.mark.timeout(0 if EVERY else 600)
@pytest.mark.parametrize("table", tables.metadata.sorted_tables, ids=str)
def test_no_stored_value_fails_a_reader(fleet: Fleet, table: sa.Table) -> None:
    counted: Counter[str] = Counter()
    failed: list[str] = []
    with limited(seconds=inf):
        for place, column in enumerate(table.c):
            for garbage in fleet.choose_garbage(place, column):
                fleet.restore()
                if not fleet.damage(column, garbage):
                    counted["not stored"] += 1
                    continue
                counted["stored"] += 1
                found = read_everything(fleet, counted)
                failed += [f"{column} = {garbage[:40]}: {line}" for line in found]
    fleet.restore()
    print(f"\n{fleet.store.engine.name} {table}: {len(table.c)} columns, {dict(counted)}")
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(failed[:60])


def test_the_scene_is_not_damaged(fleet: Fleet) -> None:
    fleet.restore()
    damaged = {
        str(table): found
        for table in tables.metadata.sorted_tables
        if any(found := fleet.list_damage(table))
    }
    assert damaged == {}
    assert read_everything(fleet, Counter()) == []


@pytest.fixture
def whole(fleet: Fleet) -> Iterator[Fleet]:
    """The fleet without damage, before and after."""
    fleet.restore()
    yield fleet
    fleet.restore()


def warned(fleet: Fleet) -> dict[str, str]:
    """Return item -> message of the open warnings of damaged rows."""
    warnings = (item.warning for item in fleet.store.list_warnings("alpha") if not item.resolved_at)
    return {item.item: item.message for item in warnings if item.kind is WarningKind.ROW_DAMAGED}


def count_damaged(fleet: Fleet) -> tuple[float, float]:
    """Return the metrics of damaged nodes and of the warnings of damaged rows."""
    overview = view_fleet(fleet.store.read_overview(), 60, 3600).overview
    page = render_page(overview, 1000).decode()
    names = ("nodes_damaged", 'warnings{kind="row_damaged"}')
    nodes, warnings = (
        re.findall(f"^nodetracker_fleet_{re.escape(name)} (.*)$", page, re.MULTILINE)[0]
        for name in names
    )
    return float(nodes), float(warnings)


def test_a_claim_in_an_unknown_state_closes_its_node_until_it_is_aborted(whole: Fleet) -> None:
    """Its amounts count, whatever the state was."""
    store, uuid = whole.store, uuid_of("new a1")
    used = whole.scene.record("a1").values.vcpus_used
    assert whole.damage(tables.claims.c.state, "'[[['", f"uuid = '{uuid}'")
    whole.audit()
    assert list(warned(whole)) == [uuid]
    assert whole.scene.record("a1").values.vcpus_used == used
    another = ask("another a1", resources={"VCPU": 1}, pci_requests=None)
    with pytest.raises(ClaimRefusedError, match=f"{uuid}: the stored claim is damaged"):
        store.create_claim(another, "alpha", "n1", POLICY)
    assert store.abort_claim(uuid).state == "released"
    assert store.list_claims(uuid=uuid)[0].damaged == ()
    whole.audit()
    assert warned(whole) == {}
    assert whole.scene.record("a1").values.vcpus_used == used - 1
    assert store.create_claim(another, "alpha", "n1", POLICY).is_active


def test_damaged_resources_of_another_workload_refuse_the_classes_that_nobody_knows(
    whole: Fleet,
) -> None:
    store, uuid = whole.store, uuid_of("web b2")
    fpga = ask("more b2", resources={"CUSTOM_FPGA": 1}, pci_requests=None)
    assert store.try_claim(fpga, "beta", "n2", POLICY).reasons == ()
    assert whole.damage(tables.claims.c.resources, "'[[['", f"uuid = '{uuid}'")
    (reason,) = store.try_claim(fpga, "beta", "n2", POLICY).reasons
    assert "resources of claims" in reason
    store.abort_claim(uuid)
    assert store.try_claim(fpga, "beta", "n2", POLICY).reasons == ()


def test_a_damaged_row_is_warned_of_and_counted_until_an_audit_has_overwritten_it(
    whole: Fleet,
) -> None:
    assert count_damaged(whole) == (0, 0)
    assert whole.damage(tables.compute_nodes.c.memory_mb, "-1")
    assert whole.damage(tables.guests.c.pins, "'[[['")
    assert whole.damage(tables.pci_devices.c.tags, "'[[['")
    assert count_damaged(whole) == (1, 0)
    whole.audit()
    (message,) = warned(whole).values()
    assert [part in message for part in ("column memory_mb", "guest ", "device ")] == [True] * 3
    assert count_damaged(whole) == (0, 1)
    whole.audit()
    assert count_damaged(whole) == (0, 0)
    assert warned(whole) == {}


@pytest.mark.parametrize("name", ["generation", "epoch"])
@pytest.mark.parametrize("garbage", [*NUMBERS, "9007199254740992", "9223372036854775807"])
def test_versions_that_are_damaged_or_huge_have_no_sum(
    whole: Fleet, name: str, garbage: str
) -> None:
    """So their host's agent lists them, as two of them could hide each other."""
    place = "alpha", "nodetracker-compute"
    for node in ("n1", "n2"):  # the sum of both has no 64 bits
        where = f"host = 'alpha' AND hypervisor_hostname = '{node}'"
        whole.damage(tables.compute_nodes.c[name], garbage, where)
    rows = whole.store.load_nodes("alpha")
    is_whole = all(name not in row.damaged and getattr(row, name) < 2**53 for row in rows)
    expected = VersionSums.of(rows) if is_whole else None
    assert whole.store.sum_versions(*place).sums == expected
    assert len(whole.store.load_versions(*place).by_nodename) == len(rows) == 2


@pytest.mark.parametrize("time", TIMES)
def test_a_time_that_python_cannot_have_fails_no_list(whole: Fleet, time: str) -> None:
    uuid = uuid_of("new a1")
    if whole.damage(tables.claims.c.created_at, time, f"uuid = '{uuid}'"):
        (claim,) = whole.store.list_claims(uuid=uuid)
        assert claim.damaged == ("created_at",)
        assert whole.store.abort_claim(uuid).state == "released"


KEYS = {
    *("id", "compute_node_id", "host", "hypervisor_hostname", "binary", "uuid", "address"),
    "agent_id",
}
"""Columns by which rows are found."""


@pytest.mark.parametrize("table", ["compute_nodes", "guests", "pci_devices"])
def test_the_next_audit_overwrites_all_that_is_damaged(fleet: Fleet, table: str) -> None:
    left = []
    for column in tables.metadata.tables[table].c:
        fleet.restore()
        if column.name in KEYS or not fleet.damage(column, garbage_for(column)[0]):
            continue
        fleet.audit()
        left += sum(fleet.list_damage(column.table), ())
    fleet.restore()
    assert left == []


_SET = ("disabled_", "forced_down_", "maintenance_")


def test_a_heartbeat_or_a_restart_overwrites_a_damaged_service(fleet: Fleet) -> None:
    left = []
    for column in tables.services.c:
        fleet.restore()
        if column.name in KEYS or not fleet.damage(column, garbage_for(column)[0]):
            continue
        try:
            fleet.store.report_state(fleet.scene.agents["alpha"], 10**6, AuditState())
        except FencedError:
            assert column.name in ("epoch", "report_count")
        take_service(fleet.store, "alpha", make_incarnation("nodetracker-compute of alpha"))
        left += sum(fleet.list_damage(tables.services), ())
    fleet.restore()
    # Those of administrators are written by `service set`.
    assert [name for name in left if not name.startswith(_SET)] == []


@pytest.mark.parametrize(
    ("column", "garbage"), [("memory_mb", "-1"), ("numa_topology", "'{'"), ("facts", "'1'")]
)
def test_placement_is_offered_nothing_of_a_damaged_row(
    whole: Fleet, column: str, garbage: str
) -> None:
    assert whole.damage(tables.compute_nodes.c[column], garbage)
    tree = describe_tree(whole.scene.record("a1"), False)
    classes = tree.providers[0].classes
    assert {"VCPU", "PGPU"} <= classes.keys()
    assert [name for name, found in classes.items() if found.grantable > 0] == []
