"""Delete old rows, in transactions of a limited number of rows each.

A transaction of all of them would hold the locks of their nodes for minutes, and
Galera rejects one that is too large.
"""

from collections.abc import Callable, Collection
from datetime import datetime

import sqlalchemy as sa

from nodetracker.db import history, host_warnings, provider_removals
from nodetracker.db.connection.engine import Database
from nodetracker.db.ledger import claims, migrations

PURGED_AT_ONCE = 1000

Purge = Callable[[sa.Connection, datetime, int], int]
"""Deletes at most as many rows as the last argument says; returns how many."""

_PURGES: dict[str, Purge] = {
    "history": history.purge,
    "warnings": host_warnings.purge,
    "migrations": migrations.purge,
    "claims": claims.purge,  # after migrations, which refer to them
    "provider_removals": provider_removals.purge,
}


def purge(
    database: Database, before: datetime, tables: Collection[str] = (), is_part: bool = False
) -> dict[str, int]:
    """See `Store.purge`."""
    return {
        name: _purge_table(database, delete, before, is_part)
        for name, delete in _PURGES.items()
        if name in (tables or _PURGES)
    }


def _purge_table(database: Database, delete: Purge, before: datetime, is_part: bool) -> int:
    deleted = 0
    while part := database.write(lambda c: delete(c, before, PURGED_AT_ONCE)):
        deleted += part
        if is_part:
            break
    return deleted
