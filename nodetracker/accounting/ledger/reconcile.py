"""Reconcile a node's claims with a listing of its guests: confirm, expire, reopen, release.

One listing of a guest confirms its claim; only complete listings show that a
guest is absent. A held claim expires when a complete listing that started
after its expiry time lacks its guest, so an outage prolongs it. A confirmed
claim whose guest vanished is flagged and remains charged, unless the driver
reported since the claim's creation that the guest may be gone (libvirt does so at
every stop but a save or migration): then it is released.

A claim that the agent made when a guest was started ends with the guest's run: a complete
listing that began after the claim and has the guest switched off, or not at all, releases it.

A guest of another kind or project than a claim, such as a container with
somebody else's uuid in its label, is not the claim's guest.

Afterwards its open migrations are evaluated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodetracker.accounting.numa.cells import find_conflicts, list_guest_assignments
from nodetracker.model.claim import Claim, ClaimState, MigrationStatus, Move, ReleaseReason
from nodetracker.model.fact import Fact
from nodetracker.model.guest import (
    ARRIVING,
    Guest,
    GuestListing,
    PartialGuest,
    PowerState,
    WorkloadKind,
)
from nodetracker.model.numa import HostCell
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.warning import HostWarning, WarningKind

ABSENT_LISTINGS = 2
"""Consecutive complete listings without a claimed guest before it is flagged as missing."""


@dataclass(frozen=True, slots=True)
class ListingEvidence:
    """When a listing started, and which guests had been absent or deleted by then.

    Attributes:
        started_at: start of the listing by the database's clock.
        absences: claim uuid -> consecutive complete listings, this one
            included, without its guest since the claim was known.
        deleted: uuid -> when the driver reported that the guest may be gone,
            before this listing started.
    """

    started_at: datetime
    absences: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Claims and guests after a listing.

    Attributes:
        claims: all of the node's, changed or not.
        guests: each with the claim that is assigned to it.
    """

    claims: Mapping[str, Claim]
    guests: Mapping[str, Guest]
    warnings: tuple[HostWarning, ...] = ()


def reconcile_claims(
    nodename: str,
    claims: Mapping[str, Claim],
    stored: Mapping[str, Guest],
    fact: Fact[GuestListing],
    evidence: ListingEvidence,
    cells: Sequence[HostCell] = (),
    devices: Mapping[str, TrackedDevice] | None = None,
    departing: Collection[str] = (),
) -> Reconciliation:
    """Reconcile a node's claims with a listing of its guests.

    Args:
        claims: uuid -> claim, active or expired.
        stored: uuid -> guest as stored in the row.
        fact: the listing; a failed or incomplete one proves no absence.
        cells: the node's NUMA cells; a late guest's pins must still be free on them.
        devices: the node's PCI devices; a late guest's must still be free.
        departing: claims whose guests may vanish without a warning.
    """
    listing = fact.value
    if listing is None:
        return Reconciliation(claims, stored)
    listed, present = {guest.uuid: guest for guest in listing.guests}, _list_present(listing)
    reconciled = {
        uuid: claim
        if claim.damaged
        else _reconcile_claim(claim, present, stored, listing, evidence, departing)
        for uuid, claim in claims.items()
    }
    active = _group_claims(claim for claim in reconciled.values() if claim.is_active)
    expired = _group_claims(c for c in reconciled.values() if c.reason == ReleaseReason.EXPIRED)
    holders = _find_holders(listed.values(), active)
    warnings = [
        _mismatch(nodename, listed[uuid], active[uuid][-1])
        for uuid in sorted((listed.keys() & active.keys()) - holders.keys())
    ]
    late_claims = _find_holders(listed.values(), expired)
    for uuid in sorted(late_claims.keys() - holders.keys()):
        late = late_claims[uuid]
        others = (
            replace(guest, claim_uuid=_uuid_of(holders.get(guest.uuid)))
            for guest in listed.values()
            if guest.uuid != uuid
        )
        if not _may_reopen(late, reconciled.values(), others, cells, devices or {}):
            warnings.append(_lost(nodename, listed[uuid], late))
        else:
            reconciled[late.uuid] = holders[uuid] = _reopen(late)
    guests = {
        uuid: replace(guest, claim_uuid=_uuid_of(holders.get(uuid)), missing_since=None)
        for uuid, guest in listed.items()
    }
    unlisted, vanished = _keep_unlisted(stored, listing, active, evidence)
    warnings += [
        _vanished(nodename, guest, holder)
        for guest, holder in vanished
        if holder.uuid not in departing
    ]
    guests |= unlisted
    return Reconciliation(reconciled, guests, tuple(warnings))


def _keep_unlisted(
    stored: Mapping[str, Guest],
    listing: GuestListing,
    active: Mapping[str, Sequence[Claim]],
    evidence: ListingEvidence,
) -> tuple[dict[str, Guest], list[tuple[Guest, Claim]]]:
    """Return the stored guests that are not listed and remain in the row.

    Args:
        active: workload uuid -> its active claims, oldest first.

    Returns:
        The guests, and those of them that vanished though they have a claim, with it.
    """
    listed = listing.uuids
    kept: dict[str, Guest] = {}
    vanished: list[tuple[Guest, Claim]] = []
    holders = _find_holders(stored.values(), active)
    for uuid, guest in stored.items():
        holder = holders.get(uuid)
        if uuid in listed:
            continue
        if not listing.shows_absence(uuid, guest.kind):
            kept[uuid] = replace(guest, claim_uuid=_uuid_of(holder))
        elif holder is not None:
            missing = guest.missing_since
            if missing is None and evidence.absences.get(holder.uuid, 0) >= ABSENT_LISTINGS:
                missing = evidence.started_at
            kept[uuid] = replace(guest, claim_uuid=holder.uuid, missing_since=missing)
            if missing is not None:
                vanished.append((guest, holder))
    return kept, vanished


def count_absences(
    known: Iterable[Claim],
    fact: Fact[GuestListing],
    before: Mapping[str, int],
) -> dict[str, int]:
    """Return how many consecutive complete listings lacked the guest of each claim.

    Args:
        known: active claims that were known when the listing started.
        before: the counts of the previous listing.
    """
    if fact.value is None:
        return dict(before)
    present = _list_present(fact.value)
    counts = {}
    for claim in known:
        if fact.value.shows_absence(claim.workload.uuid, claim.workload.kind):
            if not _is_present(claim, present):
                counts[claim.uuid] = before.get(claim.uuid, 0) + 1
        elif claim.uuid in before:
            counts[claim.uuid] = before[claim.uuid]
    return counts


def _list_present(listing: GuestListing) -> dict[str, Guest | PartialGuest]:
    """Return uuid -> guest of all that exist, as complete as they are known."""
    present: dict[str, Guest | PartialGuest] = {guest.uuid: guest for guest in listing.partial}
    return present | {guest.uuid: guest for guest in listing.guests}


def _is_present(claim: Claim, present: Mapping[str, Guest | PartialGuest]) -> bool:
    guest = present.get(claim.workload.uuid)
    return guest is not None and claim.workload.may_be(guest)


def _group_claims(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return workload uuid -> its claims, oldest first."""
    groups: dict[str, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: (claim.created_at, claim.uuid)):
        groups.setdefault(claim.workload.uuid, []).append(claim)
    return groups


def _find_holders(
    guests: Iterable[Guest], groups: Mapping[str, Sequence[Claim]]
) -> dict[str, Claim]:
    """Return uuid of a guest -> the newest claim of `groups` that it may belong to."""
    return {
        guest.uuid: claim
        for guest in guests
        for claim in groups.get(guest.uuid, ())
        if claim.workload.may_be(guest)
    }


def _reconcile_claim(
    claim: Claim,
    present: Mapping[str, Guest | PartialGuest],
    stored: Mapping[str, Guest],
    listing: GuestListing,
    evidence: ListingEvidence,
    departing: Collection[str],
) -> Claim:
    workload = claim.workload
    if claim.is_active and claim.by_door and claim.uuid not in departing:
        return _reconcile_start(claim, present.get(workload.uuid), listing, evidence)
    if not (claim.is_active and listing.shows_absence(workload.uuid, workload.kind)):
        return claim
    is_listed = _is_present(claim, present)
    if claim.state is ClaimState.CONFIRMED:
        uuid = workload.uuid
        deleted_at = evidence.deleted.get(uuid)
        is_deleted = deleted_at is not None and claim.created_at < deleted_at
        if is_deleted and uuid in stored and not claim.workload.may_be(stored[uuid]):
            return claim  # another guest with its uuid was deleted
        return claim if is_listed or not is_deleted else _released(claim, ReleaseReason.DELETED)
    if is_listed:
        return replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
    if claim.expires_at is not None and claim.expires_at < evidence.started_at:
        return _released(claim, ReleaseReason.EXPIRED)
    return claim


def _reconcile_start(
    claim: Claim,
    guest: Guest | PartialGuest | None,
    listing: GuestListing,
    evidence: ListingEvidence,
) -> Claim:
    if guest is not None and not claim.workload.may_be(guest):
        guest = None
    if guest is not None and guest.power_state is not PowerState.SHUTDOWN:
        if claim.state is ClaimState.CONFIRMED or (guest.details or {}).get(ARRIVING):
            return claim
        return replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
    if guest is None and not listing.shows_absence(claim.workload.uuid, claim.workload.kind):
        return claim
    if claim.state is ClaimState.CONFIRMED:
        has_stopped = claim.updated_at < evidence.started_at
        return _released(claim, ReleaseReason.STOPPED) if has_stopped else claim
    if claim.expires_at is not None and claim.expires_at < evidence.started_at:
        return _released(claim, ReleaseReason.STOPPED)
    return claim


def _reopen(claim: Claim) -> Claim:
    return replace(claim, state=ClaimState.CONFIRMED, reason="", expires_at=None)


def _released(claim: Claim, reason: ReleaseReason) -> Claim:
    return replace(claim, state=ClaimState.RELEASED, reason=reason.value)


def _may_reopen(
    late: Claim,
    claims: Iterable[Claim],
    guests: Iterable[Guest],
    cells: Sequence[HostCell],
    devices: Mapping[str, TrackedDevice],
) -> bool:
    """Return whether the CPUs, pages and devices of an expired claim are still free."""
    if any(
        address not in devices
        or not (devices[address].is_available or devices[address].claim_uuid == late.workload.uuid)
        for address in late.devices
    ):
        return False
    if late.numa is None:
        return True
    assignments = {claim.uuid: claim.numa for claim in claims if claim.is_active and claim.numa}
    assignments |= list_guest_assignments(guests)
    before = find_conflicts(cells, assignments)
    return find_conflicts(cells, assignments | {late.uuid: late.numa}) == before


def _uuid_of(claim: Claim | None) -> str | None:
    return None if claim is None else claim.uuid


def _lost(nodename: str, guest: Guest, claim: Claim) -> HostWarning:
    return HostWarning(
        WarningKind.CLAIM_LOST,
        nodename,
        guest.uuid,
        f"guest {guest.name or guest.uuid} appeared after its claim {claim.uuid} had expired, and "
        "its CPUs, pages or devices are in use by now; it counts as unclaimed",
    )


def _mismatch(nodename: str, guest: Guest, claim: Claim) -> HostWarning:
    return HostWarning(
        WarningKind.CLAIM_MISMATCH,
        nodename,
        guest.uuid,
        f"guest {guest.name or guest.uuid} ({_describe(guest.kind, guest.project_id)}) has the "
        f"workload uuid of claim {claim.uuid} "
        f"({_describe(claim.workload.kind, claim.workload.project_id)}); it does not confirm the "
        "claim and counts as unclaimed",
    )


def _describe(kind: WorkloadKind, project_id: str) -> str:
    return f"{kind}, project {project_id}" if project_id else f"{kind}, project unknown"


def _vanished(nodename: str, guest: Guest, claim: Claim) -> HostWarning:
    return HostWarning(
        WarningKind.GUEST_VANISHED,
        nodename,
        guest.uuid,
        f"guest {guest.name or guest.uuid} is no longer listed; its claim {claim.uuid} is kept",
    )


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
            text = _explain_error(now, claims)
            warnings.append(
                HostWarning(WarningKind.MIGRATION_ERROR, nodename, migration.uuid, text)
            )
    return tuple(evaluated), tuple(warnings)


def _is_active(claims: Mapping[str, Claim], uuid: str, as_read: bool) -> bool:
    claim = claims.get(uuid)
    return as_read if claim is None else claim.is_active


def _explain_error(move: Move, claims: Mapping[str, Claim]) -> str:
    migration = move.migration
    here = [claims.get(uuid) for uuid in (migration.source_claim, migration.dest_claim)]
    label = next((claim.workload.label for claim in here if claim), migration.workload_uuid)
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
        f"{migration.migration_type} {migration.uuid} of workload {label} from "
        f"{migration.source_host} to {migration.dest_host} is in error ({why}); "
        "confirm or revert it"
    )
