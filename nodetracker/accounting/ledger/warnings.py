"""Find guests that are larger than their node, and resources that are used beyond their limit."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from nodetracker.accounting.ledger.admission import (
    FACTS,
    Capacity,
    list_capacities,
    ordinary_capacity,
)
from nodetracker.accounting.ledger.reconcile import list_moving
from nodetracker.accounting.pci.state import list_group_users
from nodetracker.model.amount_text import Role, render_parts
from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, VCPU, Amounts
from nodetracker.model.claim import Claim, ClaimState, Move, ReleaseReason
from nodetracker.model.fact import FactState
from nodetracker.model.guest import Guest, GuestListing, PowerState, WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import PciDevice, PciStatus, TrackedDevice
from nodetracker.model.text import count_noun
from nodetracker.model.units import MIB_PER_GIB, MILLI
from nodetracker.model.warning import NO_ITEM, REPORT_LIFETIME, HostWarning, WarningKind

_LABELS = {VCPU: "CPUs", MEMORY: "of memory", DISK: "of disk"}

NAMED_CLAIMS = 3
"""Expired claims that a warning names, the last ones."""


def find_capacity_warnings(
    nodename: str, values: NodeValues, guests: Iterable[Guest]
) -> list[HostWarning]:
    """Return warnings of guests larger than the node and of overcommitted resources.

    Guests are charged in full all the same. A node whose driver does not track
    resources has none of these warnings, nor has a resource that was never read.
    """
    if not values.tracks_resources:
        return []
    capacities = list_capacities(values)
    unread = {name for name, capacity in capacities.items() if _is_unread(values, name, capacity)}
    listed = [guest for guest in guests if guest.missing_since is None]
    large = [_explain_guest(nodename, values, guest, unread) for guest in listed]
    read = {name: item for name, item in capacities.items() if name not in unread}
    ordinary = ordinary_capacity(values)
    read |= {} if ordinary is None or MEMORY in unread else {ORDINARY: ordinary}
    return [*filter(None, large), *_find_overcommitted(nodename, read)]


def _is_unread(values: NodeValues, resource: str, capacity: Capacity) -> bool:
    """Return whether the row has no capacity of a resource because its fact is unknown."""
    entry = values.facts.get(FACTS[resource])
    is_unknown = entry is not None and entry.state is FactState.UNKNOWN
    return is_unknown and not capacity.total


def _explain_guest(
    nodename: str, values: NodeValues, guest: Guest, unread: Collection[str]
) -> HostWarning | None:
    """Return the warning of a guest that has more of a resource than the whole node."""
    total = Amounts(
        (values.vcpus + values.pcpus) * MILLI,
        memory_mb=values.memory_mb,
        disk_mb=values.local_gb * MIB_PER_GIB,
    )
    own = Amounts(guest.vcpu_milli, 0, guest.memory_mb, guest.disk_mb)
    parts = [
        f"{_render_excess(resource, own[resource], total[resource], ' of ')} {label}"
        for resource, label in _LABELS.items()
        if own[resource] > total[resource] and resource not in unread
    ]
    if not parts:
        return None
    return HostWarning(
        WarningKind.GUEST_EXCEEDS_NODE,
        nodename,
        guest.uuid,
        f"guest {guest.name or guest.uuid} is larger than the node: it has {', '.join(parts)}, "
        "and is charged in full",
    )


def _render_excess(resource: str, more: int, less: int, between: str) -> str:
    """Return two amounts in parts, in the unit in which the larger one is exact."""
    exact = render_parts(resource, more, Role.REQUESTED)
    return exact + between + render_parts(resource, less, Role.FREE, (more, Role.REQUESTED))


def _find_overcommitted(nodename: str, capacities: Mapping[str, Capacity]) -> Iterable[HostWarning]:
    """Return a warning of each resource of which more is used than capacity and ratio allow."""
    for resource, capacity in capacities.items():
        if capacity.used > capacity.own_limit:
            excess = _render_excess(resource, capacity.used, capacity.own_limit, " are used, ")
            yield HostWarning(
                WarningKind.NODE_OVERCOMMITTED,
                nodename,
                resource,
                f"{resource} is overcommitted: {excess} are allowed by capacity and ratio",
            )


def find_ledger_warnings(
    nodename: str,
    values: NodeValues,
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
    claims: Mapping[str, Claim],
    moves: Iterable[Move],
    now: datetime,
    functions: Iterable[PciDevice] = (),
) -> list[HostWarning]:
    """Return the mismatches after an audit.

    Args:
        functions: the PCI functions of this audit's reading, none if it failed.
    """
    return [
        *find_capacity_warnings(nodename, values, guests.values()),
        *_find_missing_devices(nodename, devices.values(), guests, functions),
        *_find_shared_groups(nodename, devices, claims),
        *_find_expired_claims(nodename, guests, claims.values(), now),
        *_find_drift(nodename, guests, claims.values()),
        *_find_claimed_twice(nodename, claims.values(), moves),
        *_find_taken_devices(nodename, guests.values(), devices, claims),
    ]


def _find_missing_devices(
    nodename: str,
    devices: Iterable[TrackedDevice],
    guests: Collection[str],
    functions: Iterable[PciDevice],
) -> Iterable[HostWarning]:
    found = {function.address: function for function in functions}
    for device in devices:
        if device.status is not PciStatus.REMOVED:
            continue
        kind = "guest" if device.claim_uuid in guests else "claim"
        other = found.get(device.address)
        place = (
            ""
            if other is None
            else f"; another device, {other.vendor_id}:{other.product_id}, is at its address now, "
            f"and is not offered until the {kind} is gone"
        )
        yield HostWarning(
            WarningKind.PCI_DEVICE_MISSING,
            nodename,
            device.address,
            f"device {device.address} ({device.vendor_id}:{device.product_id}) is no longer on the "
            f"host but is still assigned to {kind} {device.claim_uuid}{place}",
        )


def _find_shared_groups(
    nodename: str, devices: Mapping[str, TrackedDevice], claims: Mapping[str, Claim]
) -> Iterable[HostWarning]:
    """Return the IOMMU groups that several workloads have functions of, one of them by VFIO."""
    for group, users in sorted(list_group_users(devices).items()):
        workloads = {claims[user].workload.uuid if user in claims else user for user in users}
        members = [
            device
            for _, device in sorted(devices.items())
            if device.is_assigned and device.shared_group == group
        ]
        if len(workloads) > 1 and any(_is_by_vfio(device, claims) for device in members):
            held = ", ".join(f"{device.address} by {device.claim_uuid}" for device in members)
            yield HostWarning(
                WarningKind.IOMMU_GROUP_SHARED,
                nodename,
                str(group),
                f"IOMMU group {group} is lent to one guest only, but several have its devices: "
                f"{held}",
            )


def _is_by_vfio(device: TrackedDevice, claims: Mapping[str, Claim]) -> bool:
    """Return whether an assigned device is used by VFIO, or will be when its guest starts."""
    if device.is_for_vfio or device.status is not PciStatus.CLAIMED:
        return device.is_for_vfio
    claim = claims.get(device.claim_uuid or "")
    return claim is not None and claim.workload.kind is WorkloadKind.INSTANCE


def _find_expired_claims(
    nodename: str, guests: Mapping[str, Guest], claims: Iterable[Claim], now: datetime
) -> Iterable[HostWarning]:
    """Return one warning of the claims that expired in the last hour without their guests."""
    expired = []
    for claim in claims:
        is_recent = now - claim.updated_at < REPORT_LIFETIME
        is_expired = not claim.is_active and claim.reason == ReleaseReason.EXPIRED.value
        guest = guests.get(claim.workload.uuid)
        has_guest = guest is not None and claim.workload.may_be(guest)
        if is_expired and is_recent and not has_guest:
            expired.append(claim)
    if not expired:
        return
    expired.sort(key=lambda claim: (claim.updated_at, claim.uuid), reverse=True)
    named = [f"{claim.uuid} of workload {claim.workload.label}" for claim in expired[:NAMED_CLAIMS]]
    if len(expired) > NAMED_CLAIMS:
        named.append(f"{len(expired) - NAMED_CLAIMS} more")
    yield HostWarning(
        WarningKind.CLAIM_EXPIRED,
        nodename,
        NO_ITEM,
        f"{count_noun(len(expired), 'claim')} expired in the last hour because no guest appeared: "
        f"{', '.join(named)}",
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
            f"claim {claim.uuid} of workload {claim.workload.label} is confirmed and charged, but "
            "its guest has not been listed since",
        )
        for claim in claims
        if claim.state is ClaimState.CONFIRMED
        and claim.updated_at < before
        and claim.workload.uuid not in guests
        and claim.workload.uuid not in moving
        and listing.shows_absence(claim.workload.uuid, claim.workload.kind)
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
        total = sum((claim.amounts for claim in mine), Amounts())
        larger = [
            _render_excess(resource, own, claimed, f" {_LABELS[resource]} instead of ")
            for resource, own, claimed in (
                (VCPU, guest.vcpu_milli, total.cpu_milli),
                (MEMORY, guest.memory_mb, total.memory_mb),
                (DISK, guest.disk_mb, total.disk_mb),
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
    confirmed: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.state is ClaimState.CONFIRMED and not claim.by_door:
            confirmed[claim.workload.uuid].append(claim)
    for workload_uuid, held in confirmed.items():
        uuids = [claim.uuid for claim in held]
        is_tied = any(source in uuids and dest in uuids for source, dest in tied)
        if len(uuids) > (2 if is_tied else 1):
            yield HostWarning(
                WarningKind.CLAIMED_TWICE,
                nodename,
                workload_uuid,
                f"workload {held[0].workload.label} holds claims {', '.join(sorted(uuids))} on "
                "this node; each of them is charged, and no migration ties them",
            )


def _find_taken_devices(
    nodename: str,
    guests: Iterable[Guest],
    devices: Mapping[str, TrackedDevice],
    claims: Mapping[str, Claim],
) -> Iterable[HostWarning]:
    """Return devices of claims that other workloads' running guests use.

    Whoever starts guests by hand asks nobody, and libvirt takes from the pool of a network
    whatever no guest has.
    """
    for guest in guests:
        if guest.missing_since is not None or guest.power_state is PowerState.SHUTDOWN:
            continue
        for address in guest.pins.devices:
            device = devices.get(address)
            claim = None if device is None else claims.get(device.claim_uuid or "")
            if claim is not None and claim.workload.uuid != guest.uuid:
                yield HostWarning(
                    WarningKind.CLAIMED_TWICE,
                    nodename,
                    address,
                    f"device {address} is used by guest {guest.name or guest.uuid}, but claim "
                    f"{claim.uuid} of workload {claim.workload.label} has it",
                )
