"""Decide the start, progress and end of migrations."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from nodetracker.accounting.ledger.claims import (
    confirmed_claim,
    decide_grant,
    evaluate_claim,
    released_claim,
)
from nodetracker.accounting.ledger.node_claims import confirm_devices, diff_node, remove_claim
from nodetracker.accounting.ledger.transaction import (
    LedgerWrite,
    LockedMigration,
    LockedMove,
    MigrationStep,
    NodeWrite,
)
from nodetracker.model.claim import (
    SAME_NODE_ALLOWED,
    SAME_NODE_REQUIRED,
    Claim,
    ClaimRequest,
    ClaimState,
    Migration,
    MigrationStatus,
    MoveRequest,
    ReleaseReason,
    Workload,
    can_transition,
    confirmed_status,
)
from nodetracker.model.errors import MoveSourceError, RefusedError, RequestError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.settings import AdmissionPolicy
from nodetracker.model.text import render_value
from nodetracker.model.units import MILLI, whole_units


def move_of(request: ClaimRequest) -> MoveRequest:
    """Return the part ``migration`` of a request for the destination of a move.

    Raises:
        RequestError: the request has none.
    """
    if request.migration is None:
        raise RequestError("migration", "is missing")
    return request.migration


def complete_move(request: ClaimRequest, source: Claim) -> ClaimRequest:
    """Return a request for a move with what it leaves out of the workload as in the source."""
    given, known = request.workload, source.workload
    workload = Workload(
        given.uuid,
        move_of(request).workload_kind or known.kind,
        given.name or known.name,
        given.project_id or known.project_id,
        given.user_id or known.user_id,
    )
    return replace(request, workload=workload)


def list_contradictions(request: ClaimRequest, source: Claim) -> list[str]:
    """Return where a completed request contradicts the workload of its source.

    A workload may have been renamed since it was claimed.
    """
    given, known = request.workload, source.workload
    reasons = [
        f"workload.{name}: expected {render_value(expected)} as in claim {source.uuid}, "
        f"got {render_value(value)}"
        for name, expected, value in (
            ("kind", known.kind.value, given.kind.value),
            ("project_id", known.project_id, given.project_id),
            ("user_id", known.user_id, given.user_id),
        )
        if expected not in ("", value)
    ]
    vcpu_milli = request.amounts.vcpu_milli
    if given.kind is WorkloadKind.INSTANCE and vcpu_milli % MILLI:
        vcpus = whole_units(vcpu_milli, MILLI)
        reasons.append(f"resources.VCPU: expected a whole number for an instance, got {vcpus}")
    return reasons


def require_open(migration: Migration) -> Migration:
    """Return the migration that a request was granted unless it has ended at its source.

    Raises:
        RefusedError: it was reverted or cancelled.
    """
    if migration.status in (MigrationStatus.REVERTED, MigrationStatus.CANCELLED):
        raise RefusedError(
            f"migration {migration.uuid} was granted before and is {migration.status}; "
            f"use a uuid other than {migration.dest_claim}"
        )
    return migration


def decide_move(
    request: ClaimRequest, locked: LockedMove, policy: AdmissionPolicy
) -> LedgerWrite[Migration]:
    """Grant a move: claim its destination and keep its source.

    Raises:
        MoveSourceError: the source cannot be moved; with every reason, the
            destination's included.
        ClaimRefusedError: the workload does not fit on the destination; with
            every reason.
        RequestError: the request is not for a move.
    """
    source = locked.claims.get(move_of(request).source_claim)
    if source is not None:
        request = complete_move(request, source)
    reasons = _list_source_refusals(request, source, locked.migrations)
    if source is None or reasons:
        admission = evaluate_claim(request, locked.dest, policy)
        parts = [*[()] * len(reasons), *admission.parts]
        raise MoveSourceError([*reasons, *admission.reasons], parts=parts)
    refusals = list_dest_refusals(move_of(request), source, locked.dest.id)
    grant = decide_grant(request, locked.dest, policy, refusals)
    migration = _make_migration(request, source, grant.answer)
    is_same_node = source.node_id == locked.dest.id
    return LedgerWrite(
        migration,
        (*grant.notified, migration),
        new_claim=grant.new_claim,
        requirement=grant.requirement,
        nodes=grant.nodes if is_same_node else (*grant.nodes, NodeWrite(source.node_id)),
        new_migration=migration,
    )


def decide_move_confirm(locked: LockedMigration) -> LedgerWrite[Migration]:
    """End a migration at its destination: confirm the destination and release the source.

    Raises:
        RefusedError: the migration ended in another status, or its destination
            is no longer active.
    """
    migration = locked.migration
    status = confirmed_status(migration.migration_type)
    if migration.status is status:
        return _repeat(locked, migration.source_claim, migration.dest_claim)
    _require_not_ended(migration)
    dest = locked.claims.get(migration.dest_claim)
    if dest is None or not dest.is_active:
        raise RefusedError(
            f"migration {migration.uuid}: "
            f"{_describe_lost('destination', migration.dest_claim, dest)}; revert it"
        )
    is_confirmed = dest.state is ClaimState.CONFIRMED  # an audit has listed its guest
    confirmed = dest if is_confirmed else confirmed_claim(dest, locked.now)
    source = locked.claims.get(migration.source_claim)
    return _end(locked, status, source, ReleaseReason.MOVED, confirmed)


def decide_move_revert(locked: LockedMigration) -> LedgerWrite[Migration]:
    """End a migration at its source: keep the source and release the destination.

    Raises:
        RefusedError: the migration ended in another status, or only its
            destination is still active.
    """
    migration = locked.migration
    if migration.status is MigrationStatus.REVERTED:
        return _repeat(locked, migration.dest_claim)
    _require_not_ended(migration)
    source = locked.claims.get(migration.source_claim)
    dest = locked.claims.get(migration.dest_claim)
    is_source_lost = source is None or not source.is_active
    if is_source_lost and dest is not None and dest.is_active:
        raise RefusedError(
            f"migration {migration.uuid}: "
            f"{_describe_lost('source', migration.source_claim, source)}; "
            "confirm it, or abort the destination claim"
        )
    return _end(locked, MigrationStatus.REVERTED, dest, ReleaseReason.REVERTED)


def decide_move_status(locked: LockedMigration, status: MigrationStatus) -> LedgerWrite[Migration]:
    """Advance a migration without changing its claims.

    Raises:
        RefusedError: the transition is not allowed, or would end the migration.
    """
    migration = locked.migration
    if migration.status is status:
        return LedgerWrite(migration, (migration,))
    changed = replace(migration, status=status, updated_at=locked.now)
    if not changed.is_open or not can_transition(migration.status, status):
        raise RefusedError(
            f"migration {migration.uuid} is {migration.status} and cannot become {status}"
        )
    return LedgerWrite(
        changed,
        (changed,),
        nodes=tuple(NodeWrite(node_id) for node_id in locked.nodes),
        migration_step=MigrationStep(migration.uuid, status, locked.now),
    )


def decide_loss(
    migration: Migration, lost: Collection[tuple[str, str]], now: datetime
) -> MigrationStep | None:
    """Return the next status of an open migration when nodes are deleted with their claims.

    Without its destination it is cancelled, as when that claim is aborted; without its source
    alone it is in error, as when an audit finds that.

    Args:
        lost: host and nodename of each node.
    """
    if (migration.dest_host, migration.dest_node) in lost:
        return MigrationStep(migration.uuid, MigrationStatus.CANCELLED, now)
    if migration.is_running and (migration.source_host, migration.source_node) in lost:
        return MigrationStep(migration.uuid, MigrationStatus.ERROR, now)
    return None


def list_dest_refusals(wanted: MoveRequest, source: Claim, dest_id: int) -> list[str]:
    """Return why the source cannot be moved to this node, whatever is free there."""
    is_same_node = source.node_id == dest_id
    reasons = []
    if is_same_node and wanted.migration_type not in SAME_NODE_ALLOWED:
        reasons.append(f"node {source.nodename} of host {source.host} already has the workload")
    if not is_same_node and wanted.migration_type in SAME_NODE_REQUIRED:
        reasons.append(
            f"a {wanted.migration_type} must stay on node {source.nodename} of host {source.host}"
        )
    return reasons


def _end(
    locked: LockedMigration,
    status: MigrationStatus,
    closing: Claim | None,
    reason: ReleaseReason,
    confirmed: Claim | None = None,
) -> LedgerWrite[Migration]:
    """Release one side and confirm the other; the agents of all nodes read the migration again.

    Args:
        closing: the claim to release, None when it no longer exists. An
            expired one gets the reason too, so that no late guest reopens it.
        confirmed: the other side as confirmed, None when it is kept unchanged.
    """
    nodes, changed, closed = dict(locked.nodes), [], closing
    if confirmed is not None:
        nodes[confirmed.node_id] = confirm_devices(nodes[confirmed.node_id], confirmed)
        if confirmed != locked.claims[confirmed.uuid]:
            changed.append(confirmed)
    if closing is not None and (closing.is_active or closing.reason == ReleaseReason.EXPIRED):
        closed = released_claim(closing, reason, locked.now)
        changed.append(closed)
    if closing is not None and closing.is_active:
        node = nodes[closing.node_id]
        nodes[node.id] = remove_claim(node, closing, locked.list_others(closing))
    step = MigrationStep(locked.migration.uuid, status, locked.now)
    ended = step.advance(locked.migration)
    return LedgerWrite(
        ended,
        (*(claim for claim in (closed, confirmed) if claim is not None), ended),
        changed_claims=tuple(changed),
        nodes=tuple(diff_node(before, nodes[before.id]) for before in locked.nodes.values()),
        migration_step=step,
    )


def _repeat(locked: LockedMigration, *claims: str) -> LedgerWrite[Migration]:
    """Return the write of a call that has ended the migration before."""
    found = (locked.claims[uuid] for uuid in claims if uuid in locked.claims)
    return LedgerWrite(locked.migration, (*found, locked.migration))


def _list_source_refusals(
    request: ClaimRequest, source: Claim | None, migrations: Iterable[Migration]
) -> list[str]:
    """Return why the source cannot be moved to any destination.

    Args:
        migrations: of the workload.
    """
    uuid = move_of(request).source_claim
    if source is None:
        return [f"no such claim: {uuid}"]
    reasons = []
    if source.workload.uuid != request.workload.uuid:
        reasons.append(f"claim {uuid} belongs to workload {source.workload.uuid}")
    else:
        reasons += list_contradictions(request, source)
    if not source.is_active:
        reasons.append(f"claim {uuid} is released ({source.reason})")
    reasons += [
        f"claim {uuid} is part of migration {migration.uuid}, which is {migration.status}"
        for migration in migrations
        if migration.is_open and uuid in (migration.source_claim, migration.dest_claim)
    ]
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
        workload_name=dest.workload.name or source.workload.name,
    )


def _require_not_ended(migration: Migration) -> None:
    if not migration.is_open:
        raise RefusedError(f"migration {migration.uuid} is {migration.status}")


def _describe_lost(side: str, uuid: str, claim: Claim | None) -> str:
    state = "no longer exists" if claim is None else f"is released ({claim.reason})"
    return f"its {side} claim {uuid} {state}"
