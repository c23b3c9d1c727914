"""Find mismatches between a node's ledger and its guests and devices, as warnings."""

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
    """Return the mismatches after an audit."""
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
        if is_expired and is_recent and claim.workload.uuid not in guests:
            yield HostWarning(
                WarningKind.CLAIM_EXPIRED,
                nodename,
                claim.uuid,
                f"claim {claim.uuid} of workload {claim.workload.uuid} expired because its guest "
                "did not appear",
            )


def _find_drift(
    nodename: str, guests: Mapping[str, Guest], claims: Iterable[Claim]
) -> Iterable[HostWarning]:
    """Return guests that are larger than their claim, in what the claim requests.

    While a workload moves within its node it has two claims, and either may match.
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
                f"{guest.memory_mb} MB, but its claim {claim.uuid} has "
                f"{claimed_milli / MILLI:g} CPUs and {memory_mb} MB",
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
