"""Evaluate a node's open migrations in audits, and check requests for moves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodetracker.model.claim import (
    Claim,
    ClaimRequest,
    Migration,
    MigrationStatus,
    Move,
    MoveRequest,
    Workload,
)
from nodetracker.model.errors import RefusedError, RequestError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.text import render_value
from nodetracker.model.units import MILLI, whole_units
from nodetracker.model.warning import HostWarning, WarningKind


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
    """Return what a completed request says of the workload that cannot be true of the source's.

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


def list_departing(moves: Iterable[Move]) -> frozenset[str]:
    """Return the claims whose guests may have left for another node as part of a move."""
    return frozenset(
        move.migration.source_claim
        for move in moves
        if move.migration.is_running and not move.migration.is_on_one_node
    )


def list_moving(moves: Iterable[Move]) -> frozenset[str]:
    """Return the workloads that are being moved: their guests may appear and disappear."""
    return frozenset(move.migration.workload_uuid for move in moves if move.migration.is_running)


def evaluate_moves(
    nodename: str, moves: Sequence[Move], claims: Mapping[str, Claim]
) -> tuple[tuple[Move, ...], tuple[HostWarning, ...]]:
    """Return a node's open migrations after its claims were reconciled, and warnings.

    A running migration whose source or destination is no longer active is in
    error: audits leave it alone, and a warning is active until it ends.
    """
    evaluated = []
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
        evaluated.append(now)
        if not now.migration.is_running:
            warnings.append(
                HostWarning(
                    WarningKind.MIGRATION_ERROR, nodename, migration.uuid, _explain_error(now)
                )
            )
    return tuple(evaluated), tuple(warnings)


def _is_active(claims: Mapping[str, Claim], uuid: str, as_read: bool) -> bool:
    claim = claims.get(uuid)
    return as_read if claim is None else claim.is_active


def _explain_error(move: Move) -> str:
    migration = move.migration
    lost = [
        f"its {side} claim {uuid} is no longer active"
        for side, uuid, is_active in (
            ("source", migration.source_claim, move.is_source_active),
            ("destination", migration.dest_claim, move.is_dest_active),
        )
        if not is_active
    ]
    why = " and ".join(lost) or "both of its claims are active"
    return (
        f"{migration.migration_type} {migration.uuid} of workload {migration.workload_uuid} from "
        f"{migration.source_host} to {migration.dest_host} is in error ({why}); "
        "confirm or revert it"
    )
