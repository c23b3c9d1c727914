"""``migrations``: ledger transactions on the nodes of both claims, which are locked in id order.

A move and its end cost at most eleven statements each, however many guests there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger import moves
from nodetracker.accounting.ledger.grants import LockedNode
from nodetracker.accounting.ledger.moves import Ending
from nodetracker.db import codec
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.ledger import charges, claims, locked_nodes
from nodetracker.db.schema import tables
from nodetracker.errors import ClaimRefusedError, NotFoundError
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest
from nodetracker.model.migration import OPEN, RUNNING, Migration, MigrationStatus, Move
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_migrations = tables.migrations.c
_source_claim = tables.claims.alias("source_claims")
_dest_claim = tables.claims.alias("dest_claims")
_source_node = tables.compute_nodes.alias("source_nodes")
_dest_node = tables.compute_nodes.alias("dest_nodes")
_ACTIVE = [state.value for state in ACTIVE_STATES]


@dataclass(frozen=True, slots=True)
class _Locked:
    """A migration as read with its nodes locked.

    Attributes:
        nodes: by id, of those claims that are there.
        claims: the workload's, by uuid.
    """

    migration: Migration
    nodes: Mapping[int, LockedNode]
    claims: Mapping[str, Claim]
    now: datetime


def create_migration(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
) -> Migration:
    """See `Store.create_migration`; a uuid that is there already violates its unique key."""
    wanted = moves.move_of(request)
    is_dest = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    is_source = _nodes.id == (
        sa.select(_claims.compute_node_id)
        .where(_claims.uuid == wanted.source_claim)
        .scalar_subquery()
    )
    ids = connection.execute(
        sa.union(sa.select(_nodes.id).where(is_dest), sa.select(_nodes.id).where(is_source))
    ).scalars()
    nodes = locked_nodes.read_for(connection, _lock(connection, ids), request)
    dest = next((n for n in nodes.values() if (n.host, n.nodename) == (host, nodename)), None)
    if dest is None:
        raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
    found = _list_claims(connection, request.workload.uuid, request.uuid, wanted.source_claim)
    if request.uuid in found:
        again = find_existing_grant(connection, request)
        assert again is not None
        return again
    migrations = _list(connection, _migrations.workload_uuid == request.workload.uuid)
    reasons = moves.move_reasons(request, found, migrations, dest.id)
    granted = claims.grant(connection, request, dest, policy, reasons)
    source = found[wanted.source_claim]
    migration = moves.make_migration(request, source, granted)
    connection.execute(sa.insert(tables.migrations).values(codec.encode_migration(migration)))
    charges.bump_generation(connection, nodes.keys() - {dest.id})
    return migration


def find_existing_grant(connection: sa.Connection, request: ClaimRequest) -> Migration | None:
    """Return the migration that a request was granted before, None when it was not.

    Raises:
        ClaimConflictError: its uuid stands for another request.
    """
    claim = claims.find_existing_grant(connection, request)
    if claim is None or claim.migration_uuid is None:
        return None
    found = list_migrations(connection, uuid=claim.migration_uuid)
    return found[0] if found else None


def confirm_migration(connection: sa.Connection, uuid: str) -> Migration:
    """See `Store.confirm_migration`."""
    locked = _lock_migration(connection, uuid)
    return _end(connection, locked, moves.plan_confirm(locked.migration, locked.claims, locked.now))


def revert_migration(connection: sa.Connection, uuid: str) -> Migration:
    """See `Store.revert_migration`."""
    locked = _lock_migration(connection, uuid)
    return _end(connection, locked, moves.plan_revert(locked.migration, locked.claims, locked.now))


def set_migration_status(
    connection: sa.Connection, uuid: str, status: MigrationStatus
) -> Migration:
    """See `Store.set_migration_status`."""
    locked = _lock_migration(connection, uuid)
    return _end(connection, locked, moves.plan_status(locked.migration, status, locked.now))


def list_migrations(
    connection: sa.Connection,
    host: str | None = None,
    uuid: str | None = None,
    status: MigrationStatus | None = None,
) -> list[Migration]:
    """See `Store.list_migrations`."""
    conditions: list[sa.ColumnElement[bool]] = []
    if host is not None:
        conditions.append(sa.or_(_PLACES["source_host"] == host, _PLACES["dest_host"] == host))
    if uuid is not None:
        conditions.append(_migrations.uuid == uuid)
    if status is not None:
        conditions.append(_migrations.status == status.value)
    return _list(connection, *conditions)


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete migrations that ended earlier and return how many."""
    ended = sa.delete(tables.migrations).where(
        _migrations.status.not_in([status.value for status in OPEN]),
        _migrations.updated_at < before,
    )
    return connection.execute(ended).rowcount


def load_moves(
    connection: sa.Connection, of_claims: "sa.Select[tuple[str]]"
) -> dict[int, tuple[Move, ...]]:
    """Return open migrations by the ids of their nodes, by one statement.

    Args:
        of_claims: the workloads in question.
    """
    found: dict[int, tuple[Move, ...]] = {}
    rows = connection.execute(
        _select(
            _source_claim.c.state.label("source_state"),
            _dest_claim.c.state.label("dest_state"),
            _source_claim.c.compute_node_id.label("source_node_id"),
            _dest_claim.c.compute_node_id.label("dest_node_id"),
        ).where(
            _migrations.status.in_([status.value for status in OPEN]),
            _migrations.workload_uuid.in_(of_claims),
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
    """Write what audits found in error; what ended meanwhile stays as it is."""
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


_WITH_CLAIMS = tables.migrations.outerjoin(
    _source_claim, _source_claim.c.uuid == _migrations.source_claim
).outerjoin(_dest_claim, _dest_claim.c.uuid == _migrations.dest_claim)
# A node's host and name may change; where a claim is now is better than where it was.
_PLACES: dict[str, Any] = {
    "source_host": sa.func.coalesce(_source_node.c.host, _migrations.source_host),
    "source_node": sa.func.coalesce(_source_node.c.hypervisor_hostname, _migrations.source_node),
    "dest_host": sa.func.coalesce(_dest_node.c.host, _migrations.dest_host),
    "dest_node": sa.func.coalesce(_dest_node.c.hypervisor_hostname, _migrations.dest_node),
}


def _select(*more: Any) -> "sa.Select[Any]":
    columns = [_PLACES.get(name, _migrations[name]).label(name) for name in codec.MIGRATION_COLUMNS]
    return (
        sa.select(*columns, *more)
        .select_from(
            _WITH_CLAIMS.outerjoin(
                _source_node, _source_node.c.id == _source_claim.c.compute_node_id
            ).outerjoin(_dest_node, _dest_node.c.id == _dest_claim.c.compute_node_id)
        )
        .order_by(_migrations.created_at, _migrations.id)
    )


def _list(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Migration]:
    rows = connection.execute(_select().where(*conditions)).mappings()
    return [codec.decode_migration(row) for row in rows]


def _list_claims(connection: sa.Connection, workload: str, *uuids: str) -> dict[str, Claim]:
    """Return a workload's claims, and those of some uuids, by uuid in order of their age."""
    return {
        claim.uuid: claim
        for claim in claims.select_claims(
            connection, sa.or_(_claims.workload_uuid == workload, _claims.uuid.in_(uuids))
        )
    }


def _lock(connection: sa.Connection, ids: Iterable[int | None]) -> Sequence[sa.RowMapping]:
    wanted = sorted({node_id for node_id in ids if node_id is not None})
    return locked_nodes.lock_rows(connection, _nodes.id.in_(wanted))


def _lock_migration(connection: sa.Connection, uuid: str) -> _Locked:
    """Lock a migration's nodes and read it again.

    Raises:
        NotFoundError: there is no such migration.
    """
    found = connection.execute(
        sa.select(
            _migrations.workload_uuid,
            _source_claim.c.compute_node_id.label("source_id"),
            _dest_claim.c.compute_node_id.label("dest_id"),
            utc_now().label("now"),
        )
        .select_from(_WITH_CLAIMS)
        .where(_migrations.uuid == uuid)
    ).one_or_none()
    if found is None:
        raise NotFoundError(f"there is no migration {uuid}")
    rows = _lock(connection, (found.source_id, found.dest_id))
    (migration,) = _list(connection, _migrations.uuid == uuid)
    of_workload = _list_claims(connection, migration.workload_uuid)
    has_devices = any(claim.devices for claim in of_workload.values())
    nodes = locked_nodes.read_related(connection, rows, migration.workload_uuid, has_devices)
    now = next((node.now for node in nodes.values()), found.now)
    return _Locked(migration, nodes, of_workload, now)


def _end(connection: sa.Connection, locked: _Locked, ending: Ending | None) -> Migration:
    """Write what ends a migration, and let the agents of all its nodes read it again."""
    if ending is None:
        return locked.migration
    nodes = dict(locked.nodes)
    charged: set[int] = set()
    if ending.confirmed is not None:
        node = nodes[ending.confirmed.node_id]
        nodes[node.id] = claims.write_active(connection, node, ending.confirmed)
        charged.add(node.id)
    if ending.released is not None:
        claim, reason = ending.released
        others = _others(locked.claims.values(), claim)
        claims.release(connection, nodes[claim.node_id], claim, others, reason)
        charged.add(claim.node_id)
    charges.bump_generation(connection, nodes.keys() - charged)
    connection.execute(
        sa.update(tables.migrations)
        .where(_migrations.uuid == ending.migration.uuid)
        .values(status=ending.migration.status.value, updated_at=ending.migration.updated_at)
    )
    return ending.migration


def _others(found: Iterable[Claim], claim: Claim) -> Sequence[Claim]:
    return [
        other
        for other in found
        if other.is_active and other.node_id == claim.node_id and other.uuid != claim.uuid
    ]
