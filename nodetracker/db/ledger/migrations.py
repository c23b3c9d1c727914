"""Run ledger transactions on migrations, and purge migrations.

Each transaction reads under the locks of both claims' nodes, which are
acquired in id order, decides with a pure function and applies what that
returns. A move and its end cost at most eleven statements each, however many
guests the nodes have.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa

from nodetracker.accounting.ledger.claims import require_amounts, require_node
from nodetracker.accounting.ledger.migrations import (
    decide_move,
    decide_move_confirm,
    decide_move_revert,
    decide_move_status,
    move_of,
)
from nodetracker.accounting.ledger.transaction import LedgerWrite, LockedMigration, LockedMove
from nodetracker.db.claim_lists import select_claims
from nodetracker.db.connection.dialect import can_skip_locked, utc_now
from nodetracker.db.ledger import claims
from nodetracker.db.ledger.claims import apply_write
from nodetracker.db.ledger.locked_nodes import (
    lock_row,
    lock_rows,
    read_assignments,
    read_related,
    read_usage,
)
from nodetracker.db.migrations import (
    WITH_CLAIMS,
    dest_claim,
    ended_before,
    list_migrations,
    list_where,
    source_claim,
)
from nodetracker.db.schema import tables
from nodetracker.db.statements import count_rows, delete_part
from nodetracker.model.change import StoreEvent
from nodetracker.model.claim import RUNNING, Claim, ClaimRequest, Migration, MigrationStatus
from nodetracker.model.errors import NotFoundError
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_migrations = tables.migrations.c


def create_migration(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
    skip_locked: bool = False,
) -> tuple[Migration, StoreEvent]:
    require_amounts(request)
    locked = lock_move(connection, request, host, nodename, skip_locked)
    write = decide_move(request, locked, policy)
    return apply_write(connection, write)


def find_existing_grant(
    connection: sa.Connection, request: ClaimRequest
) -> tuple[Migration, StoreEvent] | None:
    """Return what `create_migration` returned for a request before, None if it was not granted.

    Raises:
        ClaimConflictError: a claim with its uuid exists with another request body.
    """
    granted = claims.find_existing_grant(connection, request)
    if granted is None or (claim := granted[0]).migration_uuid is None:
        return None
    for migration in list_migrations(connection, uuid=claim.migration_uuid):
        return migration, LedgerWrite(migration, (claim, migration)).event
    return None


def confirm_migration(connection: sa.Connection, uuid: str) -> tuple[Migration, StoreEvent]:
    locked = lock_migration(connection, uuid, has_assignments=True)
    write = decide_move_confirm(locked)
    return apply_write(connection, write)


def revert_migration(connection: sa.Connection, uuid: str) -> tuple[Migration, StoreEvent]:
    locked = lock_migration(connection, uuid, has_assignments=True)
    write = decide_move_revert(locked)
    return apply_write(connection, write)


def set_migration_status(
    connection: sa.Connection, uuid: str, status: MigrationStatus
) -> tuple[Migration, StoreEvent]:
    locked = lock_migration(connection, uuid)
    write = decide_move_status(locked, status)
    return apply_write(connection, write)


def lock_move(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    skip_locked: bool = False,
) -> LockedMove:
    """Lock the destination and the source's node of a requested move, and read both.

    Raises:
        ClaimRefusedError: the destination does not exist.
        NodeBusyError: as `lock_row`, of the destination.
        RequestError: the request is not for a move.
    """
    source = move_of(request).source_claim
    workload = request.workload.uuid
    rows = _lock_ends(connection, source, host, nodename, skip_locked)
    nodes = read_related(connection, rows, workload, bool(request.pci_requests))
    found = next((n for n in nodes.values() if (n.host, n.nodename) == (host, nodename)), None)
    dest = require_node(found, host, nodename)
    return LockedMove(
        read_usage(connection, dest, request),
        _list_claims(connection, workload, source),
        tuple(list_where(connection, _migrations.workload_uuid == workload)),
    )


def lock_migration(
    connection: sa.Connection, uuid: str, has_assignments: bool = False
) -> LockedMigration:
    """Lock the nodes of a migration's claims, then read the migration.

    Args:
        has_assignments: also read the nodes' NUMA assignments if the migration
            is open and a claim or a guest of the workload has one.

    Raises:
        NotFoundError: the migration does not exist.
    """
    found = connection.execute(
        sa.select(
            _migrations.workload_uuid,
            source_claim.c.compute_node_id.label("source_id"),
            dest_claim.c.compute_node_id.label("dest_id"),
            utc_now().label("now"),
        )
        .select_from(WITH_CLAIMS)
        .where(_migrations.uuid == uuid)
    ).one_or_none()
    if found is None:
        raise NotFoundError(f"no such migration: {uuid}")
    rows = _lock_ids(connection, (found.source_id, found.dest_id))
    (migration,) = list_where(connection, _migrations.uuid == uuid)
    claims = _list_claims(connection, migration.workload_uuid)
    has_devices = any(claim.devices for claim in claims.values())
    nodes = read_related(connection, rows, migration.workload_uuid, has_devices)
    is_placed = any(claim.numa is not None for claim in claims.values())
    is_placed = is_placed or any(node.has_cells for node in nodes.values())
    if has_assignments and migration.is_open and is_placed:
        nodes = read_assignments(connection, nodes)
    now = next((node.now for node in nodes.values()), found.now)
    return LockedMigration(migration, nodes, claims, now)


def _lock_ends(
    connection: sa.Connection, source: str, host: str, nodename: str, skip_locked: bool
) -> Sequence[sa.RowMapping]:
    """Lock the node of a move's source claim and the destination, by two statements."""
    is_source = _nodes.id == (
        sa.select(_claims.compute_node_id).where(_claims.uuid == source).scalar_subquery()
    )
    if skip_locked and can_skip_locked(connection):
        # No deadlock in any order: the wait for the source holds no lock, and the
        # destination is not waited for.
        rows = [*lock_rows(connection, is_source), *lock_row(connection, host, nodename, True)]
        return list({row["id"]: row for row in rows}.values())
    is_dest = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    ids = connection.execute(
        sa.union(sa.select(_nodes.id).where(is_dest), sa.select(_nodes.id).where(is_source))
    ).scalars()
    return _lock_ids(connection, ids)


def _lock_ids(connection: sa.Connection, ids: Iterable[int | None]) -> Sequence[sa.RowMapping]:
    wanted = sorted({node_id for node_id in ids if node_id is not None})
    return lock_rows(connection, _nodes.id.in_(wanted))


def _list_claims(connection: sa.Connection, workload: str, *uuids: str) -> dict[str, Claim]:
    """Return a workload's claims and those with some uuids, by uuid, oldest first."""
    is_wanted = sa.or_(_claims.workload_uuid == workload, _claims.uuid.in_(uuids))
    return {claim.uuid: claim for claim in select_claims(connection, is_wanted)}


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


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` migrations that ended earlier and return how many."""
    return delete_part(connection, tables.migrations, ended_before(before), _migrations.id, limit)


def count_old(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge` would delete."""
    return count_rows(connection, tables.migrations, ended_before(before))
