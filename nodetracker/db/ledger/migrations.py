"""Run ledger transactions on migrations, and purge migrations.

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
from nodetracker.db.ledger import claims
from nodetracker.db.ledger.locked_migrations import lock_migration, lock_move
from nodetracker.db.ledger.writes import apply_write
from nodetracker.db.migrations import list_migrations
from nodetracker.db.schema import tables
from nodetracker.model.claim import OPEN, RUNNING, ClaimRequest, Migration, MigrationStatus
from nodetracker.ports import AdmissionPolicy

_migrations = tables.migrations.c


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


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` migrations that ended earlier and return how many."""
    has_ended = _migrations.status.not_in([status.value for status in OPEN])
    ended = sa.select(_migrations.id).where(has_ended, _migrations.updated_at < before)
    ids = list(connection.scalars(ended.limit(limit)))
    deletion = sa.delete(tables.migrations).where(_migrations.id.in_(ids))
    return connection.execute(deletion).rowcount


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
