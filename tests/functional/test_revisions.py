"""The migrations on real databases: up, down, up, and the same schema as the code's tables."""

import dataclasses
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.node_limits import NodeLimits
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import SchemaError
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import FACT_NAMES
from nodetracker.model.service import COMPUTE_BINARY, SCHEMA_REVISION, AuditState
from tests.builders import (
    NOW,
    ask,
    claim,
    create,
    make_guest,
    make_node,
    make_values,
    move,
    register,
)

LIMIT_COLUMNS = (
    *(item.name for item in dataclasses.fields(NodeLimits) if item.name != "huge_mb_unused"),
    "limits_generation",
)

_numbers = itertools.count(1)


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """A store on an empty database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'nt.sqlite'}"
    else:
        server: Any = request.getfixturevalue(request.param)
        url = server.create_database(f"nt_migration{next(_numbers)}")
    store = open_store(DatabaseSettings(url))
    yield store
    store.close()


def list_tables(store: SqlStore) -> set[str]:
    return set(sa.inspect(store.engine).get_table_names()) - {"alembic_version"}


def test_up_down_and_up_again(store: SqlStore) -> None:
    assert revisions.version(store.engine) is None
    revisions.sync(store.engine)
    assert revisions.version(store.engine) == SCHEMA_REVISION
    assert list_tables(store) == set(metadata.tables)
    revisions.sync(store.engine, "base")
    assert revisions.version(store.engine) is None
    assert list_tables(store) == set()
    revisions.sync(store.engine)
    revisions.sync(store.engine)
    revisions.sync(store.engine, SCHEMA_REVISION)
    assert revisions.version(store.engine) == SCHEMA_REVISION
    assert register(store).epoch == 1


def test_rows_of_the_schema_before_tell_nothing_of_engines(store: SqlStore) -> None:
    revisions.sync(store.engine)
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1", guests=(make_guest(),))], 60)
    revisions.sync(store.engine, "0002")
    revisions.sync(store.engine)
    (record,) = store.load_nodes(agent.host)
    assert record.values.engine == {}
    assert [guest.details for guest in record.guests.values()] == [{}]


def test_limits_and_places_of_nodes_are_filled_as_agents_write_them(store: SqlStore) -> None:
    revisions.sync(store.engine)
    agent = register(store)
    away = FactEntry(FactState.UNKNOWN, "test", NOW)
    unseen = dataclasses.replace(away, state=FactState.HELD, unseen_kinds=tuple(WorkloadKind))
    values = [
        make_values(),
        make_values(tracks_resources=False, reserved={}, overhead={"memory_mb": 7}),
        make_values(reserved={"vcpus": 2, "memory_mb": 100, "disk_mb": 5}, vcpus=2**20),
        make_values(facts=dict.fromkeys(FACT_NAMES, away)),
        make_values(facts={"guests": unseen}),
    ]
    store.apply_changes(agent, [create(agent, f"n{i}", v) for i, v in enumerate(values)], 60)
    columns = metadata.tables["compute_nodes"].c
    limits = sa.select(*(columns[name] for name in (*LIMIT_COLUMNS, "place"))).order_by(columns.id)
    with store.engine.connect() as connection:
        written = connection.execute(limits).all()
    assert len(set(written)) == len(values)
    revisions.sync(store.engine, "0005")
    revisions.sync(store.engine)
    with store.engine.connect() as connection:
        assert connection.execute(limits).all() == written


def test_the_migrated_schema_is_the_one_the_code_uses(store: SqlStore) -> None:
    revisions.sync(store.engine)
    assert revisions.check(store.engine) == []


def test_what_only_earlier_versions_need_stays_until_it_is_removed(store: SqlStore) -> None:
    def list_indexes() -> set[str | None]:
        return {index["name"] for index in sa.inspect(store.engine).get_indexes("compute_nodes")}

    former = "ix_compute_nodes_candidates"
    revisions.sync(store.engine)
    assert former not in list_indexes()
    revisions.sync(store.engine, "0011")
    assert former in list_indexes()
    with pytest.raises(
        SchemaError, match=f"0011, this version needs {SCHEMA_REVISION}: run nodetracker-manage"
    ):
        revisions.contract(store.engine)
    revisions.sync(store.engine)
    assert former in list_indexes()
    assert revisions.check(store.engine) == []
    assert sorted(revisions.contract(store.engine)) == [
        "column compute_nodes.instance_memory_mb_claimable",
        f"index {former} of compute_nodes",
    ]
    assert former not in list_indexes()
    assert revisions.check(store.engine) == []
    assert revisions.contract(store.engine) == []


def test_the_version_s_revision_is_the_newest(store: SqlStore) -> None:
    revisions.sync(store.engine)
    assert revisions.version(store.engine) == SCHEMA_REVISION


def test_rows_that_have_limits_are_current_and_those_without_are_stale(store: SqlStore) -> None:
    revisions.sync(store.engine)
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1"), create(agent, "n2")], 60)
    revisions.sync(store.engine, "0011")
    nodes = sa.table("compute_nodes", *map(sa.column, LIMIT_COLUMNS[:-1]), sa.column("id"))
    with store.engine.begin() as connection:
        statement = sa.update(nodes).where(nodes.c.id == 2)
        connection.execute(statement.values(dict.fromkeys(LIMIT_COLUMNS[:-1], 0)))
    revisions.sync(store.engine)
    assert [record.has_stale_limits for record in store.load_nodes(agent.host)] == [True, True]
    with store.engine.begin() as connection:  # rows of revision 0022 and before know no pages
        connection.execute(sa.update(metadata.tables["compute_nodes"]).values(huge_mb_unused=0))
    records = store.load_nodes(agent.host)
    assert [record.has_stale_limits for record in records] == [False, True]


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_an_index_that_statements_name_is_never_missing(store: SqlStore) -> None:
    """Earlier versions name it in a hint, and go on while the schema is migrated."""
    revisions.sync(store.engine)
    seen = []

    @sa.event.listens_for(store.engine, "after_cursor_execute")
    def look(connection: sa.Connection, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("ALTER", "CREATE", "DROP")):
            indexes = sa.inspect(connection).get_indexes("compute_nodes")
            seen.append("ix_compute_nodes_screening" in {index["name"] for index in indexes})

    revisions.sync(store.engine, "0016")
    revisions.sync(store.engine)
    assert seen
    assert all(seen)


def test_migrations_of_renamed_hosts_name_those_of_now(store: SqlStore) -> None:
    revisions.sync(store.engine)
    for host in ("alpha", "beta"):
        make_node(store, host=host)
    migrations = [move(store, claim(store, ask(VCPU=1)), "beta") for _ in range(2)]
    renamed = sa.update(metadata.tables["compute_nodes"]).where(sa.column("host") == "alpha")
    names = {"host": "omega", "hypervisor_hostname": "omega"}
    with store.engine.begin() as connection:
        connection.execute(renamed.values(names))  # as versions before did, by their nodes alone
    revisions.sync(store.engine, "0014")
    revisions.sync(store.engine)
    assert store.list_migrations() == [
        dataclasses.replace(item, source_host="omega", source_node="omega") for item in migrations
    ]


@pytest.mark.parametrize("store", ["mariadb", "postgresql"], indirect=True)
def test_a_migration_that_was_ended_for_a_deadlock_runs_again(store: SqlStore) -> None:
    deadlock = {
        "mysql": pymysql.OperationalError(1213, "Deadlock found when trying to get lock"),
        "postgresql": psycopg.errors.DeadlockDetected("deadlock detected"),
    }
    failures = [deadlock[store.engine.dialect.name]] * 2

    @sa.event.listens_for(store.engine, "before_cursor_execute")
    def fail(connection: object, cursor: object, statement: str, *_: object) -> None:
        if failures and "ix_claims" in statement:
            raise failures.pop()

    revisions.sync(store.engine)
    assert failures == []
    assert revisions.check(store.engine) == []


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_migration_beside_running_programs_ends_no_transaction_for_a_deadlock(
    store: SqlStore,
) -> None:
    """Programs lock tables in any order, and one migration changes most of them."""
    revisions.sync(store.engine)
    make_node(store, host="alpha")
    revisions.sync(store.engine, "0009")
    is_done, errors = threading.Event(), []

    @sa.event.listens_for(store.engine, "handle_error")
    def note(context: Any) -> None:
        errors.append(type(context.original_exception).__name__)

    def work(*names: str) -> int:
        done = 0
        while not is_done.is_set():
            with store.engine.begin() as connection:
                for name in names:
                    connection.execute(sa.text(f"SELECT id FROM {name}"))
                    time.sleep(0.02)
            done += 1
        return done

    with ThreadPoolExecutor(2) as pool:
        orders = (("services", "compute_nodes"), ("compute_nodes", "claims", "services"))
        running = [pool.submit(work, *names) for names in orders]
        try:
            revisions.sync(store.engine)
        finally:
            is_done.set()
        assert all(item.result() for item in running)
    assert revisions.check(store.engine) == []
    assert set(errors) <= {"LockNotAvailable"}


def test_check_says_in_words_what_differs(store: SqlStore) -> None:
    assert revisions.check(store.engine) == ["no schema exists: run nodetracker-manage db sync"]
    revisions.sync(store.engine)
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE pci_devices"))
        connection.execute(sa.text("ALTER TABLE compute_nodes DROP COLUMN labels"))
        connection.execute(sa.text("ALTER TABLE services ADD COLUMN colour VARCHAR(10)"))
    lines = revisions.check(store.engine)
    assert "table pci_devices is missing" in lines
    assert "column compute_nodes.labels is missing" in lines
    assert "column services.colour is not expected" in lines


def test_a_schema_of_a_newer_version_is_refused_with_both_revisions(store: SqlStore) -> None:
    revisions.sync(store.engine)
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    reason = (
        "the schema has revision 9999, which this version of nodetracker does not know; it knows "
        f"revisions up to {SCHEMA_REVISION}. Install the newer version, or downgrade the schema with it: "
        f"nodetracker-manage db sync {SCHEMA_REVISION}"
    )
    assert reason in revisions.check(store.engine)
    for revision in ("head", "0008", "base"):
        for call in (revisions.sync, revisions.make_plan):
            with pytest.raises(SchemaError, match=reason):
                call(store.engine, revision)


def test_a_revision_that_does_not_exist(store: SqlStore) -> None:
    with pytest.raises(
        SchemaError, match=f"'nonsense'; expected 0001 to {SCHEMA_REVISION}, head or base"
    ):
        revisions.sync(store.engine, "nonsense")


def test_a_plan_says_what_would_be_done_and_deleted(store: SqlStore) -> None:
    plan = revisions.make_plan(store.engine)
    assert (plan.before, plan.after, plan.is_downgrade) == (None, SCHEMA_REVISION, False)
    assert [step[:6] for step in plan.steps] == [
        f"{number:04}: " for number in range(1, int(SCHEMA_REVISION) + 1)
    ]
    assert plan.deletions == ()
    assert list_tables(store) == set()
    revisions.sync(store.engine)
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1"), create(agent, "n2")], 60)
    plan = revisions.make_plan(store.engine, "0006")
    assert (plan.before, plan.after, plan.is_downgrade) == (SCHEMA_REVISION, "0006", True)
    assert [step[:11] for step in plan.steps] == [
        f"undo {number:04}: " for number in range(int(SCHEMA_REVISION), 6, -1)
    ]
    assert plan.deletions == (
        "table agent_credentials, 0 rows",
        "table host_calls, 0 rows",
        "table join_tokens, 0 rows",
        "table provider_removals, 0 rows",
        "table trends, 0 rows",
        "of table compute_nodes, 2 rows: capacity_seen, disk_mb_claimable, huge_mb_unused, limits_generation, "
        "memory_mb_claimable, ordinary_mb_free, pcpus_claimable, place, vcpu_milli_claimable",
        "of table history, 3 rows: kind",
        "of table services, 1 row: calls, disabled_at, disabled_by, forced_down_at, forced_down_by, "
        "forced_down_reason",
        "of table warnings, 0 rows: earlier, silenced_by, silenced_reason, silenced_until",
    )
    assert revisions.check(store.engine) == []
    plan = revisions.make_plan(store.engine, "base")
    assert "table compute_nodes, 2 rows" in plan.deletions
    assert len(plan.deletions) == len(metadata.tables)


def test_services_are_alive_by_their_heartbeats_at_any_revision(store: SqlStore) -> None:
    assert revisions.list_live_services(store.engine, 60) == []
    revisions.sync(store.engine)
    agent = register(store)
    store.report_state(agent, 1, AuditState())
    line = f"{agent.binary} on host {agent.host}"
    for revision in (SCHEMA_REVISION, "0003"):
        revisions.sync(store.engine, revision)
        assert revisions.list_live_services(store.engine, 60) == [line]
        assert revisions.list_live_services(store.engine, -1) == []
    revisions.sync(store.engine)
    store.report_state(agent, 2, AuditState(), is_last=True)
    assert revisions.list_live_services(store.engine, 60) == []


def test_without_schema_every_call_says_what_to_run(store: SqlStore) -> None:
    for call in (
        lambda: store.load_versions("alpha", COMPUTE_BINARY),
        lambda: register(store),
        lambda: store.list_warnings(),
    ):
        with pytest.raises(SchemaError, match="run nodetracker-manage db sync") as caught:
            call()
        assert "\n" not in str(caught.value)
        assert "SELECT" not in str(caught.value)


def test_a_missing_column_is_a_matter_of_the_schema(store: SqlStore) -> None:
    revisions.sync(store.engine)
    with store.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE compute_nodes DROP COLUMN labels"))
        connection.execute(sa.text("ALTER TABLE services DROP COLUMN disabled_reason"))
    for call in (lambda: store.list_nodes(), lambda: register(store)):
        with pytest.raises(SchemaError, match="db sync"):
            call()


def test_migrations_name_nothing_of_this_version_s_code() -> None:
    paths = [*(Path(revisions.__file__).parent / "versions").glob("0*.py")]
    assert paths
    for path in paths:
        assert "nodetracker" not in path.read_text()


def test_the_agent_loads_no_alembic() -> None:
    program = (
        "import sys, nodetracker.db.store, nodetracker.db.schema.revisions;"
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL)
