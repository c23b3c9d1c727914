"""Find mismatches between a node's ledger and its guests and devices, as warnings."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from nodetracker.accounting.ledger.moves import list_moving
from nodetracker.accounting.ledger.overcommit import find_capacity_warnings
from nodetracker.model.claim import Claim, ClaimState, Move, ReleaseReason
from nodetracker.model.guest import Guest, GuestListing
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import PciStatus, TrackedDevice
from nodetracker.model.units import MILLI, whole_units
from nodetracker.model.warning import REPORT_LIFETIME, HostWarning, WarningKind


def find_ledger_warnings(
    nodename: str,
    values: NodeValues,
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
    claims: Mapping[str, Claim],
    moves: Iterable[Move],
    now: datetime,
) -> list[HostWarning]:
    """Return the mismatches after an audit."""
    return [
        *find_capacity_warnings(nodename, values, guests.values()),
        *_find_missing_devices(nodename, devices.values()),
        *_find_expired_claims(nodename, guests, claims.values(), now),
        *_find_drift(nodename, guests, claims.values()),
        *_find_claimed_twice(nodename, claims.values(), moves),
    ]


def _find_missing_devices(nodename: str, devices: Iterable[TrackedDevice]) -> Iterable[HostWarning]:
    for device in devices:
        if device.status is PciStatus.REMOVED:
            yield HostWarning(
                WarningKind.PCI_DEVICE_MISSING,
                nodename,
                device.address,
                f"device {device.address} is no longer on the host but is still assigned to claim "
                f"{device.claim_uuid}",
            )


def _find_expired_claims(
    nodename: str, guests: Mapping[str, Guest], claims: Iterable[Claim], now: datetime
) -> Iterable[HostWarning]:
    """Return claims that expired within the last hour and whose guest has not appeared."""
    for claim in claims:
        is_recent = now - claim.updated_at < REPORT_LIFETIME
        is_expired = not claim.is_active and claim.reason == ReleaseReason.EXPIRED.value
        guest = guests.get(claim.workload.uuid)
        has_guest = guest is not None and claim.workload.may_be(guest)
        if is_expired and is_recent and not has_guest:
            yield HostWarning(
                WarningKind.CLAIM_EXPIRED,
                nodename,
                claim.uuid,
                f"claim {claim.uuid} of workload {claim.workload.uuid} expired because its guest "
                "did not appear",
            )


def find_unused_claims(
    nodename: str,
    listing: GuestListing | None,
    guests: Mapping[str, Guest],
    claims: Iterable[Claim],
    moves: Iterable[Move],
    before: datetime,
) -> list[HostWarning]:
    """Return claims that were confirmed by command and whose guest has not been listed since.

    They never expire. A guest that is moving may not have arrived yet.

    Args:
        listing: the newest; one that failed or is incomplete proves no absence.
        guests: uuid -> guest that is listed, or was.
        before: a claim confirmed since then may still get its guest.
    """
    if listing is None or not listing.has_source:
        return []
    moving = list_moving(moves)
    return [
        HostWarning(
            WarningKind.CLAIM_UNUSED,
            nodename,
            claim.uuid,
            f"claim {claim.uuid} of workload {claim.workload.uuid} is confirmed and charged, but "
            "its guest has not been listed since",
        )
        for claim in claims
        if claim.state is ClaimState.CONFIRMED
        and claim.updated_at < before
        and claim.workload.uuid not in guests
        and claim.workload.uuid not in moving
        and listing.is_complete_for(claim.workload.kind)
    ]


def _find_drift(
    nodename: str, guests: Mapping[str, Guest], claims: Iterable[Claim]
) -> Iterable[HostWarning]:
    """Return guests that are larger than their claims together, in what these request."""
    by_workload: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.is_active:
            by_workload[claim.workload.uuid].append(claim)
    for uuid, mine in by_workload.items():
        guest = guests.get(uuid)
        if guest is None or guest.missing_since is not None or guest.claim_uuid is None:
            continue
        cpu_milli = sum(c.amounts.vcpu_milli + c.amounts.pcpus * MILLI for c in mine)
        memory_mb = sum(c.amounts.memory_mb for c in mine)
        disk_mb = sum(c.amounts.disk_mb for c in mine)
        larger = [
            f"{whole_units(own, parts)} {what} instead of {whole_units(claimed, parts)}"
            for own, claimed, parts, what in (
                (guest.vcpu_milli, cpu_milli, MILLI, "CPUs"),
                (guest.memory_mb, memory_mb, 1, "MiB of memory"),
                (guest.disk_mb, disk_mb, 1, "MiB of disk"),
            )
            if 0 < claimed < own
        ]
        if larger:
            yield HostWarning(
                WarningKind.DRIFT,
                nodename,
                uuid,
                f"guest {guest.name or uuid} is larger than its claim "
                f"{', '.join(c.uuid for c in mine)} and counts in full: {', '.join(larger)}",
            )


def _find_claimed_twice(
    nodename: str, claims: Iterable[Claim], moves: Iterable[Move]
) -> Iterable[HostWarning]:
    """Return workloads with several confirmed claims here that no open migration ties.

    A request without a uuid that was sent twice leaves such claims: both are
    confirmed when the guest appears, and both are charged from then on.
    """
    tied = {(move.migration.source_claim, move.migration.dest_claim) for move in moves}
    confirmed: dict[str, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.state is ClaimState.CONFIRMED:
            confirmed[claim.workload.uuid].append(claim.uuid)
    for workload_uuid, uuids in confirmed.items():
        is_tied = any(source in uuids and dest in uuids for source, dest in tied)
        if len(uuids) > (2 if is_tied else 1):
            yield HostWarning(
                WarningKind.CLAIMED_TWICE,
                nodename,
                workload_uuid,
                f"workload {workload_uuid} holds claims {', '.join(sorted(uuids))} on this node; "
                "each of them is charged, and no migration ties them",
            )
