"""Migrations whose connection breaks after any statement, and migrations at the same time."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection import sessions
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.model.errors import RefusedError, SchemaError, StoreError, StoreUnavailableError
from nodetracker.model.service import SCHEMA_REVISION
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import add_options
from tests.next_schema import LAST, NEXT, add_revisions

_SCHEMA_CHANGES = ("CREATE", "ALTER", "DROP")
_CHANGES = (*_SCHEMA_CHANGES, "INSERT", "UPDATE", "DELETE")
_REVISIONS = (SCHEMA_REVISION, NEXT, LAST)
_numbers = itertools.count(1)

MakeUrl = Callable[[], str]


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """Return the URL of a new, empty database."""

    def make() -> str:
        name = f"nt_interrupted{next(_numbers)}"
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / name}"
        server: Any = request.getfixturevalue(request.param)
        return str(server.create_database(name))

    return make


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    add_revisions(monkeypatch)


@contextlib.contextmanager
def opened(url: str) -> Iterator[sa.Engine]:
    store = open_store(DatabaseSettings(url))
    yield store.engine
    store.close()


class Scissors:
    """Closes the connection of a migration after one of its statements.

    Attributes:
        changes: statements so far that change the schema or rows.
        is_cut: whether the last migration was interrupted.
        is_kept: whether the database has committed the statement before.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.changes = 0
        self.is_cut = self.is_kept = False
        self._engine = engine
        self._last = 0
        sa.event.listen(engine, "after_cursor_execute", self._count)

    def sync(self, revision: str, last: int) -> None:
        """Migrate, and cut after this number of changes, if there are as many."""
        self.changes, self._last, self.is_cut = 0, last, False
        try:
            revisions.sync(self._engine, revision)
        except StoreError:
            assert self.is_cut
        else:
            assert not self.is_cut
        finally:
            self._last = 0

    def sync_piecemeal(self, revision: str, is_long: bool = False) -> None:
        """Migrate by attempts that are each cut after the first statement that is not there yet.

        Args:
            is_long: there are too many statements: it is cut once.
        """
        if is_long:
            self.sync(revision, 7)
            assert self.is_cut
            revisions.sync(self._engine, revision)
            return
        last = 1
        while True:
            self.sync(revision, last)
            if not self.is_cut:
                return
            last = 1 if self.is_kept else last + 1

    def _count(self, connection: sa.Connection, cursor: Any, statement: str, *_: object) -> None:
        if not statement.lstrip().startswith(_CHANGES):
            return
        self.changes += 1
        if self.changes == self._last:
            self.is_cut = True
            has_autocommit = self._engine.dialect.name in ("mysql", "mariadb")
            self.is_kept = has_autocommit and statement.lstrip().startswith(_SCHEMA_CHANGES)
            cursor.close()
            dbapi_connection: Any = connection.connection.dbapi_connection
            dbapi_connection.close()


def fill_empty_tables(engine: sa.Engine) -> None:
    """Insert two rows into each table that has none."""
    names = sa.inspect(engine).get_table_names()
    with engine.begin() as connection:
        empty = [
            name
            for name in names
            if not connection.scalar(sa.select(sa.func.count()).select_from(sa.table(name)))
        ]
        metadata = sa.MetaData()
        metadata.reflect(connection, only=empty)
        for table in metadata.sorted_tables:
            if table.name not in empty:
                continue  # one that they refer to
            for number in (1, 2):
                row = {c.name: make_value(c, number) for c in table.c if c.computed is None}
                connection.execute(sa.insert(table).values(row))


def make_value(column: sa.Column[Any], number: int) -> object:
    kind = column.type
    if column.name in ("id", "compute_node_id"):
        return number
    if isinstance(kind, sa.DateTime):
        return datetime(2026, 1, number, tzinfo=UTC).replace(tzinfo=None)
    if isinstance(kind, sa.Double | sa.Float):
        return number + 0.5
    if isinstance(kind, sa.Boolean) or kind.as_generic().python_type is bool:
        return True
    if isinstance(kind, sa.Integer):
        return number % 2
    if isinstance(kind, sa.LargeBinary):
        return b"samples"
    if isinstance(kind, sa.Text) or getattr(kind, "length", None) is None:
        return "{}"
    return f"{column.name[:12]}-{number}"


def read_everything(engine: sa.Engine) -> dict[str, Any]:
    """Return what there is of each table, and its rows; {} without a revision."""
    if revisions.version(engine) is None:
        return {}
    found: dict[str, Any] = {}
    inspector = sa.inspect(engine)
    for (_, name), columns in inspector.get_multi_columns().items():
        found[name] = {"columns": sorted(map(str, columns))}
    for kind, of_tables in (
        ("indexes", inspector.get_multi_indexes()),
        ("uniques", inspector.get_multi_unique_constraints()),
        ("foreign keys", inspector.get_multi_foreign_keys()),
    ):
        for (_, name), things in of_tables.items():
            found[name][kind] = sorted(map(str, things))
    with engine.connect() as connection:
        for (_, name), columns in inspector.get_multi_columns().items():
            names = sorted(column["name"] for column in columns)
            rows = connection.execute(sa.select(*map(sa.column, names)).select_from(sa.table(name)))
            found[name]["rows"] = sorted(rows.all(), key=str)
    return found


def test_what_an_interruption_leaves_is_completed(make_url: MakeUrl, next_schema: None) -> None:
    complete, changes = {"base": {}}, {}
    with opened(make_url()) as engine:
        scissors = Scissors(engine)
        for revision in _REVISIONS:
            scissors.sync(revision, 0)
            changes[revision] = scissors.changes
            fill_empty_tables(engine)
            complete[revision] = read_everything(engine)
    pairs = [*itertools.pairwise(["base", *_REVISIONS])]
    with opened(make_url()) as engine:
        scissors = Scissors(engine)
        for before, revision in pairs:
            for last in (changes[revision] // 2, changes[revision] - 2):
                scissors.sync(revision, last)
                revisions.sync(engine, before)
                assert read_everything(engine) == complete[before], f"undone after {last} changes"
            scissors.sync_piecemeal(revision, is_long=before == "base")
            fill_empty_tables(engine)
            assert read_everything(engine) == complete[revision]
        for before, revision in reversed(pairs):
            for last in (changes[revision] // 2, changes[revision] - 2):
                scissors.sync(before, last)
                revisions.sync(engine, revision)
                fill_empty_tables(engine)
                assert read_everything(engine) == complete[revision], f"cut after {last} changes"
            scissors.sync_piecemeal(before, is_long=before == "base")
            assert read_everything(engine) == complete[before]


def test_a_table_of_another_program_is_not_taken_over(make_url: MakeUrl) -> None:
    with opened(make_url()) as engine:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE services (id BIGINT, host VARCHAR(9))"))
        with pytest.raises(SchemaError, match="table services exists already and has no column"):
            revisions.sync(engine)
        columns = sa.inspect(engine).get_columns("services")
        assert [column["name"] for column in columns] == ["id", "host"]


def test_migrations_at_the_same_time_wait_for_each_other(
    make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sessions, revisions):
        monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 60)  # the last one waits for two
    url = make_url()

    def migrate(_: int) -> None:
        with opened(url) as engine:
            revisions.sync(engine)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(migrate, range(3)))
    with opened(url) as engine:
        assert revisions.check(engine) == []


@pytest.mark.parametrize("make_url", ["mariadb", "postgresql"], indirect=True)
def test_a_wait_for_another_migration_ends_with_an_error_that_says_so(
    make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sessions, revisions):
        monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 2)
    # The client's own limit for a statement is shorter and does not apply.
    url = add_options(make_url(), read_timeout=1)
    with opened(url) as engine, opened(url) as other:
        refused = pytest.raises(RefusedError, match="another process is migrating the schema")
        with revisions._locked(other), refused:
            revisions.sync(engine)
        revisions.sync(engine)


def test_a_table_that_is_in_use_delays_a_migration_for_a_limited_time(
    mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch, next_schema: None
) -> None:
    monkeypatch.setattr(revisions, "LOCK_WAIT_SECONDS", 1)
    with opened(mariadb.create_database(f"nt_interrupted{next(_numbers)}")) as engine:
        revisions.sync(engine, SCHEMA_REVISION)
        with engine.begin() as connection:
            connection.execute(sa.text("SELECT id FROM compute_nodes"))
            with pytest.raises(StoreUnavailableError, match="Lock wait timeout"):
                revisions.sync(engine)
        revisions.sync(engine)


def test_a_cluster_without_named_locks_is_migrated(mariadb: MariaDB) -> None:
    with opened(mariadb.create_database(f"nt_interrupted{next(_numbers)}")) as engine:

        @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
        def refuse(
            connection: object, cursor: object, statement: str, parameters: object, *_: object
        ) -> tuple[str, object]:
            if "get_lock" in statement:
                return "SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1235", None
            return statement, parameters

        revisions.sync(engine)
        assert revisions.check(engine) == []
