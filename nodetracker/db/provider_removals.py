"""Store ``provider_removals``: providers of deleted nodes, and their removal by lease."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from nodetracker.db.codec import decode_row
from nodetracker.db.connection.dialect import read_time, utc_now
from nodetracker.db.schema import tables
from nodetracker.db.statements import count_rows, delete_part, matches
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY

_removals = tables.provider_removals.c
_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_services = tables.services.c


def record_deletion(connection: sa.Connection, node_ids: Sequence[int]) -> bool:
    """Insert a removal for each of some nodes; return whether any of them has claims.

    Their rows are locked, and deleted afterwards.
    """
    found = connection.execute(
        sa.select(
            _nodes.id, _nodes.uuid, _nodes.hypervisor_hostname, _nodes.host, _claims.workload_uuid
        )
        .select_from(
            tables.compute_nodes.outerjoin(tables.claims, _claims.compute_node_id == _nodes.id)
        )
        .where(_nodes.id.in_(node_ids))
        .distinct()
    ).all()
    workloads: dict[int, list[str]] = {row.id: [] for row in found}
    for row in found:
        if row.workload_uuid is not None:
            workloads[row.id].append(row.workload_uuid)
    rows = {
        row.id: {
            "provider_uuid": row.uuid,
            "name": row.hypervisor_hostname,
            "host": row.host,
            "workloads": sorted(workloads[row.id]),
        }
        for row in found
    }
    if rows:
        insert = sa.insert(tables.provider_removals).values(created_at=utc_now(), attempts=0)
        connection.execute(insert, [rows[node_id] for node_id in sorted(rows)])
    return any(workloads.values())


def list_removals(connection: sa.Connection, host: str | None = None) -> list[ProviderRemoval]:
    found = sa.select(tables.provider_removals).where(*matches((_removals.host, host)))
    query = found.order_by(_removals.id)
    return [decode_row(ProviderRemoval, row) for row in connection.execute(query).mappings()]


def has_due(connection: sa.Connection, query: RemovalQuery) -> bool:
    """Return whether `take_removals` may find any."""
    found = sa.select(_removals.id).where(_is_due(query)).limit(1)
    return connection.execute(found).first() is not None


def take_removals(connection: sa.Connection, query: RemovalQuery) -> list[ProviderRemoval]:
    rows = connection.execute(
        sa.select(tables.provider_removals, utc_now().label("now"))
        .where(_is_due(query))
        .order_by(_removals.id)
        .limit(query.limit)
        .with_for_update()
    ).mappings()
    found = {row["id"]: row for row in rows}
    if not found:
        return []
    uuids = {row["provider_uuid"] for row in found.values()}
    alive = set(connection.scalars(sa.select(_nodes.uuid).where(_nodes.uuid.in_(uuids))))
    taken = {row_id: row for row_id, row in found.items() if row["provider_uuid"] not in alive}
    if alive:
        obsolete = found.keys() - taken.keys()
        connection.execute(sa.delete(tables.provider_removals).where(_removals.id.in_(obsolete)))
    if not taken:
        return []
    until = next(iter(taken.values()))["now"] + timedelta(seconds=query.lease_seconds)
    connection.execute(
        sa.update(tables.provider_removals)
        .where(_removals.id.in_(taken))
        .values(lease_until=until, attempts=_removals.attempts + 1, error=None)
    )
    changed = {"lease_until": until, "error": None}
    return [
        decode_row(ProviderRemoval, {**row, **changed, "attempts": row["attempts"] + 1})
        for row in taken.values()
    ]


def fail_removal(
    connection: sa.Connection,
    provider_uuid: str,
    error: str,
    retry_seconds: float,
    host: str | None = None,
) -> None:
    now = read_time(connection)
    connection.execute(
        sa.update(tables.provider_removals)
        .where(*_attempted(provider_uuid, host))
        .values(error=error, lease_until=now + timedelta(seconds=retry_seconds))
    )


def finish_removal(connection: sa.Connection, provider_uuid: str, host: str | None = None) -> None:
    removed = sa.delete(tables.provider_removals).where(*_attempted(provider_uuid, host))
    connection.execute(removed)


def rename_host(connection: sa.Connection, old: str, new: str) -> None:
    """Assign a host's removals to its new name."""
    connection.execute(
        sa.update(tables.provider_removals).where(_removals.host == old).values(host=new)
    )


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` earlier removals that no process attempted; return how many.

    Where placement is not reported to, nobody attempts them.
    """
    is_unused = _is_unused(before)
    return delete_part(connection, tables.provider_removals, is_unused, _removals.id, limit)


def count_old(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge` would delete."""
    return count_rows(connection, tables.provider_removals, _is_unused(before))


def _is_unused(before: datetime) -> "sa.ColumnElement[bool]":
    return sa.and_(_removals.created_at < before, _removals.attempts == 0)


def _attempted(provider_uuid: str, host: str | None) -> list["sa.ColumnElement[bool]"]:
    """Select a provider's removals that were taken, without one that was recorded since."""
    taken = _removals.attempts > 0
    return [*matches((_removals.provider_uuid, provider_uuid), (_removals.host, host)), taken]


def _is_due(query: RemovalQuery) -> "sa.ColumnElement[bool]":
    is_free = sa.or_(_removals.lease_until.is_(None), _removals.lease_until <= utc_now())
    conditions = matches((_removals.host, query.host))
    conditions.append(sa.or_(is_free, _removals.error.is_not(None)) if query.is_urgent else is_free)
    if query.is_unserved:
        served = sa.select(_services.host).where(_services.binary == COMPUTE_BINARY)
        conditions.append(_removals.host.not_in(served))
    return sa.and_(*conditions)
