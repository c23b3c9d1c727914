"""List ``migrations``, with their claims."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.schema import tables
from nodetracker.db.statements import Listing, by_name, matches, select_page
from nodetracker.model.claim import Migration, MigrationStatus, Move
from nodetracker.model.listing import MigrationQuery, Page

_migrations = tables.migrations.c
source_claim = tables.claims.alias("source_claims")
dest_claim = tables.claims.alias("dest_claims")

WITH_CLAIMS = tables.migrations.outerjoin(
    source_claim, source_claim.c.uuid == _migrations.source_claim
).outerjoin(dest_claim, dest_claim.c.uuid == _migrations.dest_claim)

_COLUMNS = tuple(_migrations[name] for name in codec.MIGRATION_COLUMNS)


def _select_name(claim_uuid: "sa.ColumnElement[str]") -> "sa.ScalarSelect[str]":
    claim = tables.claims.alias()
    found = sa.select(claim.c.workload_name).where(claim.c.uuid == claim_uuid)
    return found.correlate(tables.migrations).scalar_subquery()


_NAME = sa.func.coalesce(
    sa.func.nullif(_select_name(_migrations.dest_claim), ""),
    _select_name(_migrations.source_claim),
    "",
).label("workload_name")
"""Of the workload, as long as a claim of the migration is kept."""


def list_where(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Migration]:
    """Return the migrations that meet all conditions, oldest first."""
    found = sa.select(*_COLUMNS, _NAME).where(*conditions)
    rows = connection.execute(found.order_by(_migrations.created_at, _migrations.id)).mappings()
    return list(map(_decode, rows))


def _decode(row: sa.RowMapping) -> Migration:
    return codec.decode_row(Migration, row, workload_name=row["workload_name"])


def list_migrations(
    connection: sa.Connection,
    host: str | None = None,
    uuid: str | None = None,
    status: MigrationStatus | None = None,
) -> list[Migration]:
    conditions = matches((_migrations.uuid, uuid), (_migrations.status, status))
    if host is not None:
        conditions.append(sa.or_(_migrations.source_host == host, _migrations.dest_host == host))
    return list_where(connection, *conditions)


def list_migration_page(connection: sa.Connection, query: MigrationQuery) -> Page[Migration]:
    conditions = matches(
        (_migrations.uuid, query.uuid), (_migrations.workload_uuid, query.workload_uuid)
    )
    statuses = [status.value for status in query.statuses]
    if statuses and query.host is None:
        conditions.append(_migrations.status.in_(statuses))
    listing = Listing(
        table=tables.migrations,
        joined=tables.migrations,
        columns=(*_COLUMNS, _NAME),
        conditions=conditions,
        alternatives=[] if query.host is None else _is_on_host(query.host, statuses),
    )
    return select_page(connection, query, listing, by_name(_decode))


def _is_on_host(host: str, statuses: Sequence[str]) -> "list[sa.ColumnElement[bool]]":
    """Return the conditions, each with an index of its own, of a host's migrations.

    Args:
        statuses: of these; empty = of all.
    """
    return [
        sa.and_(is_there, _migrations.status == status)
        for is_there in (
            _migrations.source_host == host,
            sa.and_(_migrations.dest_host == host, _migrations.source_host != host),
        )
        for status in dict.fromkeys(statuses or [status.value for status in MigrationStatus])
    ]


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
        sa.select(
            *_COLUMNS,
            source_claim.c.state.label("source_state"),
            dest_claim.c.state.label("dest_state"),
            source_claim.c.compute_node_id.label("source_node_id"),
            dest_claim.c.compute_node_id.label("dest_node_id"),
        )
        .select_from(WITH_CLAIMS)
        .where(*conditions)
        .order_by(_migrations.created_at, _migrations.id)
    ).mappings()
    for row in rows:
        move = Move(
            codec.decode_row(Migration, row),
            row["source_state"] in tables.ACTIVE,
            row["dest_state"] in tables.ACTIVE,
        )
        for node_id in {row["source_node_id"], row["dest_node_id"]} - {None}:
            found[node_id] = (*found.get(node_id, ()), move)
    return found


def ended_before(time: datetime) -> "sa.ColumnElement[bool]":
    """Select the migrations that ended before a time."""
    return sa.and_(sa.not_(tables.IS_OPEN), _migrations.updated_at < time)
