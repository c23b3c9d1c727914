"""Test GPUs as PGPU: each is available in one way, and guests' GPUs are reserved."""

import dataclasses
from datetime import timedelta

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.pci.columns import count_bound
from nodetracker.accounting.withheld import explain_withheld_gpus
from nodetracker.model.fact import FactState, failed, fresh
from nodetracker.model.guest import GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.host import Gpu
from nodetracker.model.pci import DeviceSpec, PciDevice, PciDeviceType
from nodetracker.model.settings import PciPolicy, Policy
from nodetracker.model.warning import WarningKind
from tests.builders import NOW, make_guest, make_record, make_snapshot
from tests.unit.accounting.pci.cases import make_claim

CARDS = tuple(
    PciDevice(f"0000:{bus}:00.0", "10de", "2335", "030200", PciDeviceType.PF, driver="nvidia")
    for bus in ("c0", "c1", "c2")
)
FIRST, SECOND, THIRD = (card.address for card in CARDS)
PART = PciDevice(
    "0000:c0:00.4", "10de", "2336", "030200", PciDeviceType.VF, parent_addr=CARDS[0].address
)
WHOLE_CARDS = DeviceSpec(vendor_id="10de", product_id="2335")
PARTS = DeviceSpec(vendor_id="10de", product_id="2336")


def snapshot(*guests, **more):
    facts = {
        "pci": fresh("sysfs", (*CARDS, PART)),
        "gpus": fresh("NVML", tuple(Gpu(card.address, "NVIDIA", "H200") for card in CARDS)),
    }
    return make_snapshot("node-1", *guests, **(facts | more))


def bound(number, *addresses, **more):
    return make_guest(number, pins=GuestPins((), addresses), **more)


def view(*guests, claims=(), specs=(), stored=None, **facts):
    record = stored or make_record()
    record = dataclasses.replace(record, claims={claim.uuid: claim for claim in claims})
    policy = Policy(pci=PciPolicy(specs=specs))
    return account(snapshot(*guests, **facts), record, policy, NOW)


def pgpu(found):
    entry = found.values.inventory.get("PGPU")
    return entry and (entry["total"], entry["reserved"])


@pytest.mark.parametrize(
    ("specs", "expected"),
    [((), (3, 0)), ((PARTS,), (2, 0)), ((WHOLE_CARDS,), None)],
    ids=["none", "of parts of the first", "of all"],
)
def test_a_gpu_that_a_device_spec_matches_is_not_a_pgpu(specs, expected):
    assert pgpu(view(specs=specs)) == expected


@pytest.mark.parametrize(
    ("guests", "claims", "expected"),
    [
        ([bound(1, FIRST)], [], (3, 1)),
        ([bound(1, PART.address)], [], (3, 1)),
        ([bound(1, FIRST, PART.address)], [], (3, 1)),
        ([bound(1, FIRST), bound(2, PART.address)], [], (3, 1)),
        ([bound(1, FIRST, SECOND), bound(2, THIRD)], [], (3, 3)),
        ([bound(1, "0000:00:1f.0")], [], (3, 0)),
        ([bound(1, FIRST)], [make_claim(1)], (3, 1)),
        ([bound(1, FIRST)], [make_claim(1, 1)], (3, 0)),
        ([bound(1, FIRST, SECOND)], [make_claim(1, 1)], (3, 1)),
        ([bound(1, FIRST)], [make_claim(1, 3)], (3, 0)),
        ([bound(1, FIRST)], [make_claim(2, 1)], (3, 1)),
        ([bound(1, FIRST)], [make_claim(1, 0, (FIRST,))], (2, 0)),
    ],
    ids=[
        "a guest has one",
        "a part of one",
        "one and a part of it",
        "two guests share one",
        "all are taken",
        "another device",
        "its claim is of no GPU",
        "its claim is of that GPU",
        "its claim is of one of two",
        "its claim is of more",
        "another's claim",
        "its claim has it as a PCI device that no spec names any longer",
    ],
)
def test_a_guest_s_gpu_is_reserved_unless_its_claim_has_pgpus(guests, claims, expected):
    assert pgpu(view(*guests, claims=claims)) == expected


def test_the_row_has_each_gpu_s_resource_class_and_guests():
    found = view(bound(1, FIRST), bound(2, THIRD), specs=(PARTS,))
    assert [(gpu["resource_class"], gpu["guests"]) for gpu in found.values.gpus] == [
        (None, [make_guest(1).uuid]),
        ("PGPU", []),
        ("PGPU", [make_guest(2).uuid]),
    ]
    assert count_bound(found.values.gpus, make_guest(1).uuid) == 0
    assert count_bound(found.values.gpus, make_guest(2).uuid) == 1


def test_guests_of_gpus_are_updated_while_the_gpus_fact_is_held():
    before = view()
    stored = make_record(before.values, devices=before.devices)
    after = view(bound(1, FIRST), stored=stored, gpus=failed("NVML", "no answer"))
    assert pgpu(after) == (3, 1)
    assert pgpu(view(stored=make_record(after.values, devices=after.devices))) == (3, 0)


IDENTIFIED = tuple(
    Gpu(card.address, "NVIDIA", "H200", uuid=f"GPU-{card.address}") for card in CARDS
)
SILENT = tuple(
    Gpu(card.address, "NVIDIA", "10de:2335", problem="Driver/library version mismatch")
    for card in CARDS
)


def requesting(number, name, *addresses, unresolved=()):
    return make_guest(
        number, details={"gpu_names": [name]}, pins=GuestPins((), addresses, unresolved)
    )


def test_identities_and_bindings_are_held_while_the_driver_does_not_answer():
    before = view(requesting(1, "GPU-1", FIRST), gpus=fresh("NVML", IDENTIFIED))
    stored = make_record(before.values, devices=before.devices, guests=before.guests)
    lost = UnresolvedUse(ResourceKind.GPU, "GPU-1", "version mismatch", "NVIDIA")
    after = view(
        requesting(1, "GPU-1", unresolved=(lost,)), stored=stored, gpus=fresh("NVML", SILENT)
    )
    assert [gpu["uuid"] for gpu in after.values.gpus] == [gpu.uuid for gpu in IDENTIFIED]
    assert after.guests[make_guest(1).uuid].pins == GuestPins((), (FIRST,))
    assert after.values.facts["gpus"].state is FactState.HELD
    assert "Driver/library version mismatch" in after.values.facts["gpus"].error
    assert pgpu(after) == (3, 3)
    again = view(
        requesting(1, "GPU-2", unresolved=(lost,)), stored=stored, gpus=fresh("NVML", SILENT)
    )
    assert again.guests[make_guest(1).uuid].pins.unresolved == (lost,)


def test_one_gpu_that_does_not_answer_is_not_offered_and_does_not_expire():
    before = view(gpus=fresh("NVML", IDENTIFIED))
    stored = make_record(before.values, devices=before.devices)
    gpus = fresh("NVML", (IDENTIFIED[0], SILENT[1], IDENTIFIED[2]))
    after = view(stored=stored, gpus=gpus)
    assert pgpu(after) == (3, 1)
    assert after.values.gpus[1]["uuid"] == IDENTIFIED[1].uuid
    policy = Policy()
    late = account(snapshot(gpus=gpus), make_record(after.values), policy, NOW + timedelta(hours=2))
    assert late.values.facts["gpus"].state is FactState.HELD
    back = view(stored=make_record(after.values), gpus=fresh("NVML", IDENTIFIED))
    assert pgpu(back) == (3, 0)
    assert back.values.facts["gpus"].state is FactState.FRESH


def test_a_gpu_that_never_answered_is_not_fresh_either():
    found = view(gpus=fresh("NVML", SILENT))
    assert found.values.facts["gpus"].state is FactState.HELD
    assert pgpu(found) == (3, 3)


def test_gpus_are_not_offered_while_the_library_hangs():
    before = view(gpus=fresh("NVML", IDENTIFIED))
    after = view(stored=make_record(before.values), gpus=failed("NVML", "timed out"))
    assert pgpu(after) == (3, 3)


NO_PARTS = "is in MIG mode without MIG devices, so nothing can compute on it"
DIVIDED = (dataclasses.replace(IDENTIFIED[0], problem=NO_PARTS), *IDENTIFIED[1:])


def test_a_gpu_that_answers_but_cannot_be_used_is_not_offered_and_named():
    found = view(gpus=fresh("NVML", DIVIDED))
    assert pgpu(found) == (3, 1)
    assert found.values.facts["gpus"].state is FactState.FRESH
    (warning,) = found.warnings
    assert (warning.kind, warning.item) == (WarningKind.HOST_DATA, FIRST)
    assert NO_PARTS in warning.message
    assert NO_PARTS in explain_withheld_gpus(found.values)
    stored = make_record(found.values, devices=found.devices)
    whole = dataclasses.replace(IDENTIFIED[0], name="H200 NVL")
    later = view(stored=stored, gpus=fresh("NVML", (whole, *IDENTIFIED[1:])))
    assert (pgpu(later), later.warnings) == ((3, 0), ())
    assert later.values.gpus[0]["name"] == "H200 NVL"


@pytest.mark.parametrize("spec", [WHOLE_CARDS, PARTS], ids=["whole", "its virtual functions"])
def test_a_gpu_that_guests_get_is_divided_by_these(spec):
    """A guest that a GPU is passed through to creates the MIG devices itself."""
    found = view(specs=(spec,), gpus=fresh("NVML", DIVIDED))
    assert found.warnings == ()
    assert not any(device.withheld_by for device in found.devices.values())


@pytest.mark.parametrize(
    ("specs", "known", "expected"),
    [((), True, "held"), ((), False, "fresh"), ((WHOLE_CARDS,), True, "fresh")],
    ids=["answered before", "never had a driver", "is given to guests since"],
)
def test_a_gpu_without_a_driver_need_not_answer(specs, known, expected):
    unbound = tuple(dataclasses.replace(card, driver="") for card in CARDS)
    stored = make_record(view(gpus=fresh("NVML", IDENTIFIED)).values) if known else None
    found = view(
        specs=specs, stored=stored, gpus=fresh("NVML", SILENT), pci=fresh("sysfs", unbound)
    )
    assert found.values.facts["gpus"].state == expected
    assert pgpu(found) is None


@pytest.mark.parametrize(
    ("vendor", "driver", "counts"),
    [
        ("10de", "nvidia", True),
        ("10de", "unknown", True),
        ("10de", "nouveau", False),
        ("10de", "vfio-pci", False),
        ("10de", "", False),
        ("1002", "amdgpu", True),
        ("1002", "radeon", False),
        ("8086", "xe", True),
        ("1d17", "mtgpu", True),
        ("1d17", "vfio-pci", False),
    ],
)
def test_a_gpu_counts_only_with_a_driver_that_something_computes_with(vendor, driver, counts):
    device = dataclasses.replace(CARDS[0], vendor_id=vendor, driver=driver)
    found = view(gpus=fresh("NVML", (Gpu(FIRST, "X", "x"),)), pci=fresh("sysfs", (device,)))
    assert pgpu(found) == ((1, 0) if counts else None)


@pytest.mark.parametrize("address", [FIRST, PART.address], ids=["itself", "a part of it"])
def test_a_gpu_of_which_a_guest_has_a_part_is_not_given_away_by_alias(address):
    found = view(bound(1, address), specs=(WHOLE_CARDS,))
    assert not found.devices[FIRST].is_available
    assert found.devices[SECOND].is_available
    assert found.devices[address].claim_uuid == make_guest(1).uuid
    freed = view(specs=(WHOLE_CARDS,), stored=make_record(found.values, devices=found.devices))
    assert freed.devices[FIRST].is_available
