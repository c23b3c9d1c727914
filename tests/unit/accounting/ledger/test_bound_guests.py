"""Resources that unclaimed guests are bound to, in the row and across audits."""

import dataclasses

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.numa.cells import restrict_pins
from nodetracker.accounting.pci.state import assign_to_guests
from nodetracker.accounting.usage import charge_of_guest
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import CpuAffinity, GuestListing, GuestPins
from nodetracker.model.numa import (
    CellAssignment,
    NumaAssignment,
    NumaCell,
    NumaTopology,
    PagePool,
)
from nodetracker.model.pci import PciDevice, PciStatus, track_device
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from tests.builders import NOW, make_guest, make_record, make_snapshot
from tests.unit.accounting.ledger.fakes import make_claim

CELLS = NumaTopology(
    (NumaCell(0, parse_cpu_set("0-7"), 32768, pages=(PagePool(4, 8388608), PagePool(2048, 512))),)
)
POLICY = Policy(cpu_shared_set=parse_cpu_set("0-3"), cpu_dedicated_set=parse_cpu_set("4-7"))
PINNED = GuestPins((CellAssignment(0, 0, 2048, 2048, 1024, {0: 4, 1: 5}),))


def view(guest, policy=POLICY, stored=None):
    return account(make_snapshot("node-1", guest, numa=fresh("t", CELLS)), stored, policy, NOW)


def cell(found):
    (cell,) = found.values.numa_topology["cells"]
    return cell


def test_a_pinned_guest_s_cpus_count_as_dedicated_ones():
    found = view(make_guest(pins=PINNED))
    assert (found.values.vcpus_used, found.values.pcpus_used) == (0, 2)
    assert cell(found)["pinned_cpus"] == [4, 5]
    assert cell(found)["memory_usage"] == 2048
    assert [pool["used"] for pool in cell(found)["mempages"]] == [0, 1024]


def test_pins_to_shared_cpus_float():
    found = view(make_guest(pins=GuestPins((CellAssignment(0, 0, 0, pins={0: 1, 1: 5}),))))
    assert (found.values.vcpus_used, found.values.pcpus_used) == (1, 1)
    assert (cell(found)["pinned_cpus"], cell(found)["cpu_usage"]) == ([5], 1)


def test_without_a_dedicated_set_no_pin_counts():
    assert restrict_pins(PINNED, Policy()).pcpus == 0
    found = view(make_guest(pins=PINNED), Policy())
    assert (found.values.vcpus_used, found.values.pcpus_used) == (2, 0)


def view_all(guests, policy=POLICY, /, **stored):
    record = make_record(**stored) if stored else None
    return account(make_snapshot("node-1", *guests, numa=fresh("t", CELLS)), record, policy, NOW)


def named(text, milli=2000, cells=()):
    return GuestPins(cells, affinities=(CpuAffinity(parse_cpu_set(text), milli),))


def test_guests_may_move_among_the_same_dedicated_cpus():
    """Two guests of 2 CPUs and an emulator name three dedicated CPUs together."""
    pins = [named("4-5"), named("5-6"), named("6", 0)]
    guests = [make_guest(n, vcpu_milli=2000, pins=each) for n, each in enumerate(pins)]
    found = view_all(guests)
    assert cell(found)["pinned_cpus"] == [4, 5, 6]
    assert (found.values.vcpus_used, found.values.pcpus_used) == (2, 3)
    assert cell(found)["cpu_usage"] == 0


def test_an_emulator_takes_one_cpu_beside_the_pins_of_its_guest():
    guest = make_guest(pins=dataclasses.replace(named("6", 0), cells=PINNED.cells))
    found = view_all([guest])
    assert (cell(found)["pinned_cpus"], found.values.pcpus_used) == ([4, 5, 6], 3)
    within = make_guest(pins=dataclasses.replace(named("4-5", 0), cells=PINNED.cells))
    assert view_all([within]).values.pcpus_used == 2


def test_a_guest_with_a_claim_keeps_what_it_is_bound_to_beside_it():
    """The claim has CPU 4; the guest is pinned to 5, and its emulator to 6."""
    cells = (CellAssignment(0, 0, 0, pins={0: 5}),)
    guest = make_guest(vcpu_milli=1000, pins=dataclasses.replace(named("6", 0), cells=cells))
    numa = NumaAssignment((CellAssignment(0, 0, 512, pins={0: 4}),))
    claim = make_claim(
        workload=Workload(guest.uuid), amounts=Amounts(pcpus=1, memory_mb=512), numa=numa
    )
    found = view_all([guest], claims={claim.uuid: claim})
    assert (cell(found)["pinned_cpus"], found.values.pcpus_used) == ([4, 5, 6], 3)
    assert cell(found)["memory_usage"] == 512


MOVED = Policy(cpu_shared_set=parse_cpu_set("0-5"), cpu_dedicated_set=parse_cpu_set("6-7"))


@pytest.mark.parametrize("is_claimed", [False, True])
def test_cpus_that_are_dedicated_no_more_are_not_shared_while_pinned(is_claimed):
    guest, claims = make_guest(vcpu_milli=2000, pins=PINNED), {}
    if is_claimed:
        claim = make_claim(
            state=ClaimState.CONFIRMED,
            expires_at=None,
            workload=Workload(guest.uuid),
            amounts=Amounts(pcpus=2, memory_mb=2048),
            numa=NumaAssignment(PINNED.cells),
        )
        claims = {claim.uuid: claim}
    first = view_all([guest], claims=claims)
    before = {"values": first.values, "guests": first.guests, "claims": first.claims}
    for _ in range(2):
        found = view_all([guest], MOVED, **before)
        assert (cell(found)["cpuset"], cell(found)["pcpuset"]) == ([0, 1, 2, 3], [6, 7])
        assert (found.values.vcpus, found.values.vcpus_used) == (4, 0)
        assert (found.values.pcpus, found.values.pcpus_used) == (4, 2)
        (warning,) = [w for w in found.warnings if w.kind is WarningKind.CPU_SET_MOVED]
        assert f"no longer has CPUs 4-5, to which guests are pinned: {guest.name}" in (
            warning.message
        )
        before = {"values": found.values, "guests": found.guests, "claims": found.claims}
    gone = view_all([], MOVED, values=found.values)
    assert (cell(gone)["cpuset"], gone.values.pcpus) == ([0, 1, 2, 3, 4, 5], 2)
    assert not [w for w in gone.warnings if w.kind is WarningKind.CPU_SET_MOVED]


def test_a_guest_that_was_never_pinned_alone_keeps_no_cpu():
    found = view_all([make_guest(pins=PINNED)], MOVED)
    assert (found.values.vcpus, found.values.pcpus_used) == (6, 0)
    assert not [w for w in found.warnings if w.kind is WarningKind.CPU_SET_MOVED]


def test_the_charge_of_a_guest_is_split():
    guest = make_guest(vcpu_milli=3000, pins=PINNED)
    assert charge_of_guest(guest, 0) == Amounts(1000, 2, 2048, 20480)


VF = PciDevice("0000:81:10.0", "8086", "154c")


def track(**changes):
    return {VF.address: track_device(VF, tags={}, **({"status": PciStatus.AVAILABLE} | changes))}


def held(devices):
    (found,) = devices.values()
    return found.status, found.claim_uuid


def test_passed_through_devices_are_assigned_to_their_guest():
    guest = make_guest(pins=GuestPins((), (VF.address,)))
    devices = assign_to_guests(track(), [guest], [])
    assert held(devices) == (PciStatus.ALLOCATED, guest.uuid)
    assert assign_to_guests(devices, [guest], []) == devices
    assert held(assign_to_guests(devices, [make_guest()], [])) == (PciStatus.AVAILABLE, None)
    assert held(assign_to_guests(devices, [], [])) == (PciStatus.AVAILABLE, None)


def test_a_missing_guest_has_no_device():
    claim = make_claim(state=ClaimState.CONFIRMED, expires_at=None)
    guest = make_guest(pins=GuestPins((), (VF.address,)), claim_uuid=claim.uuid)
    devices = track(status=PciStatus.ALLOCATED, claim_uuid=guest.uuid)
    snapshot = make_snapshot(pci=failed("t", "boom"))  # so the devices are as stored
    for missing_since, expected in (
        (None, (PciStatus.ALLOCATED, guest.uuid)),
        (NOW, (PciStatus.AVAILABLE, None)),
    ):
        stored = make_record(
            guests={guest.uuid: dataclasses.replace(guest, missing_since=missing_since)},
            claims={claim.uuid: claim},
            devices=devices,
        )
        assert held(account(snapshot, stored, POLICY, NOW).devices) == expected


def test_a_claim_keeps_its_device_even_when_a_guest_reports_it():
    guest = make_guest(pins=GuestPins((), (VF.address,)))
    devices = track(status=PciStatus.ALLOCATED, claim_uuid="claim-1")
    assert assign_to_guests(devices, [guest], ["claim-1"]) == devices


@pytest.mark.parametrize("addresses", [("0000:00:00.0",), ()])
def test_missing_and_unmanaged_devices_are_not_assigned(addresses):
    guest = make_guest(pins=GuestPins((), addresses))
    unmanaged = {VF.address: track_device(VF)}
    assert assign_to_guests(unmanaged, [guest], []) == unmanaged


def test_a_listing_that_could_not_be_read_frees_no_pin():
    first = view(make_guest(pins=PINNED))
    stored = make_record(first.values, guests=first.guests)
    unread = GuestListing((), ("broken",))
    snapshot = make_snapshot("node-1", numa=fresh("t", CELLS), guests=fresh("t", unread))
    again = account(snapshot, stored, POLICY, NOW)
    assert cell(again)["pinned_cpus"] == [4, 5]


def test_cpus_that_a_guest_keeps_idle_are_held_in_the_dedicated_set():
    pins = GuestPins((CellAssignment(0, isolated=parse_cpu_set("3-4")),))
    assert restrict_pins(pins, POLICY).cells == (CellAssignment(0, isolated=parse_cpu_set("4")),)
    assert restrict_pins(pins, Policy()) == GuestPins()
