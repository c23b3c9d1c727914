"""The migrations on real databases: up, down, up, and the same schema as the code's tables."""

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

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import SchemaError
from nodetracker.model.service import COMPUTE_BINARY, SCHEMA_REVISION, AuditState
from tests.builders import create, make_node, register
from tests.next_schema import LAST, NEXT, add_revisions

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


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    add_revisions(monkeypatch)


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


def test_the_migrated_schema_is_the_one_the_code_uses(store: SqlStore) -> None:
    revisions.sync(store.engine)
    assert revisions.check(store.engine) == []


def test_what_only_earlier_versions_need_stays_until_it_is_removed(
    store: SqlStore, next_schema: None
) -> None:
    def list_indexes() -> set[str | None]:
        return {index["name"] for index in sa.inspect(store.engine).get_indexes("claims")}

    former = "ix_claims_state_id"
    revisions.sync(store.engine)
    assert former not in list_indexes()
    revisions.sync(store.engine, SCHEMA_REVISION)
    assert former in list_indexes()
    with pytest.raises(
        SchemaError, match=f"{SCHEMA_REVISION}, this version needs {LAST}: run nodetracker-manage"
    ):
        revisions.contract(store.engine)
    revisions.sync(store.engine)
    assert former in list_indexes()
    assert revisions.serves_older(store.engine)
    before = revisions.check(store.engine)
    removed = ["column compute_nodes.mdev_types", f"index {former} of claims"]
    assert not [line for line in before if line.split(" is ")[0] in removed]
    assert sorted(revisions.contract(store.engine)) == removed
    assert former not in list_indexes()
    assert not revisions.serves_older(store.engine)
    assert revisions.contract(store.engine) == []


def test_the_version_s_revision_is_the_newest(store: SqlStore) -> None:
    revisions.sync(store.engine)
    assert revisions.version(store.engine) == SCHEMA_REVISION


def test_a_row_whose_writer_did_not_know_limits_is_stale(store: SqlStore) -> None:
    revisions.sync(store.engine)
    agent = register(store)
    store.apply_changes(agent, [create(agent, name) for name in ("n1", "n2", "n3")], 60)
    nodes = metadata.tables["compute_nodes"]
    with store.engine.begin() as connection:
        connection.execute(sa.update(nodes).where(nodes.c.id == 2).values(limits_generation=0))
        connection.execute(sa.update(nodes).where(nodes.c.id == 3).values(huge_mb_unused=None))
    records = store.load_nodes(agent.host)
    assert [record.has_stale_limits for record in records] == [False, True, True]


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_an_index_that_statements_name_is_never_missing(store: SqlStore, next_schema: None) -> None:
    """Earlier versions name it in a hint, and go on while the schema is migrated."""
    revisions.sync(store.engine)
    seen = []

    @sa.event.listens_for(store.engine, "after_cursor_execute")
    def look(connection: sa.Connection, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("ALTER", "CREATE", "DROP")):
            indexes = sa.inspect(connection).get_indexes("compute_nodes")
            seen.append("ix_compute_nodes_screening" in {index["name"] for index in indexes})

    revisions.sync(store.engine, SCHEMA_REVISION)
    revisions.sync(store.engine)
    assert seen
    assert all(seen)


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
    store: SqlStore, next_schema: None
) -> None:
    """Programs lock tables in any order, and one migration changes most of them."""
    revisions.sync(store.engine, SCHEMA_REVISION)
    make_node(store, host="alpha")
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
    assert revisions.version(store.engine) == LAST
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
    for revision in ("head", SCHEMA_REVISION, "base"):
        for call in (revisions.sync, revisions.make_plan):
            with pytest.raises(SchemaError, match=reason):
                call(store.engine, revision)


def test_a_revision_that_does_not_exist(store: SqlStore) -> None:
    with pytest.raises(SchemaError, match="'nonsense'; expected 0025, " + SCHEMA_REVISION):
        revisions.sync(store.engine, "nonsense")


def test_a_plan_says_what_would_be_done_and_deleted(store: SqlStore, next_schema: None) -> None:
    plan = revisions.make_plan(store.engine)
    assert (plan.before, plan.after, plan.is_downgrade) == (None, LAST, False)
    assert [step[:6] for step in plan.steps] == [
        f"{number:04}: " for number in range(25, int(LAST) + 1)
    ]
    assert plan.deletions == ()
    assert list_tables(store) == set()
    revisions.sync(store.engine, SCHEMA_REVISION)
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1"), create(agent, "n2")], 60)
    revisions.sync(store.engine)
    plan = revisions.make_plan(store.engine, SCHEMA_REVISION)
    assert (plan.before, plan.after, plan.is_downgrade) == (LAST, SCHEMA_REVISION, True)
    assert [step[:11] for step in plan.steps] == [f"undo {number}: " for number in (LAST, NEXT)]
    assert plan.deletions == (
        "table reservations, 0 rows",
        "of table claims, 0 rows: rack",
        "of table compute_nodes, 2 rows: mediated, rack",
        "of table services, 1 row: racks",
    )
    plan = revisions.make_plan(store.engine, "base")
    assert "table compute_nodes, 2 rows" in plan.deletions
    assert len(plan.deletions) == len(metadata.tables) + 1


def test_services_are_alive_by_their_heartbeats_at_any_revision(
    store: SqlStore, next_schema: None
) -> None:
    assert revisions.list_live_services(store.engine, 60) == []
    revisions.sync(store.engine)
    agent = register(store)
    store.report_state(agent, 1, AuditState())
    line = f"{agent.binary} on host {agent.host}"
    for revision in (LAST, SCHEMA_REVISION):
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
