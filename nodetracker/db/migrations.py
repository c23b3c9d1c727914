"""List ``migrations``, with their claims and the current nodes of these."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.schema import tables
from nodetracker.db.statements import Listing, matches, select_page
from nodetracker.model.claim import Migration, MigrationStatus, Move
from nodetracker.model.listing import MigrationQuery, Page

_migrations = tables.migrations.c
source_claim = tables.claims.alias("source_claims")
dest_claim = tables.claims.alias("dest_claims")
_source_node = tables.compute_nodes.alias("source_nodes")
_dest_node = tables.compute_nodes.alias("dest_nodes")

WITH_CLAIMS = tables.migrations.outerjoin(
    source_claim, source_claim.c.uuid == _migrations.source_claim
).outerjoin(dest_claim, dest_claim.c.uuid == _migrations.dest_claim)

CURRENT_PLACES: dict[str, Any] = {
    "source_host": sa.func.coalesce(_source_node.c.host, _migrations.source_host),
    "source_node": sa.func.coalesce(_source_node.c.hypervisor_hostname, _migrations.source_node),
    "dest_host": sa.func.coalesce(_dest_node.c.host, _migrations.dest_host),
    "dest_node": sa.func.coalesce(_dest_node.c.hypervisor_hostname, _migrations.dest_node),
}
"""Current places of the claims, as hosts may be renamed; the last ones once claims are deleted."""


WITH_NODES = WITH_CLAIMS.outerjoin(
    _source_node, _source_node.c.id == source_claim.c.compute_node_id
).outerjoin(_dest_node, _dest_node.c.id == dest_claim.c.compute_node_id)

COLUMNS = tuple(
    CURRENT_PLACES.get(name, _migrations[name]).label(name) for name in codec.MIGRATION_COLUMNS
)


def select_migrations(*more: Any) -> "sa.Select[Any]":
    """Select migrations, oldest first, with more columns of `WITH_CLAIMS`."""
    return (
        sa.select(*COLUMNS, *more)
        .select_from(WITH_NODES)
        .order_by(_migrations.created_at, _migrations.id)
    )


def is_on_host(host: str) -> "sa.ColumnElement[bool]":
    """Return the condition that a claim of a migration is on a host, or was when it was deleted.

    The ids of those that may match are found by indexes.
    """
    may_match = sa.union(
        *(
            sa.select(_migrations.id)
            .join(claim, claim.c.uuid == claim_uuid)
            .join(node, node.c.id == claim.c.compute_node_id)
            .where(node.c.host == host)
            for claim, node, claim_uuid in (
                (source_claim, _source_node, _migrations.source_claim),
                (dest_claim, _dest_node, _migrations.dest_claim),
            )
        ),
        sa.select(_migrations.id).where(_migrations.source_host == host),
        sa.select(_migrations.id).where(_migrations.dest_host == host),
    ).subquery()
    return sa.and_(
        _migrations.id.in_(sa.select(may_match.c.id)),
        sa.or_(CURRENT_PLACES["source_host"] == host, CURRENT_PLACES["dest_host"] == host),
    )


def list_where(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Migration]:
    """Return the migrations that meet all conditions, oldest first."""
    rows = connection.execute(select_migrations().where(*conditions)).mappings()
    return [codec.decode_migration(row) for row in rows]


def list_migrations(
    connection: sa.Connection,
    host: str | None = None,
    uuid: str | None = None,
    status: MigrationStatus | None = None,
) -> list[Migration]:
    """See `Store.list_migrations`."""
    conditions = matches((_migrations.uuid, uuid), (_migrations.status, status))
    if host is not None:
        conditions.append(is_on_host(host))
    return list_where(connection, *conditions)


def list_migration_page(connection: sa.Connection, query: MigrationQuery) -> Page[Migration]:
    """See `Store.list_migration_page`."""
    conditions = matches(
        (_migrations.uuid, query.uuid), (_migrations.workload_uuid, query.workload_uuid)
    )
    if query.host is not None:
        conditions.append(is_on_host(query.host))
    if query.statuses:
        conditions.append(_migrations.status.in_([status.value for status in query.statuses]))
    listing = Listing(
        table=tables.migrations,
        joined=WITH_NODES,
        columns=COLUMNS,
        conditions=conditions,
        filtered=None if query.host is None else WITH_NODES,
    )
    return select_page(connection, query, listing, codec.decode_migration)


def load_moves(
    connection: sa.Connection, workload_uuids: Sequence[str] | None = None
) -> dict[int, tuple[Move, ...]]:
    """Return open migrations by the ids of their nodes, in one statement.

    Args:
        workload_uuids: only of these workloads; None = of all.
    """
    conditions = [tables.IS_OPEN]
    if workload_uuids is not None:
        conditions.append(_migrations.workload_uuid.in_(workload_uuids))
    found: dict[int, tuple[Move, ...]] = {}
    rows = connection.execute(
        select_migrations(
            source_claim.c.state.label("source_state"),
            dest_claim.c.state.label("dest_state"),
            source_claim.c.compute_node_id.label("source_node_id"),
            dest_claim.c.compute_node_id.label("dest_node_id"),
        ).where(*conditions)
    ).mappings()
    for row in rows:
        move = Move(
            codec.decode_migration(row),
            row["source_state"] in tables.ACTIVE,
            row["dest_state"] in tables.ACTIVE,
        )
        for node_id in {row["source_node_id"], row["dest_node_id"]} - {None}:
            found[node_id] = (*found.get(node_id, ()), move)
    return found
