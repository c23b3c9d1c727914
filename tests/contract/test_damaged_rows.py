"""No stored value fails a reader, whatever it is: each column of each table, one by one.

Every column of a row gets values by SQL that it may not have. Then the host's agent
audits, every method that reads is called, every resource of the REST service is read,
and all metrics are rendered, with little memory. `-s` prints how many of each there were.
"""

import itertools
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
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
from nodetracker.metrics.fleet import render_page
from nodetracker.metrics.nodes import render_nodes
from nodetracker.model.candidate import CandidateOrder
from nodetracker.model.claim import PlacedRequest
from nodetracker.model.credential import hash_secret
from nodetracker.model.errors import NodetrackerError
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
from nodetracker.model.node import NODE_COLUMNS, NODE_TIMES, HostSnapshot, NodeListing
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.model.pci import PciDevice
from nodetracker.model.service import AuditState
from nodetracker.model.settings import AgentSettings, CandidatePolicy, Policy
from nodetracker.model.trend import Step, TrendQuery
from nodetracker.usecases.scheduler import Scheduler
from nodetracker.views.problems import view_fleet
from tests.builders import make_snapshot
from tests.contract.scene import POLICY, Scene, ask, build, list_guests, node_uuid, uuid_of
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api, make_backend

MEMORY = 600 * 2**20
"""Bytes that readers may take beside what the test has."""

SECRET = hash_secret("of alpha")
ROWS = {
    "compute_nodes": "host = 'alpha' AND hypervisor_hostname = 'n1'",
    "services": "host = 'alpha' AND binary = 'nodetracker-compute'",
    "claims": f"uuid = '{uuid_of('web b2')}'",
    "migrations": f"uuid = '{uuid_of('move of web')}'",
    "warnings": "host = 'alpha'",
    "guests": f"uuid = '{uuid_of('bare')}'",
}
"""Table -> which row is damaged, of other tables the first."""

FENCE = {"host", "binary", "uuid", "agent_id", "epoch", "report_count"}
"""Columns of a services row by which an agent knows that it is still its own."""

EVERY = bool(os.environ.get("NODETRACKER_DAMAGE"))
"""Whether each column gets everything that it may not have, and not one thing of it."""

NUMBERS = ("4611686018427387904", "-4611686018427387904", "1e300", "'[[['", "x'ff'")
TEXTS = (f"'{'x' * 100_000}'", "x'ff00'", "''", "char(10, 27)")
TIMES = ("'[[['", "4611686018427387904", "'9999-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.0'")
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
    """All that reads a store: one agent, methods, REST and metrics."""

    def __init__(self) -> None:
        self.store = SqliteStore()
        self.scene: Scene = build(self.store)
        store = self.store
        for host in ("alpha", "beta"):
            token = hash_secret(f"token of {host}")
            store.create_join_token(token, host, 2, timedelta(hours=1), "admin")
            store.join_agent(token, host, f"agent of {host}", hash_secret(f"of {host}"), "")
            store.find_credential(hash_secret(f"of {host}"), "")
        store.create_call("alpha", "audit", {}, "test", timedelta(minutes=9))
        self.audit()
        for label in ("a1", "g1"):
            self.scene.record(label)
        store.sample_trends()
        self.store.raise_warning("beta", next(iter(store.list_warnings("alpha"))).warning)
        self.api = Api(make_backend(store))
        self.paths = tuple(list_paths(store))
        self.saved = store.save()

    def audit(self) -> Any:
        """Audit alpha as its agent does after a start."""
        settings = AgentSettings(host="alpha", state_path="", policy=Policy(), probe_timeout=60)
        tracker = ResourceTracker(settings, Machine(), self.store)  # type: ignore[arg-type]
        report = tracker.audit(self.scene.agents["alpha"], False)
        assert report.store_error is None, report
        return report

    def damage(self, column: sa.Column[Any], garbage: str) -> bool:
        """Write garbage into one row; return whether the database takes it."""
        table = column.table
        where = ROWS.get(table.name, f"id = (SELECT min(id) FROM {table.name})")
        try:
            with self.store.engine.begin() as connection:
                connection.exec_driver_sql(
                    f'UPDATE {table.name} SET "{column.name}" = {garbage} '
                    f"WHERE id = (SELECT min(id) FROM {table.name} WHERE {where})"
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
        yield "sum_usage", store.sum_usage
        yield "list_claims", store.list_claims
        yield "list_claim_page", lambda: store.list_claim_page(ClaimQuery())
        yield "list_migrations", store.list_migrations
        yield "list_migration_page", lambda: store.list_migration_page(MigrationQuery())
        yield "list_history_page", lambda: store.list_history_page(HistoryQuery())
        yield "list_warnings", store.list_warnings
        yield "list_warning_page", lambda: store.list_warning_page(WarningQuery())
        yield "list_device_page", lambda: store.list_device_page(DeviceQuery(node_id=ids[0]))
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
        api = self.api
        for path in self.paths:
            yield f"GET {path}", partial(check_get, api, path)
        yield "abort_claim", lambda: store.abort_claim(uuid_of("web b2"))


def list_paths(store: SqliteStore) -> Iterator[str]:
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


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit the memory that the process may take beside what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


_numbers = itertools.count()


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet()


def read_everything(fleet: Fleet, counted: Counter[str]) -> list[str]:
    """Call the agent first and then every other reader; return what failed."""
    failed = []
    for name, read in itertools.chain([("audit", fleet.audit)], fleet.readers()):
        try:
            read()
        except NodetrackerError:
            counted["refused"] += 1
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}"[:300])
        counted["reads"] += 1
    return failed


@pytest.mark.parametrize("table", tables.metadata.sorted_tables, ids=str)
def test_no_stored_value_fails_a_reader(fleet: Fleet, table: sa.Table) -> None:
    counted: Counter[str] = Counter()
    failed: list[str] = []
    with limited_memory():
        for place, column in enumerate(table.c):
            known = garbage_for(column)
            for garbage in known if EVERY else [known[place % len(known)]]:
                fleet.store.restore(fleet.saved)
                if not fleet.damage(column, garbage):
                    counted["not stored"] += 1
                    continue
                counted["stored"] += 1
                found = read_everything(fleet, counted)
                failed += [f"{column} = {garbage[:40]}: {line}" for line in found]
    fleet.store.restore(fleet.saved)
    print(f"\n{table}: {len(table.c)} columns, {dict(counted)}")
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(failed[:60])


def test_the_scene_is_not_damaged(fleet: Fleet) -> None:
    fleet.store.restore(fleet.saved)
    damaged = {
        str(table): found
        for table in tables.metadata.sorted_tables
        if any(found := fleet.list_damage(table))
    }
    assert damaged == {}
    assert read_everything(fleet, Counter()) == []
