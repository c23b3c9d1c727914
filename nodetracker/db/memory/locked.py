"""Read rows from dicts for ledger transactions, as the SQL store reads them under lock."""

from collections import Counter
from datetime import datetime

from nodetracker.accounting.ledger.claims import require_node
from nodetracker.accounting.ledger.transaction import (
    LockedClaim,
    LockedMigration,
    LockedMove,
    LockedNode,
)
from nodetracker.accounting.usage import charge_of_claims
from nodetracker.db.memory.tables import Tables, node_ids_of, place_migration
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import NotFoundError
from nodetracker.model.node import NodeRecord, admission_values
from nodetracker.model.service import COMPUTE_BINARY


def lock_node(
    tables: Tables, now: datetime, host: str, nodename: str, workload_uuid: str
) -> LockedNode | None:
    """Return a node, None when it does not exist."""
    for record in tables.nodes.values():
        if (record.host, record.nodename) == (host, nodename):
            return read_locked(tables, now, record, workload_uuid)
    return None


def lock_claim(tables: Tables, now: datetime, uuid: str) -> LockedClaim:
    """Return a claim with its node.

    Raises:
        NotFoundError: the claim does not exist.
    """
    claim = tables.claims.get(uuid)
    if claim is None:
        raise NotFoundError(f"no such claim: {uuid}")
    others = [
        other
        for other in tables.claims.values()
        if (other.node_id, other.workload.uuid) == (claim.node_id, claim.workload.uuid)
        and other.is_active
        and other.uuid != uuid
    ]
    moved_by = [
        migration.uuid
        for migration in tables.migrations.values()
        if migration.source_claim == uuid and migration.is_running
    ]
    move = tables.migrations.get(claim.migration_uuid or "")
    ends = {
        node_id
        for migration in tables.migrations.values()
        if migration.is_open and uuid in (migration.source_claim, migration.dest_claim)
        for node_id in node_ids_of(tables, migration)
    }
    return LockedClaim(
        claim,
        read_locked(tables, now, tables.nodes[claim.node_id], claim.workload.uuid),
        others=tuple(sorted(others, key=lambda other: other.created_at)),
        source_of=max(moved_by, default=None),
        destination_of=move.uuid if move is not None and move.is_open else None,
        other_ends=tuple(sorted(ends - {claim.node_id})),
    )


def lock_move(
    tables: Tables, now: datetime, request: ClaimRequest, host: str, nodename: str
) -> LockedMove:
    """Return a requested move with its destination, its claims and migrations.

    Raises:
        ClaimRefusedError: the destination does not exist.
    """
    workload = request.workload.uuid
    migrations = [m for m in tables.migrations.values() if m.workload_uuid == workload]
    return LockedMove(
        require_node(lock_node(tables, now, host, nodename, workload), host, nodename),
        tables.claims,
        tuple(migrations),
    )


def lock_migration(tables: Tables, now: datetime, uuid: str) -> LockedMigration:
    """Return a migration with the nodes of its claims.

    Raises:
        NotFoundError: the migration does not exist.
    """
    migration = tables.migrations.get(uuid)
    if migration is None:
        raise NotFoundError(f"no such migration: {uuid}")
    workload = migration.workload_uuid
    claims = sorted(tables.claims.values(), key=lambda claim: claim.created_at)
    return LockedMigration(
        place_migration(tables, migration),
        {
            node_id: read_locked(tables, now, tables.nodes[node_id], workload)
            for node_id in sorted(node_ids_of(tables, migration))
        },
        {claim.uuid: claim for claim in claims if claim.workload.uuid == workload},
        now,
    )


def read_locked(
    tables: Tables, now: datetime, record: NodeRecord, workload_uuid: str
) -> LockedNode:
    """Return a node as a ledger transaction for a workload reads it."""
    service = tables.services.get((record.host, COMPUTE_BINARY))
    claims = [c for c in tables.claims.values() if c.node_id == record.id and c.is_active]
    mine = [claim for claim in claims if claim.workload.uuid == workload_uuid]
    used: Counter[str] = Counter()
    for claim in claims:
        used.update(claim.amounts.resources)
    return LockedNode(
        id=record.id,
        host=record.host,
        nodename=record.nodename,
        values=admission_values(record.values),
        service=None if service is None else service.availability,
        guest=record.guests.get(workload_uuid),
        now=now,
        claimed=charge_of_claims(mine, int(record.values.overhead.get("memory_mb", 0))),
        claim_assignments={c.uuid: c.numa for c in claims if c.numa is not None},
        guest_assignments={
            guest.uuid: guest.pins.assignment
            for guest in record.guests.values()
            if guest.claim_uuid is None and guest.pins.assignment is not None
        },
        devices=record.devices,
        used_resources=used,
    )
