"""PCI devices of one node over time: what the host shows, who holds what, and what follows from it.

Three things are decided: whether a spec names a device (`tags`), whether a
claim has it (`claim_uuid`), and whether the host still shows it. The status of
a device that nobody holds is never remembered: `derive_status` derives it from these
and from the neighbours', so whatever is done and undone comes back to the same.

A PF in use makes its VFs unclaimable, a VF in use makes its PF unavailable. A
held device that left the host still counts as in use. Every function returns
a new mapping of address -> device and leaves the given one as it is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from nodetracker.errors import RefusedError
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.guest import Guest
from nodetracker.model.pci import PciDevice, PciStatus, TrackedDevice, track_device
from nodetracker.model.pci_spec import DeviceSpec, find_tags

_HELD = frozenset({PciStatus.CLAIMED, PciStatus.ALLOCATED, PciStatus.REMOVED})

Devices = Mapping[str, TrackedDevice]
"""Address -> device, of one node."""


def sync_devices(
    stored: Devices,
    observed: Iterable[PciDevice],
    specs: Sequence[DeviceSpec],
    netdevs: Mapping[str, str],
) -> dict[str, TrackedDevice]:
    """Bring the stored devices up to what the host shows and the specs name now.

    New devices are there to be claimed, changed ones have their new values
    also while a claim has them. One that left stays, marked as removed, as
    long as a claim has it; if it comes back it is allocated to that claim
    again. A held device keeps its claim when no spec names it any longer.

    Args:
        observed: every function of a whole reading, each address once.
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
    for address, device in stored.items():
        if address not in devices and device.is_held:
            devices[address] = replace(device, status=PciStatus.REMOVED)
    return derive_status(devices)


def claim_devices(
    devices: Devices, addresses: Collection[str], claim_uuid: str
) -> dict[str, TrackedDevice]:
    """Give available devices to a claim whose guest was not seen yet.

    Raises:
        RefusedError: one of them is not there to be had; nothing is changed.
    """
    _check_available(devices, addresses, None)
    return _give(devices, addresses, claim_uuid, PciStatus.CLAIMED)


def allocate_devices(
    devices: Devices, addresses: Collection[str], claim_uuid: str
) -> dict[str, TrackedDevice]:
    """Give devices, available ones or its own, to a claim whose guest is there.

    Raises:
        RefusedError: one of them is not there to be had; nothing is changed.
    """
    _check_available(devices, addresses, claim_uuid)
    return _give(devices, addresses, claim_uuid, PciStatus.ALLOCATED)


def free_devices(devices: Devices, claim_uuid: str) -> dict[str, TrackedDevice]:
    """Take back all that a claim has; those that left the host are forgotten.

    A claim that has nothing changes nothing.
    """
    kept = {
        address: replace(device, claim_uuid=None) if device.claim_uuid == claim_uuid else device
        for address, device in devices.items()
        if device.claim_uuid != claim_uuid or device.status is not PciStatus.REMOVED
    }
    return derive_status(kept)


def hold_for_guests(
    devices: Devices, guests: Iterable[Guest], claims: Collection[str]
) -> dict[str, TrackedDevice]:
    """Give devices that guests have, and no claim, to these guests themselves.

    What the host passes through to a guest is nobody else's, whether or not a
    claim was asked. A guest that has a device no longer gives it back.

    Args:
        claims: uuids of all active claims; any other holder is a guest.
    """
    has = {address: guest.uuid for guest in guests for address in guest.pins.devices}
    held = dict(devices)
    for holder in {device.claim_uuid for device in devices.values()} - {None, *claims}:
        own = list_held(held, str(holder))
        if any(has.get(address) != holder for address in own):
            held = free_devices(held, str(holder))
    for address, uuid in sorted(has.items()):
        if address in held and held[address].is_available:
            held = allocate_devices(held, [address], uuid)
    return held


def hold_for_claims(
    devices: Devices, claims: Iterable[Claim], before: Mapping[str, Claim]
) -> dict[str, TrackedDevice]:
    """Let every claim have its devices, and a released one none.

    One that did not change and has all that it can have is passed over. What
    is not to be had any more it does not get: that must not cost the audit.

    Args:
        before: the claims by uuid when the devices were given last.
    """
    held = dict(devices)
    for claim in claims:
        if not claim.devices:
            continue
        if before.get(claim.uuid) == claim and not _lacks(held, claim):
            continue
        held = free_devices(held, claim.workload.uuid)  # what its guest has is its own
        if claim.state is ClaimState.RELEASED:
            held = free_devices(held, claim.uuid)
        elif claim.state is ClaimState.CONFIRMED:
            own = [a for a in claim.devices if a in held and _may_have(held[a], claim)]
            held = allocate_devices(held, own, claim.uuid)
        else:
            free = [a for a in claim.devices if a in held and held[a].is_available]
            held = claim_devices(held, free, claim.uuid)
    return held


def hold_anew(
    devices: Devices, claims: Collection[Claim], guests: Iterable[Guest]
) -> dict[str, TrackedDevice]:
    """Give the devices of a new reading to the claims that have them, then to guests."""
    free = {address: replace(device, claim_uuid=None) for address, device in devices.items()}
    held = hold_for_claims(derive_status(free), claims, {})
    return hold_for_guests(held, guests, [claim.uuid for claim in claims])


def _lacks(devices: Devices, claim: Claim) -> bool:
    """Tell whether a claim could have a device of its own that it has not."""
    return claim.is_active and any(
        device.is_available or device.claim_uuid == claim.workload.uuid
        for device in map(devices.get, claim.devices)
        if device is not None
    )


def _may_have(device: TrackedDevice, claim: Claim) -> bool:
    return device.is_available or device.claim_uuid == claim.uuid


def list_held(devices: Devices, claim_uuid: str) -> tuple[str, ...]:
    """Return the addresses that a claim has, in ascending order."""
    return tuple(
        sorted(address for address, device in devices.items() if device.claim_uuid == claim_uuid)
    )


def derive_status(devices: Devices) -> dict[str, TrackedDevice]:
    """Give every device the status that follows from claims, specs and neighbours."""
    held = {address for address, device in devices.items() if device.is_held}
    parents_of_held = {devices[address].parent_addr for address in held}
    derived = {}
    for address, device in devices.items():
        status = _status_of(device, held, parents_of_held)
        derived[address] = device if device.status is status else replace(device, status=status)
    return derived


def _status_of(
    device: TrackedDevice, held: Collection[str], parents_of_held: Collection[str | None]
) -> PciStatus:
    if device.is_held:
        return device.status if device.status in _HELD else PciStatus.ALLOCATED
    if not device.is_managed:
        return PciStatus.UNMANAGED
    if device.parent_addr in held:
        return PciStatus.UNCLAIMABLE
    if device.address in parents_of_held:
        return PciStatus.UNAVAILABLE
    return PciStatus.AVAILABLE


def _check_available(devices: Devices, addresses: Collection[str], claim_uuid: str | None) -> None:
    for address in addresses:
        device = devices.get(address)
        if device is None:
            raise RefusedError(f"there is no PCI device {address}")
        is_own = device.is_held and device.claim_uuid == claim_uuid
        if not device.is_available and not is_own:
            raise RefusedError(f"PCI device {address} is {device.status}")
        if device.parent_addr in addresses:
            raise RefusedError(f"PCI device {address} is part of {device.parent_addr}")


def _give(
    devices: Devices, addresses: Collection[str], claim_uuid: str, status: PciStatus
) -> dict[str, TrackedDevice]:
    given = dict(devices)
    for address in addresses:
        if devices[address].status is not PciStatus.REMOVED:
            given[address] = replace(devices[address], status=status, claim_uuid=claim_uuid)
    return derive_status(given)
