"""Decide the confirmation, renewal and abort of granted claims."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetracker.accounting.ledger.locked import LockedClaim
from nodetracker.accounting.ledger.node_claims import confirm_devices, diff_node, remove_claim
from nodetracker.accounting.ledger.write import LedgerWrite, MigrationStep, NodeWrite
from nodetracker.model.claim import Claim, ClaimState, MigrationStatus, ReleaseReason
from nodetracker.model.errors import RefusedError


def decide_confirm(locked: LockedClaim) -> LedgerWrite[Claim]:
    """Confirm a claim: it no longer expires, and its devices are allocated.

    Raises:
        RefusedError: the claim is released.
    """
    _require_not_released(locked.claim)
    if locked.claim.state is ClaimState.CONFIRMED:
        return LedgerWrite(locked.claim)
    confirmed = confirmed_claim(locked.claim, locked.node.now)
    after = confirm_devices(locked.node, confirmed)
    return LedgerWrite(
        confirmed, changed_claims=(confirmed,), nodes=(diff_node(locked.node, after),)
    )


def decide_renew(locked: LockedClaim, claim_timeout: int) -> LedgerWrite[Claim]:
    """Postpone the expiry of a held claim, counted from now; a confirmed one never expires.

    Raises:
        RefusedError: the claim is released.
    """
    _require_not_released(locked.claim)
    if locked.claim.state is ClaimState.CONFIRMED:
        return LedgerWrite(locked.claim)
    now = locked.node.now
    expires_at = now + timedelta(seconds=claim_timeout)
    if expires_at == locked.claim.expires_at:
        return LedgerWrite(locked.claim)
    renewed = replace(locked.claim, expires_at=expires_at, updated_at=now)
    return LedgerWrite(renewed, changed_claims=(renewed,), nodes=(NodeWrite(locked.node.id),))


def decide_abort(locked: LockedClaim) -> LedgerWrite[Claim]:
    """Release a claim and cancel the migration whose destination it is.

    A claim that is already released is left unchanged. The agents of both ends of
    a migration read it again.

    Raises:
        RefusedError: the claim is the source of a running migration.
    """
    claim, node = locked.claim, locked.node
    if not claim.is_active:
        return LedgerWrite(claim)
    if locked.source_of is not None:
        raise RefusedError(
            f"claim {claim.uuid} is the source of migration {locked.source_of}; "
            "confirm or revert the migration"
        )
    released = released_claim(claim, ReleaseReason.ABORTED, node.now)
    own = diff_node(node, remove_claim(node, claim, locked.others))
    cancelled = None
    if locked.destination_of is not None:
        cancelled = MigrationStep(locked.destination_of, MigrationStatus.CANCELLED, node.now)
    return LedgerWrite(
        released,
        changed_claims=(released,),
        nodes=(own, *map(NodeWrite, locked.other_ends)),
        migration_step=cancelled,
    )


def confirmed_claim(claim: Claim, now: datetime) -> Claim:
    """Return the confirmed claim."""
    return replace(claim, state=ClaimState.CONFIRMED, expires_at=None, updated_at=now)


def released_claim(claim: Claim, reason: ReleaseReason, now: datetime) -> Claim:
    """Return the released claim."""
    return replace(
        claim,
        state=ClaimState.RELEASED,
        reason=reason.value,
        expires_at=None,
        updated_at=now,
    )


def _require_not_released(claim: Claim) -> None:
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
