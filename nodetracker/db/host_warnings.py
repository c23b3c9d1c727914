"""``warnings``: what an operator should look at, until it resolves itself."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from nodetracker.db.codec import WARNING_ITEM_LENGTH
from nodetracker.db.schema import tables
from nodetracker.db.sql import utc_now
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord

_warnings = tables.warnings.c


def sync_warnings(connection: sa.Connection, host: str, active: Sequence[HostWarning]) -> None:
    """See `Store.sync_warnings`. A warning that comes back keeps when it was first seen."""
    known = {
        (row.kind, row.nodename, row.item): row
        for row in connection.execute(
            sa.select(
                _warnings.id,
                _warnings.kind,
                _warnings.nodename,
                _warnings.item,
                _warnings.resolved_at,
            )
            .where(_warnings.host == host)
            .order_by(_warnings.id)
            .with_for_update()
        )
    }
    wanted = {
        (warning.kind.value, warning.nodename, warning.item[:WARNING_ITEM_LENGTH]): warning
        for warning in active
    }
    seen = [
        {"p_id": known[key].id, "p_message": warning.message}
        for key, warning in wanted.items()
        if key in known
    ]
    if seen:
        connection.execute(
            sa.update(tables.warnings)
            .where(_warnings.id == sa.bindparam("p_id"))
            .values(
                message=sa.bindparam("p_message"),
                last_seen=utc_now(),
                count=_warnings["count"] + 1,
                resolved_at=None,
            ),
            seen,
        )
    raised = [
        {"kind": kind, "nodename": nodename, "item": item, "message": warning.message}
        for (kind, nodename, item), warning in wanted.items()
        if (kind, nodename, item) not in known
    ]
    if raised:
        connection.execute(
            sa.insert(tables.warnings).values(
                host=host, first_seen=utc_now(), last_seen=utc_now(), count=1
            ),
            raised,
        )
    over = [row.id for key, row in known.items() if key not in wanted and row.resolved_at is None]
    if over:
        connection.execute(
            sa.update(tables.warnings).where(_warnings.id.in_(over)).values(resolved_at=utc_now())
        )


def list_warnings(connection: sa.Connection, host: str | None) -> list[WarningRecord]:
    """See `Store.list_warnings`."""
    query = sa.select(tables.warnings).order_by(_warnings.first_seen, _warnings.id)
    if host is not None:
        query = query.where(_warnings.host == host)
    return [
        WarningRecord(
            warning=HostWarning(
                WarningKind(row["kind"]), row["nodename"], row["item"], row["message"]
            ),
            host=row["host"],
            first_seen=row["first_seen"],
            last_seen=row["last_seen"],
            count=row["count"],
            resolved_at=row["resolved_at"],
        )
        for row in connection.execute(query).mappings()
    ]


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete what resolved itself earlier, and return how many."""
    resolved = sa.delete(tables.warnings).where(_warnings.resolved_at < before)
    return connection.execute(resolved).rowcount
