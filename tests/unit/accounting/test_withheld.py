"""Test that what a guest may use, and nobody can name, is not offered until it can be named."""

import dataclasses

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.node_claims import remove_claim
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.accounting.withheld import read_withholdings
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimRequest, Workload
from nodetracker.model.fact import fresh
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.guest import GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.host import Gpu
from nodetracker.model.pci import (
    Alias,
    AliasSpec,
    DeviceSpec,
    PciDevice,
    PciDeviceType,
    PciRequest,
    PciStatus,
)
from nodetracker.model.settings import AdmissionPolicy, PciPolicy, Policy
from nodetracker.model.warning import WarningKind
from nodetracker.views.hardware import list_pools, render_hardware
from tests.builders import NOW, make_guest, make_record, make_service, make_snapshot
from tests.unit.accounting.pci.cases import make_claim

NVIDIA = tuple(
    PciDevice(f"0000:{bus}:00.0", "10de", "20b2", "030200", driver="nvidia") for bus in ("c0", "c1")
)
AMD = PciDevice("0000:d0:00.0", "1002", "740f", "038000", driver="amdgpu")
NIC = PciDevice("0000:e0:00.0", "8086", "1572", "020000", PciDeviceType.PF, driver="i40e")
PORT = PciDevice(
    "0000:e0:00.2", "8086", "154c", "020000", PciDeviceType.VF, parent_addr=NIC.address
)
FIRST, SECOND = (card.address for card in NVIDIA)
ALIASES = {
    "gpu": Alias("gpu", (AliasSpec("10de", "20b2"),)),
    "vf": Alias("vf", (AliasSpec("8086", "154c"),)),
}
GPU_SPEC = DeviceSpec(vendor_id="10de")
VF_SPEC = DeviceSpec(vendor_id="8086", product_id="154c")
MIG = UnresolvedUse(ResourceKind.GPU, "MIG-1", "no such uuid", "NVIDIA")
ANY = UnresolvedUse(ResourceKind.GPU, "/dev/dri/renderD128", "it is not in /sys/class/drm")
VENDOR_PORT = UnresolvedUse(ResourceKind.PCI, "/dev/vhost-vdpa-0", "no such device", NIC.address)


def user(number, *unresolved, devices=(), **more):
    return make_guest(number, name=f"g{number}", pins=GuestPins((), devices, unresolved), **more)


def view(*guests, specs=(), stored=None, withholds=True, gpus=None, claims=()):
    if gpus is None:
        gpus = tuple(Gpu(card.address, "NVIDIA", "A100") for card in NVIDIA)
        gpus += (Gpu(AMD.address, "AMD", "MI210"),)
    record = dataclasses.replace(
        stored or make_record(), claims={claim.uuid: claim for claim in claims}
    )
    pci = (*NVIDIA, AMD, NIC, PORT)
    snapshot = make_snapshot(
        "node-1", *guests, pci=fresh("sysfs", pci), gpus=fresh("NVML", tuple(gpus))
    )
    policy = Policy(pci=PciPolicy(specs=specs), withholds_unresolved=withholds)
    return account(snapshot, record, policy, NOW)


def pgpu(found):
    entry = found.values.inventory["PGPU"]
    return entry["total"], entry["reserved"]


def unresolved_warnings(found):
    return [warning for warning in found.warnings if warning.kind == "guest_unresolved"]


def evaluate(found, workload=9, *, alias=None, **resources):
    """Return the admission of a claim of a workload by the row that an audit wrote."""
    guests = found.guests
    node = LedgerNode(
        id=1,
        host="host-1",
        nodename="node-1",
        now=NOW,
        service=make_service(),
        values=found.values,
        unclaimed=dict(guests),
        # as they are read from the database
        devices={a: dataclasses.replace(d, withheld_by=()) for a, d in found.devices.items()},
    )
    uuid = make_guest(workload).uuid
    request = ClaimRequest(
        "request",
        Workload(uuid),
        Amounts(resources=resources),
        "",
        pci_requests=(PciRequest(alias),) if alias else (),
    )
    policy = AdmissionPolicy(service_down_time=60, claim_timeout=600, aliases=ALIASES)
    return evaluate_claim(request, assume_locked(node, uuid), policy)


@pytest.mark.parametrize(
    ("guests", "expected"),
    [
        ([], (3, 0)),
        ([user(1, MIG)], (3, 2)),
        ([user(1, ANY)], (3, 3)),
        ([user(1, MIG), user(2, MIG)], (3, 2)),
        ([user(1, MIG, devices=(FIRST,))], (3, 2)),
        ([user(1, MIG), user(2, devices=(AMD.address,))], (3, 3)),
        ([user(1, VENDOR_PORT)], (3, 0)),
        ([user(1, dataclasses.replace(MIG, within=FIRST))], (3, 1)),
        ([user(1, UnresolvedUse(ResourceKind.PCI, "mdev 1", "lost", FIRST))], (3, 1)),
    ],
    ids=[
        "nobody",
        "one of a vendor",
        "one of any vendor",
        "two guests",
        "a guest that is bound to one, too",
        "one of a vendor, and another guest's",
        "another device",
        "a part of one GPU",
        "a mediated device of one GPU",
    ],
)
def test_the_gpus_that_a_guest_may_use_are_reserved(guests, expected):
    assert pgpu(view(*guests)) == expected


def test_a_claim_of_a_withheld_gpu_is_refused_with_the_guest_and_the_name():
    found = view(user(1, MIG), user(2, devices=(AMD.address,)))
    (reason,) = evaluate(found, PGPU=1).reasons
    assert reason == (
        "Free PGPU 0.00 < requested 1 (2 withheld for guest g1, which uses GPU 'MIG-1')"
    )


@pytest.mark.parametrize(
    ("guest", "alias", "status"),
    [
        (user(1, MIG), "gpu", PciStatus.UNAVAILABLE),
        (user(1, VENDOR_PORT), "vf", PciStatus.UNAVAILABLE),
        (user(1, VENDOR_PORT), "gpu", PciStatus.AVAILABLE),
        (user(1, MIG), "vf", PciStatus.AVAILABLE),
    ],
    ids=["GPU", "VF", "GPU beside a VF", "VF beside a GPU"],
)
def test_withheld_devices_are_not_offered_by_alias(guest, alias, status):
    found = view(guest, specs=(GPU_SPEC, VF_SPEC))
    spec = ALIASES[alias].specs[0]
    devices = [device for device in found.devices.values() if spec.matches(device)]
    assert {device.status for device in devices} == {status}
    offered = {(pool["product_id"], pool["count"]) for pool in found.values.pci_stats}
    assert (spec.product_id in dict(offered)) == (status is PciStatus.AVAILABLE)
    reasons = evaluate(found, alias=alias).reasons
    assert bool(reasons) == (status is PciStatus.UNAVAILABLE)
    assert not reasons or "withheld; withheld for guest g1, which uses" in reasons[0]


def test_a_device_that_is_released_stays_withheld():
    found = view(specs=(GPU_SPEC,))
    claim = make_claim(2, devices=(FIRST,))
    held = view(
        user(1, MIG),
        specs=(GPU_SPEC,),
        stored=make_record(found.values, devices=found.devices),
        claims=(claim,),
    )
    assert held.devices[FIRST].claim_uuid == claim.uuid
    assert held.devices[SECOND].status is PciStatus.UNAVAILABLE
    node = LedgerNode(
        id=1, host="host-1", nodename="node-1", now=NOW, service=None, values=held.values,
        claims=(claim,), devices=held.devices,
    )  # fmt: skip
    after = remove_claim(assume_locked(node, claim.workload.uuid), claim, ())
    assert after.devices[FIRST].status is PciStatus.UNAVAILABLE
    assert after.values.pci_stats == []


def test_what_is_withheld_for_a_guest_alone_is_free_for_its_own_claim():
    found = view(user(1, MIG), specs=(GPU_SPEC,))
    assert not evaluate(found, 1, alias="gpu").reasons
    assert evaluate(found, 2, alias="gpu").reasons
    assert not evaluate(view(user(1, MIG)), 1, PGPU=2).reasons
    both = view(user(1, MIG), user(2, MIG), specs=(GPU_SPEC,))
    assert evaluate(both, 1, alias="gpu").reasons


def test_a_guest_that_is_bound_to_a_withheld_device_has_it():
    found = view(user(1, MIG), user(2, devices=(FIRST,)), specs=(GPU_SPEC,))
    assert found.devices[FIRST].claim_uuid == make_guest(2).uuid
    assert found.devices[SECOND].status is PciStatus.UNAVAILABLE
    assert not evaluate(found, 2, alias="gpu").reasons


def test_what_is_resolved_again_is_offered_again():
    withheld = view(user(1, MIG), specs=(GPU_SPEC,))
    stored = make_record(withheld.values, devices=withheld.devices, guests=withheld.guests)
    found = view(user(1, devices=(FIRST,)), specs=(GPU_SPEC,), stored=stored)
    assert found.devices[FIRST].claim_uuid == make_guest(1).uuid
    assert found.devices[SECOND].status is PciStatus.AVAILABLE
    assert read_withholdings(found.values) == ()
    assert unresolved_warnings(found) == []


def test_the_warning_names_the_guest_the_name_and_what_is_missing():
    (warning,) = unresolved_warnings(view(user(1, MIG)))
    assert warning.item == make_guest(1).uuid
    assert warning.message == (
        "guest g1 uses GPU 'MIG-1' (no such uuid); "
        "2 NVIDIA GPUs are withheld from claims until it is known"
    )


@pytest.mark.parametrize("missing_since", [None, NOW], ids=["no GPU", "a missing guest"])
def test_nothing_is_withheld_or_warned_of(missing_since):
    gpus = () if missing_since is None else None
    found = view(user(1, MIG, missing_since=missing_since), gpus=gpus)
    if missing_since is None:
        assert "PGPU" not in found.values.inventory
        assert unresolved_warnings(found) == []
        assert "withheld" not in found.values.reserved


def test_a_host_may_only_warn():
    found = view(user(1, MIG), withholds=False)
    assert pgpu(found) == (3, 0)
    assert found.guests[make_guest(1).uuid].pins == GuestPins()
    (warning,) = unresolved_warnings(found)
    assert warning.message.endswith("offered all the same ([compute] unresolved = warn)")


def test_the_row_says_what_is_withheld_and_by_whom():
    found = view(user(1, MIG))
    (item,) = read_withholdings(found.values)
    assert (item.guest_name, item.use) == ("g1", MIG)
    assert [gpu["withheld_by"] for gpu in found.values.gpus] == [
        [make_guest(1).uuid], [make_guest(1).uuid], [],
    ]  # fmt: skip


def test_screens_say_what_is_withheld_and_for_whom():
    for specs in ((), (GPU_SPEC,)):
        found = view(user(1, MIG), specs=specs)
        devices = {a: dataclasses.replace(d, withheld_by=()) for a, d in found.devices.items()}
        record = make_record(found.values, guests=found.guests, devices=devices)
        pool = next(pool for pool in list_pools(record) if pool.title == "NVIDIA A100")
        assert (pool.total, pool.withheld) == (2, 2)
        assert pool.withheld_by == ("guest g1, which uses GPU 'MIG-1'",)
        described = render_hardware(record)
        notes = {gpu["address"]: gpu["notes"] for gpu in described["gpus"]}
        assert "withheld for guest g1, which uses GPU 'MIG-1'" in notes[FIRST]
        assert "withheld" not in notes[AMD.address]
        shown = [item for cell in described["devices"] for item in cell["devices"]]
        assert all("withheld for guest g1" in item["notes"] for item in shown)
        assert len(shown) == (2 if specs else 0)


NIC_SPEC = DeviceSpec(vendor_id="8086")
MACVTAP = UnresolvedUse(ResourceKind.FUNCTION, "ens1f0", "by its driver", NIC.address)


@pytest.mark.parametrize("withholds", [True, False])
def test_a_function_that_guests_share_is_not_given_away_whole(withholds):
    """Its virtual functions stay free, nothing warns, and no option lifts it."""
    found = view(user(1, MACVTAP), user(2, MACVTAP), specs=(NIC_SPEC,), withholds=withholds)
    status = {address: device.status for address, device in found.devices.items()}
    assert status[NIC.address] is PciStatus.UNAVAILABLE
    assert status[PORT.address] is PciStatus.AVAILABLE
    assert not [w for w in found.warnings if w.kind is WarningKind.GUEST_UNRESOLVED]


@pytest.mark.parametrize("within", ["class:02", "vendor:8086"])
def test_what_may_be_a_network_card_withholds_the_network_cards_alone(within):
    unknown = UnresolvedUse(ResourceKind.PCI, "ens9", "no such interface", within)
    found = view(user(1, unknown), specs=(NIC_SPEC, GPU_SPEC))
    free = {address for address, device in found.devices.items() if device.is_available}
    assert free == {FIRST, SECOND}
