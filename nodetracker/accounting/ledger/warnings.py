"""What an operator should look at in a node's ledger: what does not match what is there."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from nodetracker.model.claim import Claim, ClaimState, ReleaseReason
from nodetracker.model.guest import Guest
from nodetracker.model.migration import Move
from nodetracker.model.pci import PciStatus, TrackedDevice
from nodetracker.model.warning import REPORT_LIFETIME, HostWarning, WarningKind
from nodetracker.units import MILLI


def find_ledger_warnings(
    nodename: str,
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
    claims: Mapping[str, Claim],
    moves: Iterable[Move],
    now: datetime,
) -> list[HostWarning]:
    """Return what does not match, as it stands after an audit."""
    return [
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
                f"device {device.address} is gone from the host, and claim {device.claim_uuid} "
                "has it",
            )


def _find_expired_claims(
    nodename: str, guests: Mapping[str, Guest], claims: Iterable[Claim], now: datetime
) -> Iterable[HostWarning]:
    """Name claims that expired within the hour and whose guest did not come after all."""
    for claim in claims:
        is_recent = now - claim.updated_at < REPORT_LIFETIME
        is_expired = not claim.is_active and claim.reason == ReleaseReason.EXPIRED.value
        if is_expired and is_recent and claim.workload.uuid not in guests:
            yield HostWarning(
                WarningKind.CLAIM_EXPIRED,
                nodename,
                claim.uuid,
                f"claim {claim.uuid} of workload {claim.workload.uuid} has expired: its guest "
                "did not come",
            )


def _find_drift(
    nodename: str, guests: Mapping[str, Guest], claims: Iterable[Claim]
) -> Iterable[HostWarning]:
    """Name guests that have more than the one claim that covers them, of what it asks for.

    While a workload moves on its node it has two claims, and either may be right.
    """
    active = [claim for claim in claims if claim.is_active]
    counts = Counter(claim.workload.uuid for claim in active)
    for claim in active:
        guest = guests.get(claim.workload.uuid)
        if guest is None or guest.missing_since is not None or counts[guest.uuid] > 1:
            continue
        claimed_milli = claim.amounts.vcpu_milli + claim.amounts.pcpus * MILLI
        memory_mb = claim.amounts.memory_mb
        if 0 < claimed_milli < guest.vcpu_milli or 0 < memory_mb < guest.memory_mb:
            yield HostWarning(
                WarningKind.DRIFT,
                nodename,
                guest.uuid,
                f"guest {guest.name or guest.uuid} has {guest.vcpu_milli / MILLI:g} CPUs and "
                f"{guest.memory_mb} MB, and its claim {claim.uuid} {claimed_milli / MILLI:g} CPUs "
                f"and {memory_mb} MB",
            )


def _find_claimed_twice(
    nodename: str, claims: Iterable[Claim], moves: Iterable[Move]
) -> Iterable[HostWarning]:
    """Name workloads with several confirmed claims here that no open migration ties.

    Such as a request without a uuid leaves that was asked again: both claims
    are confirmed when the guest comes, and both are charged from then on.
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
                f"workload {workload_uuid} holds claims {', '.join(sorted(uuids))} here, all of "
                "them are charged, and no migration ties them",
            )
