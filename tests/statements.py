"""Count the statements that a store sends, and select what it writes.

An executemany is one statement; BEGIN and COMMIT are not counted.
"""

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


def select_written(table: sa.Table) -> "sa.Select[Any]":
    """Return the query of all rows, without the columns that the database computes."""
    return sa.select(*(column for column in table.c if column.computed is None))
