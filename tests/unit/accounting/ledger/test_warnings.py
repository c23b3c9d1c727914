"""Mismatches in a ledger are warnings; states that may be correct are not."""

import dataclasses
from typing import Any

import pytest

from nodetracker.accounting.ledger.warnings import find_ledger_warnings, find_unused_claims
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, ClaimState, Move, Workload
from nodetracker.model.guest import GuestListing, GuestPins, PowerState, WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import PciDevice, PciStatus, track_device
from nodetracker.model.warning import WarningKind
from tests import builders
from tests.builders import NOW, later, make_guest, make_migration

GUEST = make_guest(1)  # 2 CPUs, 2048 MB
ADDRESS = "0000:81:10.0"


def make_claim(number: int = 1, amounts: Amounts | None = None, **changes: Any) -> Claim:
    usual = {"workload": GUEST.uuid, "amounts": amounts or Amounts(2000, memory_mb=2048)}
    return builders.make_claim(f"c-{number}", **(usual | changes))


def make_move(source: str, dest: str) -> Move:
    own = {"workload_uuid": GUEST.uuid, "dest_host": "host-1", "dest_node": "node-1"}
    migration = make_migration(source_claim=source, dest_claim=dest, **own)
    return Move(migration, is_source_active=True, is_dest_active=True)


def find(claims=(), guests=(), devices=(), now=NOW, moves=(), functions=()):
    return find_ledger_warnings(
        "node-1",
        NodeValues(tracks_resources=False),  # other tests compare guests with their node
        {guest.uuid: guest for guest in guests},
        {device.address: device for device in devices},
        {claim.uuid: claim for claim in claims},
        moves,
        now,
        functions,
    )


def kinds(*arguments, **named):
    return [(warning.kind, warning.item) for warning in find(*arguments, **named)]


def test_a_ledger_that_matches_has_none():
    device = track_device(PciDevice(ADDRESS, "8086", "10ed"), PciStatus.ALLOCATED, "c-1", {})
    assert find([make_claim()], [GUEST], [device]) == []


def test_a_claimed_device_missing_from_the_host_is_a_warning():
    device = track_device(PciDevice(ADDRESS, "8086", "10ed"), PciStatus.REMOVED, "c-1", {})
    (warning,) = find([make_claim()], [GUEST], [device])
    assert (warning.kind, warning.item) == (WarningKind.PCI_DEVICE_MISSING, ADDRESS)
    assert "assigned to claim c-1" in warning.message


def test_what_has_the_address_of_a_missing_device_now_is_named():
    device = track_device(PciDevice(ADDRESS, "8086", "10ed"), PciStatus.REMOVED, GUEST.uuid, {})
    (warning,) = find([], [GUEST], [device], functions=[PciDevice(ADDRESS, "144d", "a80a")])
    assert warning.message == (
        f"device {ADDRESS} (8086:10ed) is no longer on the host but is still assigned to guest "
        f"{GUEST.uuid}; another device, 144d:a80a, is at its address now, and is not offered "
        "until the guest is gone"
    )


@pytest.mark.parametrize(
    ("status", "driver", "kind", "holder", "is_reported"),
    [
        (PciStatus.ALLOCATED, "vfio-pci", WorkloadKind.INSTANCE, "c-2", True),
        (PciStatus.ALLOCATED, "nvidia", WorkloadKind.CONTAINER, "c-2", False),
        (PciStatus.ALLOCATED, "nvidia", WorkloadKind.INSTANCE, "c-2", False),
        (PciStatus.CLAIMED, "nvidia", WorkloadKind.INSTANCE, "c-2", True),
        (PciStatus.CLAIMED, "nvidia", WorkloadKind.CONTAINER, "c-2", False),
        (PciStatus.ALLOCATED, "vfio-pci", WorkloadKind.INSTANCE, "c-1", False),
    ],
    ids=["by VFIO", "containers", "macvtap", "awaited", "awaited container", "one workload"],
)
def test_workloads_that_share_an_iommu_group_are_a_warning(
    status, driver, kind, holder, is_reported
):
    first = PciDevice(ADDRESS, "10de", "102d", driver="nvidia", iommu_group=23)
    second = dataclasses.replace(first, address="0000:82:00.0", driver=driver)
    devices = [
        track_device(first, PciStatus.ALLOCATED, "c-1", {}),
        track_device(second, status, holder, {}),
    ]
    other = dataclasses.replace(make_claim(), uuid="c-2", workload=Workload("w-2", kind))
    found = [
        warning
        for warning in find([make_claim(), other], [GUEST], devices)
        if warning.kind is WarningKind.IOMMU_GROUP_SHARED
    ]
    assert [warning.item for warning in found] == (["23"] if is_reported else [])
    assert all(f"{ADDRESS} by c-1, 0000:82:00.0 by c-2" in item.message for item in found)


@pytest.mark.parametrize(
    ("seconds", "guests", "is_reported"),
    [(0, [], True), (3599, [], True), (3601, [], False), (0, [GUEST], False)],
    ids=["just now", "within the hour", "long ago", "its guest came"],
)
def test_an_expired_claim_is_reported_for_an_hour(seconds, guests, is_reported):
    claim = make_claim(state=ClaimState.RELEASED, reason="expired")
    found = kinds([claim], guests, now=later(seconds))
    assert found == ([(WarningKind.CLAIM_EXPIRED, "")] if is_reported else [])


def test_claims_that_expired_together_are_one_warning_with_their_number():
    claims = [
        make_claim(
            number,
            state=ClaimState.RELEASED,
            reason="expired",
            workload=Workload(f"w-{number}"),
            updated_at=later(number),
        )
        for number in range(1, 34)
    ]
    (warning,) = find(claims, now=later(60))
    assert warning.message == (
        "33 claims expired in the last hour because no guest appeared: "
        "c-33 of workload w-33, c-32 of workload w-32, c-31 of workload w-31, 30 more"
    )
    (warning,) = find(claims, now=later(3601))
    assert warning.message.startswith("32 claims expired")
    (warning,) = find(claims, now=later(3632))
    assert warning.message == (
        "1 claim expired in the last hour because no guest appeared: c-33 of workload w-33"
    )
    assert find(claims, now=later(3633)) == []


def test_so_is_one_with_whose_uuid_a_guest_of_another_kind_is_listed():
    claim = make_claim(state=ClaimState.RELEASED, reason="expired")
    stranger = dataclasses.replace(GUEST, kind=WorkloadKind.CONTAINER)
    assert kinds([claim], [stranger]) == [(WarningKind.CLAIM_EXPIRED, "")]


@pytest.mark.parametrize(
    ("listing", "guests", "moves", "before", "is_unused"),
    [
        pytest.param(GuestListing(), [], [], later(1), True, id="not listed"),
        pytest.param(GuestListing(), [GUEST], [], later(1), False, id="listed once"),
        pytest.param(GuestListing(), [], [], NOW, False, id="too early"),
        pytest.param(None, [], [], later(1), False, id="no listing"),
        pytest.param(GuestListing((), ("one",)), [], [], later(1), False, id="not all listed"),
        pytest.param(GuestListing(has_source=False), [], [], later(1), False, id="no guests ever"),
        pytest.param(GuestListing(), [], [("c-0", "c-1")], later(1), False, id="moving"),
    ],
)
def test_a_confirmed_claim_whose_guest_was_never_listed(listing, guests, moves, before, is_unused):
    known = {guest.uuid: guest for guest in guests}
    claims = [make_claim(), make_claim(2, state=ClaimState.HELD)]
    moves = [make_move(*ends) for ends in moves]
    found = find_unused_claims("node-1", listing, known, claims, moves, before)
    assert [(w.kind, w.item) for w in found] == [(WarningKind.CLAIM_UNUSED, "c-1")] * is_unused


def test_an_aborted_claim_is_not_a_warning():
    assert find([make_claim(state=ClaimState.RELEASED, reason="aborted")]) == []


@pytest.mark.parametrize(
    ("amounts", "drifts"),
    [
        (Amounts(vcpu_milli=1000, memory_mb=2048), True),
        (Amounts(vcpu_milli=2000, memory_mb=1024), True),
        (Amounts(pcpus=2, memory_mb=2048), False),
        (Amounts(pcpus=1, memory_mb=2048), True),
        (Amounts(vcpu_milli=4000, memory_mb=4096), False),
        (Amounts(vcpu_milli=2000), False),
        (Amounts(disk_mb=10), True),
    ],
    ids=[
        "CPUs",
        "memory",
        "pinned",
        "pinned, too few",
        "less than claimed",
        "not requested",
        "disk",
    ],
)
def test_a_guest_that_has_more_than_its_claim_drifts(amounts, drifts):
    guest = dataclasses.replace(GUEST, claim_uuid="c-1")
    found = kinds([make_claim(amounts=amounts)], [guest])
    assert found == ([(WarningKind.DRIFT, GUEST.uuid)] if drifts else [])
    assert kinds([make_claim(amounts=amounts)], [GUEST]) == []  # another's guest


def test_a_drift_has_both_amounts_in_one_unit():
    guest = dataclasses.replace(GUEST, claim_uuid="c-1", memory_mb=2048)
    claim = make_claim(amounts=Amounts(vcpu_milli=2000, memory_mb=1536))
    [warning] = find([claim], [guest])
    assert warning.message.endswith("counts in full: 2 GiB of memory instead of 1.5 GiB")


def test_a_workload_with_two_claims_does_not_drift():
    small = Amounts(vcpu_milli=1000, memory_mb=512)
    move = make_move("c-1", "c-2")
    assert find([make_claim(1, small), make_claim(2)], [GUEST], moves=[move]) == []


def test_a_workload_with_two_claims_that_no_migration_ties_is_charged_twice():
    claims = [make_claim(1), make_claim(2)]
    (warning,) = find(claims, [GUEST])
    assert (warning.kind, warning.item) == (WarningKind.CLAIMED_TWICE, GUEST.uuid)
    assert "holds claims c-1, c-2 on this node" in warning.message
    assert kinds([*claims, make_claim(3)], [GUEST], moves=[make_move("c-1", "c-2")]) == [
        (WarningKind.CLAIMED_TWICE, GUEST.uuid)
    ]


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({}, True),
        ({"power_state": PowerState.SHUTDOWN}, False),
        ({"missing_since": NOW}, False),
        ({"uuid": GUEST.uuid}, False),
        ({"pins": GuestPins()}, False),
    ],
    ids=["another's", "off", "missing", "its own", "without it"],
)
def test_a_device_that_another_guest_took_before_its_claim_is_used(changes, is_taken):
    """As libvirt does, which takes functions from the pool of a network."""
    claim = make_claim(devices=(ADDRESS,))
    device = track_device(PciDevice(ADDRESS, "8086", "10ed"), PciStatus.CLAIMED, claim.uuid, {})
    guest = dataclasses.replace(make_guest(2), pins=GuestPins(devices=(ADDRESS,)))
    found = find([claim], [dataclasses.replace(guest, **changes)], [device])
    assert [(w.kind, w.item) for w in found] == [(WarningKind.CLAIMED_TWICE, ADDRESS)] * is_taken
    assert all("c-1" in warning.message and guest.name in warning.message for warning in found)


def test_a_second_claim_that_is_only_held_expires_by_itself():
    assert find([make_claim(1), make_claim(2, state=ClaimState.HELD)], [GUEST]) == []


def test_a_guest_that_is_not_listed_does_not_drift():
    missing = dataclasses.replace(GUEST, missing_since=NOW, claim_uuid="c-1")
    assert find([make_claim(amounts=Amounts(vcpu_milli=1000))], [missing]) == []
