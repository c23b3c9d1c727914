"""Run ledger transactions on migrations, and list and purge migrations.

Each transaction reads under the locks of both claims' nodes, which are
acquired in id order, decides with a pure function and applies what that
returns. A move and its end cost at most eleven statements each, however many
guests the nodes have.
"""

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from nodetracker.accounting.ledger.grants import require_amounts
from nodetracker.accounting.ledger.migrations import (
    decide_move,
    decide_move_confirm,
    decide_move_revert,
    decide_move_status,
)
from nodetracker.db import codec
from nodetracker.db.ledger import claims
from nodetracker.db.ledger.locked_migrations import lock_migration, lock_move
from nodetracker.db.ledger.migration_rows import (
    COLUMNS,
    WITH_NODES,
    dest_claim,
    is_on_host,
    list_where,
    select_migrations,
    source_claim,
)
from nodetracker.db.ledger.writes import apply_write
from nodetracker.db.paging import Listing, select_page
from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES, ClaimRequest
from nodetracker.model.listing import MigrationQuery
from nodetracker.model.migration import OPEN, RUNNING, Migration, MigrationStatus, Move
from nodetracker.model.page import Page
from nodetracker.ports import AdmissionPolicy

_migrations = tables.migrations.c
_ACTIVE = [state.value for state in ACTIVE_STATES]


def create_migration(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
    skip_locked: bool = False,
) -> Migration:
    """See `Store.create_migration`; a duplicate uuid violates its unique key."""
    require_amounts(request)
    locked = lock_move(connection, request, host, nodename, skip_locked)
    write = decide_move(request, locked, policy)
    return apply_write(connection, write)


def find_existing_grant(connection: sa.Connection, request: ClaimRequest) -> Migration | None:
    """Return the migration that a request was granted before, None when it was not.

    Raises:
        ClaimConflictError: a claim with its uuid exists with another request body.
    """
    claim = claims.find_existing_grant(connection, request)
    if claim is None or claim.migration_uuid is None:
        return None
    found = list_migrations(connection, uuid=claim.migration_uuid)
    return found[0] if found else None


def confirm_migration(connection: sa.Connection, uuid: str) -> Migration:
    """See `Store.confirm_migration`."""
    locked = lock_migration(connection, uuid, has_placements=True)
    write = decide_move_confirm(locked)
    return apply_write(connection, write)


def revert_migration(connection: sa.Connection, uuid: str) -> Migration:
    """See `Store.revert_migration`."""
    locked = lock_migration(connection, uuid, has_placements=True)
    write = decide_move_revert(locked)
    return apply_write(connection, write)


def set_migration_status(
    connection: sa.Connection, uuid: str, status: MigrationStatus
) -> Migration:
    """See `Store.set_migration_status`."""
    locked = lock_migration(connection, uuid)
    write = decide_move_status(locked, status)
    return apply_write(connection, write)


def list_migrations(
    connection: sa.Connection,
    host: str | None = None,
    uuid: str | None = None,
    status: MigrationStatus | None = None,
) -> list[Migration]:
    """See `Store.list_migrations`."""
    conditions: list[sa.ColumnElement[bool]] = []
    if host is not None:
        conditions.append(is_on_host(host))
    if uuid is not None:
        conditions.append(_migrations.uuid == uuid)
    if status is not None:
        conditions.append(_migrations.status == status.value)
    return list_where(connection, *conditions)


def list_migration_page(connection: sa.Connection, query: MigrationQuery) -> Page[Migration]:
    """See `Store.list_migration_page`."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.uuid is not None:
        conditions.append(_migrations.uuid == query.uuid)
    if query.host is not None:
        conditions.append(is_on_host(query.host))
    if query.workload_uuid is not None:
        conditions.append(_migrations.workload_uuid == query.workload_uuid)
    if query.statuses:
        conditions.append(_migrations.status.in_([status.value for status in query.statuses]))
    listing = Listing(
        table=tables.migrations,
        joined=WITH_NODES,
        columns=COLUMNS,
        conditions=conditions,
        filtered=tables.migrations if query.host is None else WITH_NODES,
    )
    return select_page(connection, query, listing, codec.decode_migration)


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete migrations that ended earlier and return how many."""
    ended = sa.delete(tables.migrations).where(
        _migrations.status.not_in([status.value for status in OPEN]),
        _migrations.updated_at < before,
    )
    return connection.execute(ended).rowcount


def load_moves(
    connection: sa.Connection, workloads: "sa.Select[tuple[str]]"
) -> dict[int, tuple[Move, ...]]:
    """Return the open migrations of workloads by the ids of their nodes, in one statement.

    Args:
        workloads: query of the workloads' uuids.
    """
    found: dict[int, tuple[Move, ...]] = {}
    rows = connection.execute(
        select_migrations(
            source_claim.c.state.label("source_state"),
            dest_claim.c.state.label("dest_state"),
            source_claim.c.compute_node_id.label("source_node_id"),
            dest_claim.c.compute_node_id.label("dest_node_id"),
        ).where(
            _migrations.status.in_([status.value for status in OPEN]),
            _migrations.workload_uuid.in_(workloads),
        )
    ).mappings()
    for row in rows:
        move = Move(
            codec.decode_migration(row),
            row["source_state"] in _ACTIVE,
            row["dest_state"] in _ACTIVE,
        )
        for node_id in {row["source_node_id"], row["dest_node_id"]} - {None}:
            found[node_id] = (*found.get(node_id, ()), move)
    return found


def write_errors(connection: sa.Connection, errors: Iterable[Migration], now: datetime) -> None:
    """Set migrations that an audit found in error to this status, unless they ended meanwhile."""
    uuids = [migration.uuid for migration in errors if not migration.is_running]
    if uuids:
        connection.execute(
            sa.update(tables.migrations)
            .where(
                _migrations.uuid.in_(uuids),
                _migrations.status.in_([status.value for status in RUNNING]),
            )
            .values(status=MigrationStatus.ERROR.value, updated_at=now)
        )
