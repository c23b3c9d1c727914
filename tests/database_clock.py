"""Let a test set a database's clock, and age what is stored."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.db.connection.dialect import SQLITE_NOW
from nodetracker.db.schema.tables import warnings
from nodetracker.db.store import SqlStore

_NOW = {
    "sqlite": (f"{SQLITE_NOW}()", "'{}'"),
    "mysql": ("UTC_TIMESTAMP(6)", "CAST('{}' AS DATETIME(6))"),
    "mariadb": ("UTC_TIMESTAMP(6)", "CAST('{}' AS DATETIME(6))"),
    "postgresql": ("timezone('utc', clock_timestamp())", "CAST('{}' AS timestamp)"),
}
"""Dialect -> how its statements read the time, and what they read instead."""


def set_clock(engine: sa.Engine, clock: Callable[[], datetime]) -> None:
    """Let every further statement of an engine read the time of `clock`."""
    read, literal = _NOW[engine.dialect.name]

    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def replace(
        connection: object,
        cursor: object,
        statement: str,
        parameters: Any,
        context: object,
        executemany: bool,
    ) -> tuple[str, Any]:
        now = clock().astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        return statement.replace(read, literal.format(now)), parameters


def age_warnings(store: SqlStore, by: timedelta) -> None:
    """Move the last time that each warning was seen into the past."""
    with store.engine.begin() as connection:
        for row in connection.execute(sa.select(warnings.c.id, warnings.c.last_seen)).all():
            connection.execute(
                sa.update(warnings)
                .where(warnings.c.id == row.id)
                .values(last_seen=row.last_seen - by)
            )
