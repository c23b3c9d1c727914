"""Track the PCI devices of a node: presence, assignment and derived status.

Three facts are stored: the tags of the matching device spec (`tags`), the
claim or guest that the device is assigned to (`claim_uuid`), and whether the
host still reports it. The status of a free device is always derived from these
facts and from related functions by `derive_status`, so undoing a change
restores the previous status.

A PF in use makes its VFs unclaimable; a VF in use makes its PF unavailable. An
assigned device that was removed from the host still counts as in use, and keeps its
address from another one that is found there. VFIO lends an IOMMU group as a whole: while
one of its functions is assigned, the others are unavailable if only VFIO passes them
through, and `PciAdmission` gives the rest to containers alone. Every function returns a
new mapping of address -> device and does not modify its argument.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from nodetracker.accounting.withheld import mark_withheld
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.errors import RefusedError
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import (
    DeviceSpec,
    PciDevice,
    PciDeviceType,
    PciStatus,
    TrackedDevice,
    find_tags,
    track_device,
)

_ASSIGNED = frozenset({PciStatus.CLAIMED, PciStatus.ALLOCATED, PciStatus.REMOVED})

WITHHELD = "withheld"
"""What messages have instead of the status of devices that are withheld."""

Devices = Mapping[str, TrackedDevice]
"""Address -> device, of one node."""


def sync_devices(
    stored: Devices,
    observed: Iterable[PciDevice],
    specs: Sequence[DeviceSpec],
    netdevs: Mapping[str, str],
) -> dict[str, TrackedDevice]:
    """Update the stored devices from those that the host reports and from the specs.

    New devices become available, changed ones get their new values even while
    assigned. An assigned device that disappeared, or has another one of another
    vendor or product at its address, is kept as removed until it is freed; if it
    reappears it is allocated again. A device remains assigned when no spec
    matches it any longer.

    Args:
        observed: all functions of a complete reading, without duplicate addresses.
        netdevs: name of a network interface -> address, for specs by devname.
    """
    devices = {}
    for device in observed:
        before = stored.get(device.address)
        status = before.status if before else PciStatus.UNMANAGED
        devices[device.address] = track_device(
            device,
            status=PciStatus.ALLOCATED if status is PciStatus.REMOVED else status,
            claim_uuid=before.claim_uuid if before else None,
            tags=find_tags(device, specs, netdevs),
        )
    return derive_status(_keep_removed(devices, stored))


def _keep_removed(devices: Devices, stored: Devices) -> dict[str, TrackedDevice]:
    """Return the devices of a reading, with those that were assigned and are gone as removed."""
    removed = {
        address: replace(before, status=PciStatus.REMOVED)
        for address, before in stored.items()
        if before.is_assigned
        and (address not in devices or not is_same_kind(before, devices[address]))
    }
    return {**devices, **removed}


def is_same_kind(device: PciDevice, other: PciDevice) -> bool:
    """Return whether two functions have the same vendor and product.

    The firmware may renumber the buses when a card is added, so that the
    address of a function becomes that of another one.
    """
    return (device.vendor_id, device.product_id) == (other.vendor_id, other.product_id)


def claim_devices(
    devices: Devices, addresses: Collection[str], claim_uuid: str
) -> dict[str, TrackedDevice]:
    """Assign available devices to a claim whose guest has not been listed yet.

    Raises:
        RefusedError: one of them is not available.
    """
    _check_available(devices, addresses, None)
    return _assign(devices, addresses, claim_uuid, PciStatus.CLAIMED)


def allocate_devices(
    devices: Devices, addresses: Collection[str], claim_uuid: str
) -> dict[str, TrackedDevice]:
    """Assign devices, available ones or its own, to a claim whose guest exists.

    Raises:
        RefusedError: one of them is neither available nor assigned to the claim.
    """
    _check_available(devices, addresses, claim_uuid)
    return _assign(devices, addresses, claim_uuid, PciStatus.ALLOCATED)


def free_devices(devices: Devices, claim_uuid: str) -> dict[str, TrackedDevice]:
    """Free all devices of a claim; those removed from the host are dropped."""
    kept = {
        address: replace(device, claim_uuid=None) if device.claim_uuid == claim_uuid else device
        for address, device in devices.items()
        if device.claim_uuid != claim_uuid or device.status is not PciStatus.REMOVED
    }
    return derive_status(kept)


def assign_to_guests(
    devices: Devices, guests: Iterable[Guest], claims: Collection[str]
) -> dict[str, TrackedDevice]:
    """Assign free devices to the guests that are bound to them.

    A device that is passed through to a guest is unavailable to others, with
    or without a claim, see `is_free_for_guest` for those that no spec matches. A
    device that a guest is no longer bound to is freed.

    Args:
        claims: uuids of all active claims; any other assignee is a guest.
    """
    guest_of: dict[str, str] = {}
    for guest in guests:
        for address in guest.pins.devices:  # several guests may have one by the host's driver
            is_holder = address in devices and devices[address].claim_uuid == guest.uuid
            if is_holder or address not in guest_of:
                guest_of[address] = guest.uuid
    result = dict(devices)
    for assignee in {device.claim_uuid for device in devices.values()} - {None, *claims}:
        own = list_assigned(result, str(assignee))
        if any(guest_of.get(address) != assignee for address in own):
            result = free_devices(result, str(assignee))
    for address, uuid in sorted(guest_of.items()):
        if address in result and is_free_for_guest(result, address):
            result = _assign(result, [address], uuid, PciStatus.ALLOCATED)
    return result


def is_free_for_guest(devices: Devices, address: str) -> bool:
    """Return whether a device that a guest is bound to can be assigned to the guest.

    One that no spec names is assigned where others are unavailable because of it: its PF
    and the rest of its IOMMU group.
    """
    device = devices[address]
    if device.is_managed or device.is_assigned:
        return _is_free(devices, address)
    return any(
        other.is_managed
        and (
            other.address == device.parent_addr
            or (other.shared_group is not None and other.shared_group == device.shared_group)
        )
        for other in devices.values()
    )


def _is_free(devices: Devices, address: str) -> bool:
    """Return whether a device can be assigned to who has it already.

    Claims and guests that share an IOMMU group keep their devices: only new claims are refused.
    """
    device = devices[address]
    is_in_group = device.is_for_vfio and device.shared_group is not None
    if device.status is not PciStatus.UNAVAILABLE or device.withheld_by or not is_in_group:
        return device.is_available
    return all(other.parent_addr != address for other in devices.values() if other.is_assigned)


def assign_to_claims(
    devices: Devices, claims: Iterable[Claim], before: Mapping[str, Claim]
) -> dict[str, TrackedDevice]:
    """Assign their devices to active claims, and free those of released ones.

    Unchanged claims that already have all available devices are skipped.
    Devices that are no longer available are omitted, so that they do not make
    the audit fail.

    Args:
        before: uuid -> claim at the time of the last assignment.
    """
    result = dict(devices)
    for claim in claims:
        if not claim.devices:
            continue
        if before.get(claim.uuid) == claim and not _lacks_device(result, claim):
            continue
        # Devices assigned to the claim's guest belong to the claim.
        result = free_devices(result, claim.workload.uuid)
        if claim.state is ClaimState.RELEASED:
            result = free_devices(result, claim.uuid)
        elif claim.state is ClaimState.CONFIRMED:
            own = [a for a in claim.devices if a in result and _is_assignable(result, a, claim)]
            result = allocate_devices(result, own, claim.uuid)
        else:
            free = [a for a in claim.devices if a in result and _is_free(result, a)]
            result = claim_devices(result, free, claim.uuid)
    return result


def offer_withheld(devices: Devices) -> dict[str, TrackedDevice]:
    """Return the devices as if none was withheld, so that they can be assigned to their users."""
    return derive_status(
        {
            address: replace(device, withheld_by=()) if device.withheld_by else device
            for address, device in devices.items()
        }
    )


def withhold_devices(devices: Devices, values: NodeValues) -> dict[str, TrackedDevice]:
    """Return the devices without those that the node's row withholds, where they are free."""
    return derive_status(mark_withheld(devices, values))


def _lacks_device(devices: Devices, claim: Claim) -> bool:
    """Return whether a device of an active claim could be assigned to it but is not."""
    return claim.is_active and any(
        _is_free(devices, address) or devices[address].claim_uuid == claim.workload.uuid
        for address in claim.devices
        if address in devices
    )


def _is_assignable(devices: Devices, address: str, claim: Claim) -> bool:
    return _is_free(devices, address) or devices[address].claim_uuid == claim.uuid


def list_assigned(devices: Devices, claim_uuid: str) -> tuple[str, ...]:
    """Return the addresses of the devices assigned to a claim, in ascending order."""
    return tuple(
        sorted(address for address, device in devices.items() if device.claim_uuid == claim_uuid)
    )


def list_group_users(devices: Devices) -> dict[int, set[str]]:
    """Return number of each IOMMU group -> the claims and guests that have a function of it."""
    users: dict[int, set[str]] = {}
    for device in devices.values():
        if device.shared_group is None or device.status is PciStatus.REMOVED:
            continue
        if device.claim_uuid is not None:
            users.setdefault(device.shared_group, set()).add(device.claim_uuid)
    return users


def derive_status(devices: Devices) -> dict[str, TrackedDevice]:
    """Set the status of every device from assignments, specs and related functions."""
    assigned = {address for address, device in devices.items() if device.is_assigned}
    parents = {devices[address].parent_addr for address in assigned}
    groups = list_group_users(devices)
    derived = {}
    for address, device in devices.items():
        status = _status_of(device, assigned, parents, groups)
        derived[address] = device if device.status is status else replace(device, status=status)
    return derived


def _status_of(
    device: TrackedDevice,
    assigned: Collection[str],
    parents: Collection[str | None],
    groups: Collection[int],
) -> PciStatus:
    if device.is_assigned:
        return device.status if device.status in _ASSIGNED else PciStatus.ALLOCATED
    if not device.is_managed:
        return PciStatus.UNMANAGED
    if device.parent_addr in assigned:
        return PciStatus.UNCLAIMABLE
    if device.address in parents and device.dev_type is PciDeviceType.PF:
        return PciStatus.UNAVAILABLE
    if device.withheld_by:
        return PciStatus.UNAVAILABLE
    if device.is_for_vfio and device.shared_group in groups:
        return PciStatus.UNAVAILABLE
    return PciStatus.AVAILABLE


def _check_available(devices: Devices, addresses: Collection[str], claim_uuid: str | None) -> None:
    for address in addresses:
        device = devices.get(address)
        if device is None:
            raise RefusedError(f"no such PCI device: {address}")
        is_own = device.is_assigned and device.claim_uuid == claim_uuid
        if not _is_free(devices, address) and not is_own:
            status = WITHHELD if device.is_withheld else device.status
            raise RefusedError(f"PCI device {address} is {status}")
        if device.parent_addr in addresses:
            raise RefusedError(f"PCI device {address} is a VF of {device.parent_addr}")


def _assign(
    devices: Devices, addresses: Collection[str], claim_uuid: str, status: PciStatus
) -> dict[str, TrackedDevice]:
    result = dict(devices)
    for address in addresses:
        if devices[address].status is not PciStatus.REMOVED:
            result[address] = replace(devices[address], status=status, claim_uuid=claim_uuid)
    return derive_status(result)
