"""What an operator should look at in a node's ledger: what does not match what is there."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from nodetracker.model.claim import Claim, ReleaseReason
from nodetracker.model.guest import Guest
from nodetracker.model.pci import PciStatus, TrackedDevice
from nodetracker.model.warning import REPORT_LASTS, HostWarning, WarningKind
from nodetracker.units import MILLI


def find_ledger_warnings(
    nodename: str,
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
    claims: Mapping[str, Claim],
    now: datetime,
) -> list[HostWarning]:
    """Return what does not match, as it stands after an audit."""
    return [
        *_find_missing_devices(nodename, devices.values()),
        *_find_expired_claims(nodename, guests, claims.values(), now),
        *_find_drift(nodename, guests, claims.values()),
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
        is_recent = now - claim.updated_at < REPORT_LASTS
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
