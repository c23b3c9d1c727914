"""Let a test set a database's clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db.connection.dialect import SQLITE_NOW

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
