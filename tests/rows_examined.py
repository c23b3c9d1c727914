"""Record the statements of a store, each with the rows that MariaDB or PostgreSQL examined."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from nodetracker.db.schema.tables import metadata

_EXAMINED = {
    "mysql": (
        "SELECT SUM(IF(variable_name = 'Handler_icp_match', -1, 1) * variable_value)"
        " FROM information_schema.session_status WHERE variable_name LIKE 'Handler_read%'"
        " OR variable_name IN ('Handler_icp_attempts', 'Handler_icp_match')"
    ),
    # Of tables without an index, and of indexes, which need not read the table.
    "postgresql": (
        "SELECT sum(pg_stat_get_xact_tuples_returned(oid)) FROM pg_class"
        " WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace"
    ),
}


Plan = Callable[[Any, str, Any], Any]
"""Function of a driver's cursor, the statement and its parameters."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A statement that was carried out.

    Attributes:
        parameters: of the driver; the first ones of an executemany.
        rows: that were read from tables or indexes, 0 for what only inserts.
        plan: what the caller of `record_examined` found out before.
    """

    statement: str
    parameters: Any
    rows: int
    plan: Any = None


@contextmanager
def record_examined(
    store: Any, by_index: bool = False, plan: Plan | None = None
) -> Iterator[list[Examined]]:
    """Collect the statements of a store on MariaDB or PostgreSQL.

    Args:
        plan: called before each statement.
        by_index: PostgreSQL uses indexes of small tables too.
    """
    engine: sa.Engine = store.engine
    examined = _EXAMINED[engine.dialect.name]
    no_scan = by_index and engine.dialect.name == "postgresql"
    seen: list[Examined] = []

    def read(cursor: Any) -> int:
        with cursor.connection.cursor() as own:
            own.execute(examined)
            return int(own.fetchone()[0])

    def note_start(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if no_scan:
            with cursor.connection.cursor() as own:
                own.execute("SET LOCAL enable_seqscan = off")
        values = parameters[0] if many else parameters
        context.plan = None if plan is None else plan(cursor, statement, values)
        first = read(cursor)
        context.examined = 2 * read(cursor) - first  # without what counting examines

    def note_end(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        rows = read(cursor) - context.examined
        values = parameters[0] if many else parameters
        seen.append(Examined(statement, values, rows, context.plan))

    sa.event.listen(engine, "before_cursor_execute", note_start)
    sa.event.listen(engine, "after_cursor_execute", note_end)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", note_start)
        sa.event.remove(engine, "after_cursor_execute", note_end)


def analyze(store: Any) -> None:
    """Let the database count the rows of its tables."""
    engine: sa.Engine = store.engine
    command = {"mysql": "ANALYZE TABLE", "postgresql": "VACUUM ANALYZE", "sqlite": "ANALYZE"}
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in metadata.sorted_tables:
            connection.exec_driver_sql(f"{command[engine.dialect.name]} {table.name}")


def count_each(store: Any, act: Callable[[], Any]) -> list[int]:
    """Return how many rows each statement of an action examines when it is repeated."""
    act()  # the first time reads the sizes of the tables too
    with record_examined(store, by_index=True) as seen:
        act()
    return [one.rows for one in seen]


def count_examined(store: Any, act: Callable[[], Any]) -> int:
    """Return how many rows an action examines when the database knows the sizes of its tables."""
    analyze(store)
    return sum(count_each(store, act))
