"""Rows in another order than the database's, where a statement defines none."""

import random
import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy

_INNER = re.compile(r"\([^()]*\)|'[^']*'")


def has_order(statement: str) -> bool:
    """Return whether a statement says in which order it returns its rows.

    >>> has_order("SELECT a FROM (SELECT b FROM c ORDER BY b)"), has_order("SELECT a ORDER BY a")
    (False, True)
    """
    count = 1
    while count:
        statement, count = _INNER.subn(" ", statement)
    return "ORDER BY" in statement.upper()


def shuffle_rows(seed: int) -> None:
    """Shuffle what all engines return from now on, unless the statement has an order."""
    source = random.Random(seed)

    def after_cursor_execute(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if cursor.description is None or context.isinsert or has_order(statement):
            return
        if not statement.lstrip("( ").upper().startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
            return
        if getattr(context, "_is_server_side", False):
            return
        rows = list(cursor.fetchall())
        source.shuffle(rows)
        context.cursor_fetch_strategy = FullyBufferedCursorFetchStrategy(
            cursor, initial_buffer=rows
        )

    sa.event.listen(sa.Engine, "after_cursor_execute", after_cursor_execute)
