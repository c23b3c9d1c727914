"""Moves: what starting, ending and auditing a migration does to its two claims. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nodetracker.errors import RefusedError, RequestError
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, ReleaseReason
from nodetracker.model.migration import (
    SAME_NODE_ALLOWED,
    SAME_NODE_REQUIRED,
    Migration,
    MigrationStatus,
    Move,
    MoveRequest,
    can_transition,
    confirmed_status,
)
from nodetracker.model.warning import HostWarning, WarningKind


def move_of(request: ClaimRequest) -> MoveRequest:
    """Return what a request says of a move.

    Raises:
        RequestError: it asks for none.
    """
    if request.migration is None:
        raise RequestError("migration", "is missing")
    return request.migration


def check_is_no_move(request: ClaimRequest) -> None:
    """Make sure that a request does not ask for a move.

    Raises:
        RequestError: it does.
    """
    if request.migration is not None:
        raise RequestError("migration", "makes it a request for a migration and not for a claim")


def move_reasons(
    request: ClaimRequest,
    claims: Mapping[str, Claim],
    migrations: Iterable[Migration],
    dest_node_id: int,
) -> list[str]:
    """Say why a move cannot begin, whatever room there is at its destination.

    Args:
        claims: the workload's own and the source's, by uuid.
        migrations: the workload's.
    """
    wanted = move_of(request)
    uuid = wanted.source_claim
    source = claims.get(uuid)
    if source is None:
        return [f"no such claim: {uuid}"]
    reasons = []
    if source.workload.uuid != request.workload.uuid:
        reasons.append(f"claim {uuid} is of workload {source.workload.uuid}")
    if not source.is_active:
        reasons.append(f"claim {uuid} is released ({source.reason})")
    reasons += [
        f"claim {uuid} is a part of migration {migration.uuid}, which is {migration.status}"
        for migration in migrations
        if migration.is_open and uuid in (migration.source_claim, migration.dest_claim)
    ]
    is_staying = source.node_id == dest_node_id
    if is_staying and wanted.migration_type not in SAME_NODE_ALLOWED:
        reasons.append(f"node {source.nodename} of host {source.host} has the workload already")
    if not is_staying and wanted.migration_type in SAME_NODE_REQUIRED:
        reasons.append(
            f"a {wanted.migration_type} stays on node {source.nodename} of host {source.host}"
        )
    return reasons


def make_migration(request: ClaimRequest, source: Claim, dest: Claim) -> Migration:
    """Build the migration of a move whose destination was admitted."""
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


def require_open(migration: Migration) -> Migration:
    """Return a migration that a request was granted, now or before, if its destination counts.

    Raises:
        RefusedError: it ended at its source.
    """
    if migration.status in (MigrationStatus.REVERTED, MigrationStatus.CANCELLED):
        raise RefusedError(
            f"migration {migration.uuid} was granted before and is {migration.status}; "
            f"ask with another uuid than {migration.dest_claim}"
        )
    return migration


@dataclass(frozen=True, slots=True)
class Ending:
    """What ends a migration.

    Attributes:
        released: the claim to release and why; None when it is gone. One that
            expired before is told the reason too, so that no late guest takes
            it up again.
        confirmed: the claim that stays, as it shall be; None when it stays as it is.
    """

    migration: Migration
    released: tuple[Claim, ReleaseReason] | None = None
    confirmed: Claim | None = None


def plan_confirm(migration: Migration, claims: Mapping[str, Claim], now: datetime) -> Ending | None:
    """Say what confirming does: the destination stays, the source is released.

    Args:
        claims: the workload's, by uuid.

    Returns:
        None when it is confirmed already.

    Raises:
        RefusedError: it ended otherwise, or its destination does not count any more.
    """
    status = confirmed_status(migration.migration_type)
    if migration.status is status:
        return None
    _check_open(migration)
    dest = claims.get(migration.dest_claim)
    if dest is None or not dest.is_active:
        raise RefusedError(
            f"migration {migration.uuid}: {_lost('destination', migration.dest_claim, dest)}; "
            "revert it"
        )
    return Ending(
        replace(migration, status=status, updated_at=now),
        _closing(claims.get(migration.source_claim), ReleaseReason.MOVED),
        replace(dest, state=ClaimState.CONFIRMED, expires_at=None, updated_at=now),
    )


def plan_revert(migration: Migration, claims: Mapping[str, Claim], now: datetime) -> Ending | None:
    """Say what reverting does: the source stays, the destination is released.

    Raises:
        RefusedError: it ended otherwise, or the destination is all that is left.
    """
    if migration.status is MigrationStatus.REVERTED:
        return None
    _check_open(migration)
    source, dest = claims.get(migration.source_claim), claims.get(migration.dest_claim)
    is_source_lost = source is None or not source.is_active
    if is_source_lost and dest is not None and dest.is_active:
        raise RefusedError(
            f"migration {migration.uuid}: {_lost('source', migration.source_claim, source)}; "
            "confirm it, or abort the destination's claim"
        )
    return Ending(
        replace(migration, status=MigrationStatus.REVERTED, updated_at=now),
        _closing(dest, ReleaseReason.REVERTED),
    )


def plan_status(migration: Migration, status: MigrationStatus, now: datetime) -> Ending | None:
    """Say what telling how far a migration is does: to its claims, nothing.

    Raises:
        RefusedError: the status may not follow, or is an end, which has a call of its own.
    """
    if migration.status is status:
        return None
    changed = replace(migration, status=status, updated_at=now)
    if not changed.is_open or not can_transition(migration.status, status):
        raise RefusedError(f"migration {migration.uuid} is {migration.status}, not to be {status}")
    return Ending(changed)


def check_not_moving(claim: Claim, migration_uuid: str | None) -> None:
    """Make sure that a claim may be aborted.

    Args:
        migration_uuid: of the running migration whose source it is.

    Raises:
        RefusedError: there is one.
    """
    if claim.is_active and migration_uuid is not None:
        raise RefusedError(
            f"claim {claim.uuid} is the source of migration {migration_uuid}; "
            "confirm or revert that one"
        )


def list_departing(moves: Iterable[Move]) -> frozenset[str]:
    """Return the claims whose guests may have left for another node: no wonder if they did."""
    return frozenset(
        move.migration.source_claim
        for move in moves
        if move.migration.is_running and not move.migration.is_on_one_node
    )


def list_moving(moves: Iterable[Move]) -> frozenset[str]:
    """Return the workloads that are being moved: their guests go and come as part of it."""
    return frozenset(move.migration.workload_uuid for move in moves if move.migration.is_running)


def evaluate_moves(
    nodename: str, moves: Sequence[Move], claims: Mapping[str, Claim]
) -> tuple[tuple[Move, ...], tuple[HostWarning, ...]]:
    """Judge a node's open migrations by its claims as an audit has settled them.

    A running one of which a claim does not count any more is in error: it is
    left alone from then on, and warned of until somebody ends it.
    """
    judged = []
    warnings = []
    for move in moves:
        migration = move.migration
        now = replace(
            move,
            is_source_active=_is_active(claims, migration.source_claim, move.is_source_active),
            is_dest_active=_is_active(claims, migration.dest_claim, move.is_dest_active),
        )
        if migration.is_running and not (now.is_source_active and now.is_dest_active):
            now = replace(now, migration=replace(migration, status=MigrationStatus.ERROR))
        judged.append(now)
        if not now.migration.is_running:
            warnings.append(
                HostWarning(
                    WarningKind.MIGRATION_ERROR, nodename, migration.uuid, _explain_error(now)
                )
            )
    return tuple(judged), tuple(warnings)


def _is_active(claims: Mapping[str, Claim], uuid: str, as_read: bool) -> bool:
    claim = claims.get(uuid)
    return as_read if claim is None else claim.is_active


def _explain_error(move: Move) -> str:
    migration = move.migration
    lost = [
        f"its {side}'s claim {uuid} does not count any more"
        for side, uuid, is_active in (
            ("source", migration.source_claim, move.is_source_active),
            ("destination", migration.dest_claim, move.is_dest_active),
        )
        if not is_active
    ]
    told = " and ".join(lost) or "both of its claims count"
    return (
        f"{migration.migration_type} {migration.uuid} of workload {migration.workload_uuid} from "
        f"{migration.source_host} to {migration.dest_host} is in error ({told}); "
        "confirm or revert it"
    )


def _check_open(migration: Migration) -> None:
    if not migration.is_open:
        raise RefusedError(f"migration {migration.uuid} is {migration.status}")


def _closing(claim: Claim | None, reason: ReleaseReason) -> tuple[Claim, ReleaseReason] | None:
    if claim is None or not (claim.is_active or claim.reason == ReleaseReason.EXPIRED):
        return None
    return claim, reason


def _lost(side: str, uuid: str, claim: Claim | None) -> str:
    state = "gone" if claim is None else f"released ({claim.reason})"
    return f"its {side}'s claim {uuid} is {state}"
