"""No query of the store reads a whole table, except to list or to sum all of it.

Every method is called in a scene of many hosts, beside old rows, and the database explains
each statement when it is sent. What a call writes is undone.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.db.trends import pack
from nodetracker.model.claim import ACTIVE_STATES, ClaimState, MigrationStatus
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    ServiceQuery,
    WarningQuery,
    WorkloadQuery,
)
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState
from nodetracker.model.trend import Step, TrendQuery
from nodetracker.model.warning import WarningKind
from nodetracker.ports import CandidatePolicy, CredentialStore
from nodetracker.process.clock import utc_clock
from tests.bench.age.rows import add_past, copy_hosts
from tests.contract.scene import DOWN_TIME, Scene, ask, build, uuid_of
from tests.contract.stores import StoreMaker
from tests.contract.writes import WRITES
from tests.rows_examined import analyze, record_examined

T = TypeVar("T")

HOSTS = 400
PAST = 4_000
FULL = 1000
"""Rows of a table from which on reading them is reading the table; each has more."""

SECRETS = {name: name * 64 for name in "abcdef01"}


def credential_calls(scene: Scene) -> None:
    store = scene.store
    store.create_join_token(SECRETS["b"], "beta", 1, timedelta(hours=1), "admin")
    store.find_credential(SECRETS["1"], "127.0.0.1")
    store.renew_credential("beta", SECRETS["d"])
    store.find_credential(SECRETS["d"], "127.0.0.1")
    store.find_hosts(SECRETS.values())
    store.revoke_credential("beta")


def report_for_news(scene: Scene) -> None:
    heartbeat = {"agent": scene.agents["alpha"], "report_count": 2, "state": AuditState(1.0)}
    assert scene.store.report_for_news(SECRETS["a"], lambda _: heartbeat) is not None


def add_trends(store: SqlStore) -> None:
    """Add two weeks of hours of 256 nodes, and days."""
    now, nothing = store.now(), pack({})
    with store.engine.begin() as connection:
        rows = [
            {
                "seconds": found.seconds,
                "at": found.start_of(now - number * timedelta(seconds=found.seconds)),
                "part": part,
                "samples": nothing,
            }
            for found in Step
            for number in range(1, 337)
            for part in range(-1, 4)
        ]
        connection.execute(sa.insert(tables.trends), rows)


def pages(scene: Scene, method: str, *queries: Any) -> None:
    """Read the first two pages of lists, the second ones by the marker."""
    read = getattr(scene.store, method)
    for query in queries:
        page = read(query)
        if page.next is not None:
            read(dataclasses.replace(query, after=page.next))


def node_id(scene: Scene) -> int:
    return scene.record("a1").id


WHOLE = {
    "count_exclusions", "find_nearest", "join_agent", "list_credentials", "list_custom_traits", "list_gpus",
    "list_rooms", "purge", "read_overview", "resolve_warnings", "save_tolerances", "sample_trends", "sum_fleet",
}  # fmt: skip
"""Methods that read or write all of the fleet."""

Call = Callable[[Scene], Any]
CREDENTIALS = {name for name in dir(CredentialStore) if not name.startswith(("_", "list_"))} - WHOLE
PLACE = {"host": "alpha", "nodename": "n1"}
POLICY = CandidatePolicy(DOWN_TIME)
CALLS: list[tuple[str, Call]] = [
    *((write.method, write.call) for write in WRITES if write.method not in WHOLE),
    ("resolve_warnings", lambda s: s.store.resolve_warnings(WarningKind.CLOCK_SKEW, ["alpha"])),
    ("purge", lambda s: s.store.purge(s.store.now() + timedelta(seconds=1), is_part=True)),
    ("now", lambda s: s.store.now()),
    ("list_services", lambda s: s.store.list_services("alpha")),
    ("list_services", lambda s: s.store.list_services("alpha", COMPUTE_BINARY)),
    ("list_services", lambda s: s.store.list_services(binary=CONDUCTOR_BINARY)),
    ("list_outage_services", lambda s: s.store.list_outage_services(DOWN_TIME, "alpha")),
    ("find_service", lambda s: s.store.find_service(s.service("alpha").uuid)),
    ("load_nodes", lambda s: s.store.load_nodes("alpha")),
    ("load_nodes", lambda s: s.store.load_nodes("alpha", [node_id(s)])),
    ("load_hosts", lambda s: s.store.load_hosts(["alpha"])),
    ("load_versions", lambda s: s.store.load_versions("alpha", COMPUTE_BINARY)),
    ("sum_versions", lambda s: s.store.sum_versions("alpha", COMPUTE_BINARY)),
    ("list_nodes", lambda s: s.store.list_nodes("alpha")),
    ("list_expired_claims", lambda s: s.store.list_expired_claims("alpha", [uuid_of("web")])),
    ("list_split_brains", lambda s: s.store.list_split_brains("alpha")),
    ("list_claims", lambda s: s.store.list_claims("alpha")),
    ("list_claims", lambda s: s.store.list_claims(uuid=uuid_of("web a1"))),
    ("find_claims", lambda s: s.store.find_claims([uuid_of("web a1"), uuid_of("nobody")])),
    ("find_guests", lambda s: s.store.find_guests([uuid_of("web"), uuid_of("nobody")])),
    (
        "find_requirements",
        lambda s: s.store.find_requirements([uuid_of("web a1"), uuid_of("nobody")]),
    ),
    ("list_migrations", lambda s: s.store.list_migrations("alpha")),
    ("list_warnings", lambda s: s.store.list_warnings("alpha")),
    ("load_ledger_nodes", lambda s: s.store.load_ledger_nodes([node_id(s)])),
    ("find_candidates", lambda s: s.store.find_candidates(ask("fresh"), POLICY, 20)),
    ("list_device_page", lambda s: pages(s, "list_device_page", DeviceQuery(node_id=node_id(s)))),
    (
        "list_fleet",
        lambda s: pages(
            s,
            "list_fleet",
            FleetQuery(limit=20),
            FleetQuery(limit=20, counts_siblings=True),
            FleetQuery(limit=20, order="fullness"),
            FleetQuery(limit=20, order="fullness", is_descending=True),
            FleetQuery(limit=20, is_overcommitted=True),
            FleetQuery(host="alpha"),
            FleetQuery(host="alpha", has_warnings=True, with_count=True),
            FleetQuery(uuid=s.record("a1").uuid),
        ),
    ),
    (
        "list_service_page",
        lambda s: pages(s, "list_service_page", ServiceQuery(limit=20), ServiceQuery(host="alpha")),
    ),
    (
        "list_workloads",
        lambda s: pages(
            s,
            "list_workloads",
            WorkloadQuery(limit=20),
            WorkloadQuery(uuid=uuid_of("web")),
            WorkloadQuery(limit=2, **PLACE),
            WorkloadQuery(node_ids=(node_id(s),)),
        ),
    ),
    ("sum_hosts", lambda s: s.store.sum_hosts(["alpha", "nowhere"])),
    ("sum_usage", lambda s: s.store.sum_usage("alpha")),
    (
        "list_claim_page",
        lambda s: pages(
            s,
            "list_claim_page",
            ClaimQuery(limit=20),
            ClaimQuery(limit=20, is_descending=True),
            ClaimQuery(limit=20, states=ACTIVE_STATES),
            ClaimQuery(limit=20, states=(ClaimState.RELEASED,)),
            ClaimQuery(limit=2, **PLACE),
            ClaimQuery(limit=2, host="alpha", states=ACTIVE_STATES),
            ClaimQuery(workload_uuid=uuid_of("web")),
            ClaimQuery(uuid=uuid_of("web a1")),
            ClaimQuery(uuid_part=uuid_of("web a1")[:6], limit=5),
        ),
    ),
    (
        "list_migration_page",
        lambda s: pages(
            s,
            "list_migration_page",
            MigrationQuery(limit=20),
            MigrationQuery(limit=2, host="alpha"),
            MigrationQuery(workload_uuid=uuid_of("web")),
            MigrationQuery(limit=2, host="alpha", statuses=(MigrationStatus.DONE,)),
        ),
    ),
    (
        "list_history_page",
        lambda s: pages(
            s,
            "list_history_page",
            HistoryQuery(limit=20),
            HistoryQuery(limit=2, host="alpha"),
            HistoryQuery(limit=2, **PLACE),
            HistoryQuery(limit=2, host="alpha", until=s.cut),
        ),
    ),
    (
        "list_warning_page",
        lambda s: pages(
            s,
            "list_warning_page",
            WarningQuery(limit=20),
            WarningQuery(limit=20, is_resolved=False),
            WarningQuery(limit=2, host="alpha"),
        ),
    ),
    (
        "read_trend",
        lambda s: [
            s.store.read_trend(TrendQuery(step=Step.HOUR, node_id=found))
            for found in (None, node_id(s))
        ],
    ),
    (
        "read_node_hours",
        lambda s: s.store.read_node_hours([s.record("a1").uuid], s.store.now() - timedelta(days=1)),
    ),
    ("list_tolerances", lambda s: s.store.list_tolerances("alpha")),
    ("list_provider_removals", lambda s: s.store.list_provider_removals("alpha")),
    ("take_provider_removals", lambda s: s.store.take_provider_removals(RemovalQuery(limit=5))),
    ("find_answer", lambda s: s.store.find_answer("alpha", s.call_id)),
    (
        "create_call",
        lambda s: s.store.create_call("alpha", "host_power_action", {}, "x", timedelta(hours=1)),
    ),
    ("take_news", lambda s: s.store.take_news(s.agents["alpha"])),
    ("check_calls", lambda s: s.store.check_calls()),
    ("report_for_news", report_for_news),
    *((method, credential_calls) for method in CREDENTIALS),
]


class UndoneDatabase(Database):
    """Makes all transactions within one, which is undone."""

    connection: sa.Connection

    def _run_once(self, work: Callable[[sa.Connection], T], writes: bool) -> T:
        with self.connection.begin_nested():
            return work(self.connection)

    @contextmanager
    def undone(self) -> Iterator[None]:
        with self.engine.connect() as self.connection, self.connection.begin() as transaction:
            yield
            transaction.rollback()


def find_scans(cursor: Any, statement: str, parameters: Any) -> list[str]:
    """Return the tables that a statement may read as a whole, by the database's plan."""
    if statement.startswith(("INSERT", "SAVEPOINT", "RELEASE", "ROLLBACK")):
        return []
    with cursor.connection.cursor() as own:
        if hasattr(cursor.connection, "pgconn"):
            own.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
            return list(_list_scans(own.fetchone()[0][0]["Plan"], is_limited=False))
        own.execute(f"EXPLAIN {statement}", parameters)
        names = [column[0] for column in own.description]
        steps = [dict(zip(names, row, strict=True)) for row in own.fetchall()]
    return [
        step["table"]
        for step in steps
        if step["type"] in ("ALL", "index") and not step["table"].startswith("<")
    ]


def _list_scans(plan: dict[str, Any], is_limited: bool) -> Iterator[str]:
    kind = plan["Node Type"]
    by_index = kind in ("Index Scan", "Index Only Scan")
    if kind == "Seq Scan" or (by_index and "Index Cond" not in plan and not is_limited):
        yield plan.get("Alias", plan["Relation Name"])
    for part in plan.get("Plans", ()):
        yield from _list_scans(part, is_limited or kind == "Limit")


@pytest.fixture
def scene(stores: StoreMaker) -> Iterator[Scene]:
    """A scene of many hosts beside old rows, whose store undoes what it writes."""
    filled = stores.open()
    assert isinstance(filled, SqlStore)
    built = build(filled)
    built.call_id, _ = (
        filled.create_call(host, "host_power_action", {}, "api:c", timedelta(hours=1))
        for host in ("alpha", "beta")
    )
    filled.create_join_token(SECRETS["f"], None, 1, timedelta(hours=1), "admin")
    filled.create_join_token(SECRETS["e"], "alpha", 1, timedelta(hours=1), "admin")
    filled.join_agent(SECRETS["e"], "alpha", "agent", SECRETS["a"], "127.0.0.1")
    filled.find_credential(SECRETS["a"], "127.0.0.1")
    # The name and the agent of a host that joins are compared with those of all.
    filled.create_join_token(SECRETS["0"], "beta", 1, timedelta(hours=1), "admin")
    filled.join_agent(SECRETS["0"], "beta", "another", SECRETS["1"], "127.0.0.1")
    copy_hosts(filled.engine, HOSTS)
    add_past(filled.engine, PAST, PAST)
    add_trends(filled)
    analyze(filled)
    database = UndoneDatabase(DatabaseSettings(stores.url))
    yield dataclasses.replace(built, store=SqlStore(database, utc_clock))
    database.close()


@pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)
def test_no_query_reads_a_whole_table(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodetracker.db.store.PURGED_AT_ONCE", 100)  # few of each table
    database: UndoneDatabase = scene.store._database  # type: ignore[attr-defined]
    scans: dict[tuple[str, str], str] = {}
    for method, call in CALLS:
        with database.undone(), record_examined(scene.store, True, find_scans) as seen:
            call(scene)
        for one in seen:
            if one.rows >= FULL:
                scans |= {(method, table): one.statement for table in one.plan}
    for (method, table), statement in scans.items():
        print(method, table, "\n   ", statement.replace("\n", " ")[:900])
    assert scans.keys() == set()


def test_every_method_of_a_store_is_called() -> None:
    others = {
        "engine",
        "close",
        "limited",
        "rehearse",
        "count_old",
    }  # the latter, as purge, of whole tables
    own = {name for name in dir(SqlStore) if not name.startswith("_")} - others
    assert own - WHOLE <= {method for method, _ in CALLS}
