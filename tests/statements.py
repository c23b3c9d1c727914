"""Count the statements that a store sends, and select what it writes.

An executemany is one statement; BEGIN and COMMIT are not counted.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa


@dataclass
class SeenStatements:
    """The statements sent so far, in order."""

    statements: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.statements)


@contextmanager
def count_statements(source: Any) -> Iterator[SeenStatements]:
    """Collect the statements of `source`, an engine or a store that has one."""
    engine: sa.Engine = getattr(source, "engine", source)
    seen = SeenStatements()

    def note(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if not statement.upper().startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            seen.statements.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


@contextmanager
def time_statements(engine: sa.Engine) -> Iterator[dict[str, list[float]]]:
    """Collect the seconds that each statement of an engine takes until its answer is read."""
    spent: dict[str, list[float]] = {}
    started_at = 0.0

    def start(*arguments: Any) -> None:
        nonlocal started_at
        started_at = time.perf_counter()

    def end(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        spent.setdefault(statement, []).append(time.perf_counter() - started_at)

    sa.event.listen(engine, "before_cursor_execute", start)
    sa.event.listen(engine, "after_cursor_execute", end)
    try:
        yield spent
    finally:
        sa.event.remove(engine, "before_cursor_execute", start)
        sa.event.remove(engine, "after_cursor_execute", end)


def select_written(table: sa.Table) -> "sa.Select[Any]":
    """Return the query of all rows, without the columns that the database computes."""
    return sa.select(*(column for column in table.c if column.computed is None))
