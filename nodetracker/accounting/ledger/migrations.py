"""Decide how a migration starts, advances and ends: its claims, their nodes and its status."""

from dataclasses import replace

from nodetracker.accounting.ledger.claims import confirmed_claim, released_claim
from nodetracker.accounting.ledger.grants import decide_grant
from nodetracker.accounting.ledger.locked import LockedMigration, LockedMove
from nodetracker.accounting.ledger.moves import move_of
from nodetracker.accounting.ledger.node_claims import confirm_devices, diff_node, remove_claim
from nodetracker.accounting.ledger.write import LedgerWrite, MigrationStep, NodeWrite
from nodetracker.errors import RefusedError
from nodetracker.model.claim import Claim, ClaimRequest, ReleaseReason
from nodetracker.model.migration import (
    SAME_NODE_ALLOWED,
    SAME_NODE_REQUIRED,
    Migration,
    MigrationStatus,
    can_transition,
    confirmed_status,
)
from nodetracker.settings import AdmissionPolicy


def decide_move(
    request: ClaimRequest, locked: LockedMove, policy: AdmissionPolicy
) -> LedgerWrite[Migration]:
    """Grant a move: its destination is claimed, its source is kept.

    Raises:
        ClaimRefusedError: the source cannot be moved from, or the destination
            does not fit; with every reason.
        RequestError: the request is not for a move.
    """
    grant = decide_grant(request, locked.dest, policy, _list_refusals(request, locked))
    source = locked.claims[move_of(request).source_claim]
    migration = _make_migration(request, source, grant.answer)
    is_staying = source.node_id == locked.dest.id
    return LedgerWrite(
        migration,
        new_claim=grant.new_claim,
        nodes=grant.nodes if is_staying else (*grant.nodes, NodeWrite(source.node_id)),
        new_migration=migration,
    )


def decide_move_confirm(locked: LockedMigration) -> LedgerWrite[Migration]:
    """End a migration at its destination, which is confirmed; the source is released.

    Raises:
        RefusedError: it ended otherwise, or its destination is not active any more.
    """
    migration = locked.migration
    status = confirmed_status(migration.migration_type)
    if migration.status is status:
        return LedgerWrite(migration)
    _require_not_ended(migration)
    dest = locked.claims.get(migration.dest_claim)
    if dest is None or not dest.is_active:
        raise RefusedError(
            f"migration {migration.uuid}: {_lost('destination', migration.dest_claim, dest)}; "
            "revert it"
        )
    confirmed = confirmed_claim(dest, locked.now)
    source = locked.claims.get(migration.source_claim)
    return _end(locked, status, source, ReleaseReason.MOVED, confirmed)


def decide_move_revert(locked: LockedMigration) -> LedgerWrite[Migration]:
    """End a migration at its source, which is kept; the destination is released.

    Raises:
        RefusedError: it ended otherwise, or only its destination is still active.
    """
    migration = locked.migration
    if migration.status is MigrationStatus.REVERTED:
        return LedgerWrite(migration)
    _require_not_ended(migration)
    source = locked.claims.get(migration.source_claim)
    dest = locked.claims.get(migration.dest_claim)
    is_source_lost = source is None or not source.is_active
    if is_source_lost and dest is not None and dest.is_active:
        raise RefusedError(
            f"migration {migration.uuid}: {_lost('source', migration.source_claim, source)}; "
            "confirm it, or abort the destination's claim"
        )
    return _end(locked, MigrationStatus.REVERTED, dest, ReleaseReason.REVERTED)


def decide_move_status(locked: LockedMigration, status: MigrationStatus) -> LedgerWrite[Migration]:
    """Advance a migration; its claims are kept as they are.

    Raises:
        RefusedError: the status may not follow, or would end the migration.
    """
    migration = locked.migration
    if migration.status is status:
        return LedgerWrite(migration)
    changed = replace(migration, status=status, updated_at=locked.now)
    if not changed.is_open or not can_transition(migration.status, status):
        raise RefusedError(f"migration {migration.uuid} is {migration.status}, not to be {status}")
    return LedgerWrite(
        changed,
        nodes=tuple(NodeWrite(node_id) for node_id in locked.nodes),
        migration_step=MigrationStep(migration.uuid, status, locked.now),
    )


def _end(
    locked: LockedMigration,
    status: MigrationStatus,
    closing: Claim | None,
    reason: ReleaseReason,
    confirmed: Claim | None = None,
) -> LedgerWrite[Migration]:
    """Release one side and confirm the other; all nodes' agents read the migration again.

    Args:
        closing: the claim to release, None when it does not exist any more.
            One that expired gets the reason too, so that no late guest takes it up again.
        confirmed: the other side as it shall be, None when it is kept as it is.
    """
    migration, nodes, changed = locked.migration, dict(locked.nodes), []
    if confirmed is not None:
        nodes[confirmed.node_id] = confirm_devices(nodes[confirmed.node_id], confirmed)
        changed.append(confirmed)
    if closing is not None and (closing.is_active or closing.reason == ReleaseReason.EXPIRED):
        changed.append(released_claim(closing, reason, locked.now))
    if closing is not None and closing.is_active:
        node = nodes[closing.node_id]
        nodes[node.id] = remove_claim(node, closing, locked.list_others(closing))
    return LedgerWrite(
        replace(migration, status=status, updated_at=locked.now),
        changed_claims=tuple(changed),
        nodes=tuple(diff_node(before, nodes[before.id]) for before in locked.nodes.values()),
        migration_step=MigrationStep(migration.uuid, status, locked.now),
    )


def _list_refusals(request: ClaimRequest, locked: LockedMove) -> list[str]:
    """Return why a move cannot start, whatever room its destination has."""
    wanted = move_of(request)
    uuid = wanted.source_claim
    source = locked.claims.get(uuid)
    if source is None:
        return [f"no such claim: {uuid}"]
    reasons = []
    if source.workload.uuid != request.workload.uuid:
        reasons.append(f"claim {uuid} is of workload {source.workload.uuid}")
    if not source.is_active:
        reasons.append(f"claim {uuid} is released ({source.reason})")
    reasons += [
        f"claim {uuid} is a part of migration {migration.uuid}, which is {migration.status}"
        for migration in locked.migrations
        if migration.is_open and uuid in (migration.source_claim, migration.dest_claim)
    ]
    is_staying = source.node_id == locked.dest.id
    if is_staying and wanted.migration_type not in SAME_NODE_ALLOWED:
        reasons.append(f"node {source.nodename} of host {source.host} has the workload already")
    if not is_staying and wanted.migration_type in SAME_NODE_REQUIRED:
        reasons.append(
            f"a {wanted.migration_type} stays on node {source.nodename} of host {source.host}"
        )
    return reasons


def _make_migration(request: ClaimRequest, source: Claim, dest: Claim) -> Migration:
    wanted = move_of(request)
    return Migration(
        uuid=wanted.uuid,
        workload_uuid=request.workload.uuid,
        migration_type=wanted.migration_type,
        status=MigrationStatus.ACCEPTED,
        source_host=source.host,
        source_node=source.nodename,
        dest_host=dest.host,
        dest_node=dest.nodename,
        source_claim=source.uuid,
        dest_claim=dest.uuid,
        created_at=dest.created_at,
        updated_at=dest.created_at,
    )


def _require_not_ended(migration: Migration) -> None:
    if not migration.is_open:
        raise RefusedError(f"migration {migration.uuid} is {migration.status}")


def _lost(side: str, uuid: str, claim: Claim | None) -> str:
    state = "gone" if claim is None else f"released ({claim.reason})"
    return f"its {side}'s claim {uuid} is {state}"
