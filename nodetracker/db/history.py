"""Store ``history``: one row for each change by an agent."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from nodetracker.db.codec import decode_row
from nodetracker.db.schema import tables
from nodetracker.db.statements import Listing, delete_part, matches, select_page
from nodetracker.model.change import ChangeKind, HistoryEntry
from nodetracker.model.listing import HistoryQuery, Page

_history = tables.history.c


def line(
    at: datetime,
    node_id: int,
    host: str,
    nodename: str,
    what: ChangeKind,
    diff: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build one row."""
    return {
        "at": at,
        "compute_node_id": node_id,
        "host": host,
        "nodename": nodename,
        "what": what.value,
        "diff": dict(diff or {}),
    }


def insert(connection: sa.Connection, lines: Sequence[dict[str, Any]]) -> None:
    """Insert rows with one statement; without rows, with none."""
    if lines:
        connection.execute(sa.insert(tables.history), list(lines))


def list_history_page(connection: sa.Connection, query: HistoryQuery) -> Page[HistoryEntry]:
    conditions = matches((_history.host, query.host), (_history.nodename, query.nodename))
    if query.since is not None:
        conditions.append(_history.at >= query.since)
    if query.until is not None:
        conditions.append(_history.at <= query.until)
    listing = Listing(
        table=tables.history,
        conditions=conditions,
        order=_history.at,
        is_descending=True,
    )
    return select_page(connection, query, listing, partial(decode_row, HistoryEntry))


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` older rows and return how many."""
    return delete_part(connection, tables.history, _history.at < before, limit)
