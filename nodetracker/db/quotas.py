"""Limit what a host stores through conductors, by the quotas of a connection."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.change import NodeChange

if TYPE_CHECKING:  # more than the commands that only read need
    from nodetracker.accounting.audit.decisions import LockedRow
    from nodetracker.model.settings import Quotas

QUOTAS = "nodetracker_quotas"
"""Execution option of the connections that carry out calls of agents."""

_nodes = tables.compute_nodes.c


def quotas_of(connection: sa.Connection) -> "Quotas | None":
    """Return what limits the calls of a connection, None if nothing does."""
    found: Quotas | None = connection.get_execution_options().get(QUOTAS)
    return found


def find_excess(
    connection: sa.Connection, host: str, changes: Sequence[NodeChange], rows: "Sequence[LockedRow]"
) -> dict[str, str]:
    """Return nodename -> quota that a change exceeds; those that add nothing are not looked at.

    Args:
        changes: with records as they are stored.
        rows: those that the changes name, which are locked.
    """
    quotas = quotas_of(connection)
    if quotas is None:
        return {}
    return {
        **_find_guests(changes, quotas.max_guests_per_node),
        **_find_nodes(connection, host, changes, rows, quotas.max_nodes_per_host),
    }


def _find_nodes(
    connection: sa.Connection,
    host: str,
    changes: Sequence[NodeChange],
    rows: "Sequence[LockedRow]",
    most: int,
) -> dict[str, str]:
    known = {row.nodename for row in rows if row.host == host}
    new = [c.nodename for c in changes if c.record is None and c.nodename not in known]
    if not new or not most:
        return {}
    query = sa.select(sa.func.count()).where(_nodes.host == host)
    stored: int = connection.execute(query).scalar_one()
    refused = new[max(0, most - stored) :]
    number = stored + len(new)
    reason = (
        f"nodes of host {host}: {number} items, more than {most} ([conductor] max_nodes_per_host)"
    )
    return dict.fromkeys(refused, reason)


def _find_guests(changes: Sequence[NodeChange], most: int) -> dict[str, str]:
    """Compare guests by the records of changes, without which no change is written."""
    excess = {}
    stored: dict[int, set[str]] = {}
    for change in changes:
        if not change.guests.added or not most:
            continue
        record = change.record
        before = set[str]() if record is None else stored.get(record.id, set(record.guests))
        after = before.difference(guest.uuid for guest in change.guests.removed)
        after.update(guest.uuid for guest in change.guests.added)
        if record is not None:
            stored[record.id] = after
        if len(after) > max(most, len(before)):
            excess[change.nodename] = (
                f"guests: {len(after)} items, more than {most} ([conductor] max_guests_per_node)"
            )
    return excess
