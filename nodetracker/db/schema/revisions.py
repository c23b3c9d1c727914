"""Bring a schema to a revision, and compare it with what this version expects.

Only these functions import alembic; the agent does not need it.
"""

import functools
import itertools
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from nodetracker.accounting.liveness import has_recent_heartbeat
from nodetracker.db.connection.dialect import MYSQL_NAMES, JsonText, UtcDateTime, utc_now
from nodetracker.db.connection.failures import (
    explain_older,
    is_deadlock,
    is_lock_wait,
    is_unsupported,
    translated,
)
from nodetracker.db.connection.sessions import LOCK_WAIT_SECONDS, WRITES
from nodetracker.db.connection.url import describe, sqlite_path
from nodetracker.db.schema import tables
from nodetracker.model.errors import RefusedError, SchemaError
from nodetracker.model.text import count_noun

if TYPE_CHECKING:
    from alembic.migration import MigrationContext
    from alembic.operations import MigrateOperation
    from alembic.script import Script, ScriptDirectory

HEAD = "head"
BASE = "base"

STATEMENT_SECONDS = 3600
"""How long a migration waits for one statement, which may rewrite a large table."""

LOCK_TABLES_SECONDS = 60
"""How long a migration tries to lock the tables that running programs use."""

LOCK_TABLES_ATTEMPT_SECONDS = 0.2
"""Longer than most transactions; short, so that many attempts are made beside busy programs."""

_ATTEMPTS = 5

_LOCK_NUMBER = 7_310_579_623_498_301_042  # of PostgreSQL's advisory lock: any that others lack

_MISSING, _SURPLUS = " is missing", " is not expected"

T = TypeVar("T")

Report = Callable[[int, int, str], None]
"""Receives how many revisions are done, how many there are, and which one runs now."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a migration would do.

    Attributes:
        before, after: revisions, None = no schema.
        steps: what each revision that will be run does, in order.
        deletions: what is deleted with its rows, one table a line.
    """

    before: str | None
    after: str | None
    is_downgrade: bool
    steps: tuple[str, ...]
    deletions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Path:
    """The way from one revision to another.

    What an interruption has left of another revision is dealt with first.

    Attributes:
        begun: the revision after the current one, to be undone; None for an upgrade.
        current: to be repeated, as it may be undone in part; None for a downgrade.
        scripts: the revisions to run, in order.
    """

    before: str | None
    after: str | None
    is_downgrade: bool
    begun: "Script | None"
    current: "Script | None"
    scripts: Sequence["Script"]

    @property
    def steps(self) -> tuple[str, ...]:
        """What each revision does."""
        undo = "undo " if self.is_downgrade else ""
        return tuple(f"{undo}{script.revision}: {script.doc}" for script in self.scripts)


def make_plan(engine: sa.Engine, revision: str = HEAD) -> Plan:
    """Return what `sync` would do; nothing is changed, and no file is created.

    Raises:
        SchemaError, StoreUnavailableError: as `sync`.
    """
    file = sqlite_path(engine.url) if engine.dialect.name == "sqlite" else None
    if file is not None and not file.exists():
        path = _find_path(revision, None, engine)
        return Plan(path.before, path.after, path.is_downgrade, path.steps, ())
    with translated(engine.url), engine.connect() as connection:
        path = _find_path(revision, _read_revision(connection), engine)
        deletions = tuple(_list_deletions(connection, path))
        return Plan(path.before, path.after, path.is_downgrade, path.steps, deletions)


def sync(
    engine: sa.Engine, revision: str = HEAD, report: Report = lambda done, total, doing: None
) -> None:
    """Upgrade the schema to `revision`, or downgrade it to an older one or ``base``.

    It completes what an interrupted migration has left, and waits for one that runs.

    Args:
        report: called before the first revision and after each one.

    Raises:
        SchemaError: no such revision, or the schema has one that this version
            does not know.
        RefusedError: another process is still migrating the schema.
        StoreUnavailableError: the database cannot be reached or written.
    """
    from alembic.migration import MigrationContext
    from alembic.runtime.migration import MigrationStep

    from nodetracker.db.schema.repeatable import repeatable

    def migrate(connection: sa.Connection) -> None:
        path = _find_path(revision, _read_revision(connection), engine)
        make_step = (
            MigrationStep.downgrade_from_script
            if path.is_downgrade
            else MigrationStep.upgrade_from_script
        )
        revision_map = _read_scripts().revision_map
        steps = [make_step(revision_map, script) for script in path.scripts]
        options = {
            "fn": lambda heads, context: steps,
            "on_version_apply": [_reporting(path.steps, report)],
        }
        context = MigrationContext.configure(connection, opts=options)
        if path.begun is not None or path.scripts:
            _lock_tables(connection)
        with repeatable(context):
            if path.begun is not None:
                path.begun.module.downgrade()
            if path.current is not None:
                path.current.module.upgrade()
            context.run_migrations()
            if path.before is None:  # no earlier version has used it
                _contract(path.scripts)

    _run_locked(engine, migrate)


def contract(engine: sa.Engine) -> list[str]:
    """Remove what earlier revisions need and this one does not; return what it was.

    Raises:
        SchemaError: the schema does not have the newest revision.
        RefusedError, StoreUnavailableError: as `sync`.
    """
    from alembic.migration import MigrationContext

    from nodetracker.db.schema.repeatable import repeatable

    def remove(connection: sa.Connection) -> list[str]:
        if problem := _explain_difference(_read_revision(connection)):
            raise SchemaError(problem)
        removed = [
            line.removesuffix(_SURPLUS)
            for item in _list_leftovers(connection)
            for line in _render(item)
        ]
        with repeatable(MigrationContext.configure(connection)):
            _contract(_list_oldest_first())
        return removed

    return _run_locked(engine, remove)


def serves_older(engine: sa.Engine) -> bool:
    """Return whether the schema has what only programs of revisions before this one need."""
    with translated(engine.url), engine.connect() as connection:
        return bool(_list_leftovers(connection))


def _list_oldest_first() -> "list[Script]":
    return [*_read_scripts().walk_revisions()][::-1]


def _contract(scripts: "Iterable[Script]") -> None:
    """Remove what only programs of revisions before each of these need."""
    for script in scripts:
        getattr(script.module, "contract", lambda: None)()


def _list_leftovers(connection: sa.Connection) -> list[Any]:
    """Return what `contract` would do, as alembic's differences."""
    from alembic.migration import MigrationContext

    from nodetracker.db.schema.repeatable import recorded

    with recorded(MigrationContext.configure(connection)) as operations:
        _contract(_list_oldest_first())
    return [item.to_diff_tuple() for item in operations]


def list_live_services(engine: sa.Engine, service_down_time: int) -> list[str]:
    """Return the services with a recent heartbeat, also without a schema.

    Args:
        service_down_time: seconds without a heartbeat after which a service is down.
    """
    services = tables.services.c
    with translated(engine.url), engine.connect() as connection:
        if not sa.inspect(connection).has_table("services"):
            return []
        query = sa.select(
            services.binary,
            services.host,
            services.created_at,
            services.last_seen_up,
            services.forced_down,
            services.epoch,
            services.ended_epoch,
            utc_now().label("now"),
        )
        found: Iterable[Any] = connection.execute(query)
        return sorted(
            f"{row.binary} on host {row.host}"
            for row in found
            if has_recent_heartbeat(row, row.now, service_down_time)
        )


def _run_locked(engine: sa.Engine, work: Callable[[sa.Connection], T]) -> T:
    """Run a migration, and again if it was ended for a deadlock with a service's transaction.

    Raises:
        RefusedError: as `_locked`.
    """
    with translated(engine.url):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with _locked(engine) as connection:
                    return work(connection)
            except Exception as error:
                if attempt == _ATTEMPTS or not is_deadlock(error):
                    raise
        raise AssertionError("unreachable")


@contextmanager
def _locked(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction that no other migration runs beside.

    On SQLite and PostgreSQL all of the migration is this transaction. The lock ends with
    the connection.

    Raises:
        RefusedError: another migration did not end in time.
    """
    with engine.connect() as connection:
        connection.execution_options(**{WRITES: True})  # SQLite locks the file
        if engine.dialect.name != "sqlite":
            connection.detach()  # closed at the end, with its settings and lock
            _wait_for_statements(connection)
        with connection.begin():
            if not _lock(connection):
                raise RefusedError(
                    f"{describe(engine.url)}: another process is migrating the schema; "
                    f"waited {LOCK_WAIT_SECONDS} s for it. Run db sync again when it has ended"
                )
            yield connection


def _wait_for_statements(connection: sa.Connection) -> None:
    """Let a statement take its time, unless it waits for the lock of a table."""
    driver: Any = connection.connection.dbapi_connection
    if hasattr(driver, "read_timeout"):  # of psycopg_connection and pymysql_connection
        driver.read_timeout = STATEMENT_SECONDS
    if connection.dialect.name in MYSQL_NAMES:  # a day by default
        connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
        connection.rollback()


def _lock(connection: sa.Connection) -> bool:
    """Return whether the database's lock on its schema was granted."""
    try:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
        elif connection.dialect.name in MYSQL_NAMES:
            database = sa.func.md5(sa.func.database())  # names are the server's, and short
            name = sa.func.concat("nodetracker ", database)
            return connection.scalar(sa.select(sa.func.get_lock(name, LOCK_WAIT_SECONDS))) == 1
    except Exception as error:
        if is_unsupported(error):  # some releases with Galera
            return True
        if is_lock_wait(error):
            return False
        raise
    return True


class _LockTables(sa.Executable, sa.ClauseElement):
    """``LOCK TABLE``: all at once, as round trips between them would be time for a deadlock."""

    inherit_cache = False

    def __init__(self, found: Sequence[sa.Table]) -> None:
        self.found = found


@compiles(_LockTables)
def _render_lock_tables(element: _LockTables, compiler: SQLCompiler, **options: Any) -> str:
    return "LOCK TABLE " + ", ".join(map(compiler.preparer.format_table, element.found))


def _lock_tables(connection: sa.Connection) -> None:
    """Lock all tables on PostgreSQL, where one transaction changes many of them.

    Programs use tables in any order, so that each table locked later could be a deadlock. A
    lock that is not granted within an attempt, before PostgreSQL looks for one, releases
    all others for a while.
    """
    if connection.dialect.name != "postgresql":
        return
    names = sa.inspect(connection).get_table_names()
    found = [table for name, table in sorted(tables.metadata.tables.items()) if name in names]
    last_start = time.monotonic() + LOCK_TABLES_SECONDS
    while found:
        try:
            with connection.begin_nested():
                connection.execute(_limit_lock_waits(LOCK_TABLES_ATTEMPT_SECONDS))
                connection.execute(_LockTables(found))
                connection.execute(_limit_lock_waits(LOCK_WAIT_SECONDS))
            return
        except Exception as error:
            if not is_lock_wait(error) or time.monotonic() >= last_start:
                raise
        time.sleep(random.uniform(0.02, 0.2))  # noqa: S311 - no secret


def _limit_lock_waits(seconds: float) -> "sa.Select[Any]":
    milliseconds = str(round(seconds * 1000))
    return sa.select(sa.func.set_config("lock_timeout", milliseconds, True))


def _find_path(revision: str, current: str | None, engine: sa.Engine) -> _Path:
    known = _list_oldest_first()
    places = {BASE: 0} | {script.revision: place for place, script in enumerate(known, 1)}
    newest = known[-1].revision
    if (current or BASE) not in places:
        raise SchemaError(f"{describe(engine.url)}: {_explain_unknown(current, newest)}")
    if revision not in (HEAD, *places):
        expected = ", ".join(dict.fromkeys((known[0].revision, newest)))
        raise SchemaError(f"no such revision: {revision!r}; expected {expected}, {HEAD} or {BASE}")
    at, to = places[current or BASE], places[newest if revision == HEAD else revision]
    return _Path(
        before=current,
        after=known[to - 1].revision if to else None,
        is_downgrade=to < at,
        begun=known[at] if to <= at < len(known) else None,
        current=known[at - 1] if 0 < at <= to else None,
        scripts=known[at:to] if at <= to else known[to:at][::-1],
    )


def _explain_unknown(found: str | None, newest: str | None) -> str:
    return explain_older(found) or (
        f"the schema has revision {found}, which this version of nodetracker does not know; it "
        f"knows revisions up to {newest}. Install the newer version, or downgrade the schema "
        f"with it: nodetracker-manage db sync {newest}"
    )


def _list_deletions(connection: sa.Connection, path: _Path) -> Iterator[str]:
    """Yield the tables that a downgrade deletes, then the tables of which it deletes columns."""
    from alembic.migration import MigrationContext
    from alembic.operations import ops

    from nodetracker.db.schema.repeatable import recorded

    operations: list[MigrateOperation]
    with recorded(MigrationContext.configure(connection)) as operations:
        for script in (path.begun, *(path.scripts if path.is_downgrade else ())):
            if script is not None:
                script.module.downgrade()
    dropped = [item.table_name for item in operations if isinstance(item, ops.DropTableOp)]
    columns: dict[str, list[str]] = defaultdict(list)
    for item in operations:
        if isinstance(item, ops.DropColumnOp) and item.table_name not in dropped:
            columns[item.table_name].append(item.column_name)

    def count_rows(table: str) -> str:
        query = sa.select(sa.func.count()).select_from(sa.table(table))
        return count_noun(connection.scalar(query) or 0, "row")

    for table in sorted(dropped):
        yield f"table {table}, {count_rows(table)}"
    for table, names in sorted(columns.items()):
        yield f"of table {table}, {count_rows(table)}: {', '.join(sorted(names))}"


def _reporting(steps: Sequence[str], report: Report) -> Callable[..., None]:
    """Return alembic's callback after each revision, after a report of the first one."""
    doings = iter([*steps[1:], ""])
    done = itertools.count(1)
    if steps:
        report(0, len(steps), steps[0])

    def on_version_apply(**_: object) -> None:
        report(next(done), len(steps), next(doings))

    return on_version_apply


def version(engine: sa.Engine) -> str | None:
    """Return the schema's revision, None when no schema exists yet."""
    with translated(engine.url), engine.connect() as connection:
        return _read_revision(connection)


def check(engine: sa.Engine) -> list[str]:
    """Return the differences between the schema and what this version expects, one a line."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with translated(engine.url), engine.connect() as connection:
        revision = _read_revision(connection)
        problem = _explain_difference(revision)
        if revision is None:
            return [problem]
        context = MigrationContext.configure(connection, opts={"compare_type": _is_type_different})
        with warnings.catch_warnings():
            # alembic cannot compare the expressions, as databases rewrite them.
            warnings.filterwarnings("ignore", "Computed default on")
            differences: list[Any] = compare_metadata(context, tables.metadata)
        found = [line for item in differences for line in _render(item)]
        leftovers = [line for item in _list_leftovers(connection) for line in _render(item)]
        return [*filter(None, [problem]), *(line for line in found if line not in leftovers)]


def _explain_difference(found: str | None) -> str:
    """Return how a schema's revision differs from the newest, "" if it does not."""
    known = [script.revision for script in _list_oldest_first()]
    head = known[-1]
    if found == head:
        return ""
    cure = "run nodetracker-manage db sync"
    if found is None:
        return f"no schema exists: {cure}"
    if found in known:
        return f"the schema has revision {found}, this version needs {head}: {cure}"
    return _explain_unknown(found, head)


def _render(item: Any) -> Iterator[str]:
    """Describe one of alembic's differences; those of one column are a list."""
    if isinstance(item, list):
        for part in item:
            yield from _render(part)
        return
    action, *details = item
    kind, _, noun = action.partition("_")
    if noun == "column":
        _, table, column = details
        yield f"column {table}.{column.name}{_MISSING if kind == 'add' else _SURPLUS}"
    elif kind == "modify":
        _, table, column, _, is_now, expected = details
        yield f"column {table}.{column}: {noun} is {is_now!r}, not {expected!r}"
    else:
        thing = details[0]
        name = getattr(thing, "name", None) or "without a name"
        table = getattr(thing, "table", None)
        place = "" if table is None or noun == "table" else f" of {table.name}"
        yield f"{noun} {name}{place}{_MISSING if kind == 'add' else _SURPLUS}"


def _is_type_different(
    context: "MigrationContext",
    found_column: object,
    column: object,
    found: sa.types.TypeEngine[Any],
    expected: sa.types.TypeEngine[Any],
) -> bool | None:
    """Compare types of this package's own columns, which alembic cannot."""
    if isinstance(expected, JsonText):
        return not isinstance(found, mysql.LONGTEXT if _is_mysql(context) else sa.Text)
    if isinstance(expected, UtcDateTime):
        has_microseconds = not _is_mysql(context) or getattr(found, "fsp", None) == 6
        return not (isinstance(found, sa.DateTime) and has_microseconds)
    return None  # alembic compares


def _is_mysql(context: "MigrationContext") -> bool:
    return context.dialect.name in MYSQL_NAMES


@functools.cache
def _read_scripts() -> "ScriptDirectory":
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(Path(__file__).parent))


def _read_revision(connection: sa.Connection) -> str | None:
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()
