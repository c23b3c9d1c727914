import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.pci.columns import count_pools, pci_columns
from nodetracker.accounting.pci.state import (
    allocate_devices,
    assign_to_claims,
    assign_to_guests,
    claim_devices,
    derive_status,
    free_devices,
    list_assigned,
    sync_devices,
)
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import RefusedError
from nodetracker.model.guest import GuestPins
from nodetracker.model.pci import AddressSpec, DeviceSpec, PciDevice, PciDeviceType, PciStatus
from tests.builders import make_claim, make_guest
from tests.unit.accounting.pci.cases import (
    ALL,
    CLAIM,
    HOSTS,
    OTHER_CLAIM,
    make_card,
    make_devices,
    make_gpu,
    statuses,
)

PF, VF0, VF1 = CARD = make_card()
GPU = make_gpu()


class TestStatuses:
    def test_of_new_devices_follow_from_the_specs(self):
        devices = make_devices(*CARD, GPU, specs=[DeviceSpec(product_id="10ed")])
        assert statuses(devices) == {
            PF.address: "unmanaged",
            VF0.address: "available",
            VF1.address: "available",
            GPU.address: "unmanaged",
        }

    @pytest.mark.parametrize(
        ("taken", "expected"),
        [
            ([PF], ["claimed", "unclaimable", "unclaimable", "available"]),
            ([VF0], ["unavailable", "claimed", "available", "available"]),
            ([VF0, VF1], ["unavailable", "claimed", "claimed", "available"]),
            ([GPU], ["available", "available", "available", "claimed"]),
        ],
        ids=["PF", "VF", "VFs", "neither"],
    )
    def test_follow_from_the_devices_of_a_claim(self, taken, expected):
        addresses = [device.address for device in taken]
        before = make_devices(*CARD, GPU)
        claimed = claim_devices(before, addresses, CLAIM)
        assert list(statuses(claimed).values()) == expected
        assert list_assigned(claimed, CLAIM) == tuple(addresses)
        allocated = allocate_devices(claimed, addresses, CLAIM)
        assert list(statuses(allocated).values()) == [
            status.replace("claimed", "allocated") for status in expected
        ]
        assert allocate_devices(before, addresses, CLAIM) == allocated
        assert free_devices(allocated, CLAIM) == before

    def test_a_pf_is_available_after_its_last_vf_is_freed(self):
        devices = claim_devices(make_devices(*CARD), [VF0.address], CLAIM)
        devices = claim_devices(devices, [VF1.address], OTHER_CLAIM)
        devices = free_devices(devices, CLAIM)
        assert devices[PF.address].status is PciStatus.UNAVAILABLE
        assert free_devices(devices, OTHER_CLAIM)[PF.address].is_available

    def test_the_unmanaged_pf_of_a_claimed_vf_remains_unmanaged(self):
        devices = make_devices(*CARD, specs=[DeviceSpec(product_id="10ed")])
        devices = claim_devices(devices, [VF0.address], CLAIM)
        assert devices[PF.address].status is PciStatus.UNMANAGED

    def test_a_claim_without_devices_frees_nothing(self):
        devices = claim_devices(make_devices(*CARD), [VF0.address], CLAIM)
        assert free_devices(devices, OTHER_CLAIM) == devices


@pytest.mark.parametrize(
    ("address", "status"),
    [(PF.address, "unavailable"), (VF0.address, "claimed"), (GPU.address, "unmanaged")],
)
@pytest.mark.parametrize("take", [claim_devices, allocate_devices])
def test_an_unavailable_device_is_refused(take, address, status):
    devices = make_devices(*CARD, GPU, specs=[DeviceSpec(vendor_id="8086")])
    devices = claim_devices(devices, [VF0.address], OTHER_CLAIM)
    with pytest.raises(RefusedError, match=f"{address} is {status}"):
        take(devices, [address], CLAIM)


def test_a_missing_device_is_refused():
    with pytest.raises(RefusedError, match="no such PCI device: 0000:00:00.0"):
        claim_devices(make_devices(*CARD), ["0000:00:00.0"], CLAIM)


def test_a_pf_is_not_assigned_together_with_its_vfs():
    with pytest.raises(RefusedError, match=f"{VF0.address} is a VF of {PF.address}"):
        claim_devices(make_devices(*CARD), [PF.address, VF0.address], CLAIM)


class TestClaimsThatHaveDevices:
    CLAIMS = (
        make_claim(CLAIM, make_guest(1).uuid, devices=(VF0.address,)),
        make_claim(
            OTHER_CLAIM,
            make_guest(2).uuid,
            devices=(GPU.address, VF1.address),
            state=ClaimState.HELD,
        ),
    )
    BEFORE = {claim.uuid: claim for claim in CLAIMS}  # noqa: RUF012

    @pytest.mark.parametrize("before", [BEFORE, {}], ids=["unchanged", "unknown before"])
    @pytest.mark.parametrize("holder", [None, make_guest(1).uuid], ids=["nobody", "its guest"])
    def test_get_devices_that_reappear(self, before, holder):
        devices = make_devices(*CARD, GPU)
        if holder:
            devices = allocate_devices(devices, [VF0.address], holder)
        held = assign_to_claims(devices, self.CLAIMS, before)
        assert statuses(held) == {
            PF.address: "unavailable",
            VF0.address: "allocated",
            VF1.address: "claimed",
            GPU.address: "claimed",
        }
        assert list_assigned(held, CLAIM) == (VF0.address,)
        assert list_assigned(held, OTHER_CLAIM) == (VF1.address, GPU.address)
        assert assign_to_claims(held, self.CLAIMS, self.BEFORE) == held

    def test_skip_devices_of_others_and_missing_ones(self):
        devices = allocate_devices(make_devices(*CARD), [VF0.address], make_guest(3).uuid)
        held = assign_to_claims(devices, self.CLAIMS, self.BEFORE)
        assert held[VF0.address].claim_uuid == make_guest(3).uuid
        assert list_assigned(held, OTHER_CLAIM) == (VF1.address,)


def make_pair(driver="vfio-pci", **second):
    """Build two GPUs behind one switch, in one IOMMU group with its bridge."""
    gpus = [
        dataclasses.replace(make_gpu(number), driver=driver, iommu_group=23) for number in (0, 1)
    ]
    bridge = PciDevice("0000:bf:00.0", "10b5", "8747", class_id="060400", iommu_group=23)
    return gpus[0], dataclasses.replace(gpus[1], **second), bridge


class TestIommuGroups:
    GUEST = make_guest(1, pins=GuestPins((), ("0000:c0:00.0",)))

    @pytest.mark.parametrize("driver", ["vfio-pci", "", "pci-stub", "nvgrace_gpu_vfio_pci"])
    def test_a_device_without_a_driver_of_the_host_is_unavailable_while_its_group_is_used(
        self, driver
    ):
        first, second, bridge = make_pair(driver)
        before = make_devices(first, second, bridge, specs=[DeviceSpec(vendor_id="10de")])
        devices = claim_devices(before, [first.address], CLAIM)
        assert devices[second.address].status is PciStatus.UNAVAILABLE
        assert pci_columns(devices.values()) == {"pci_stats": []}
        assert free_devices(devices, CLAIM) == before

    @pytest.mark.parametrize(
        "second",
        [{"driver": "nvidia"}, {"iommu_group": 24}, {"iommu_group": None}],
        ids=["a driver of the host", "another group", "no group"],
    )
    def test_any_other_device_remains_available(self, second):
        first, other, bridge = make_pair(**second)
        devices = claim_devices(make_devices(first, other, bridge), [first.address], CLAIM)
        assert devices[other.address].is_available

    def test_a_bridge_does_not_make_its_group_used(self):
        first, second, bridge = make_pair()
        devices = allocate_devices(make_devices(first, second, bridge), [bridge.address], CLAIM)
        assert devices[first.address].is_available

    def test_an_unmanaged_member_that_a_guest_has_makes_the_others_unavailable(self):
        first, second, bridge = make_pair(vendor_id="1002")
        before = make_devices(first, second, bridge, specs=[DeviceSpec(vendor_id="1002")])
        devices = assign_to_guests(before, [self.GUEST], [])
        assert statuses(devices) == {
            first.address: "allocated",
            second.address: "unavailable",
            bridge.address: "unmanaged",
        }
        assert assign_to_guests(devices, [], []) == before

    def test_a_device_of_several_guests_stays_with_the_one_that_holds_it(self):
        guests = [make_guest(number, pins=self.GUEST.pins) for number in (1, 2)]
        devices = assign_to_guests(make_devices(GPU), guests, [])
        assert devices[GPU.address].claim_uuid == guests[0].uuid
        assert assign_to_guests(devices, guests[::-1], []) == devices
        left = assign_to_guests(devices, guests[1:], [])
        assert left[GPU.address].claim_uuid == guests[1].uuid

    def test_claims_and_guests_that_share_a_group_keep_their_devices(self):
        first, second, bridge = make_pair()
        claim = make_claim(CLAIM, self.GUEST.uuid, devices=(first.address,))
        other = make_claim(
            OTHER_CLAIM, make_guest(2).uuid, devices=(second.address,), state=ClaimState.HELD
        )
        found = make_devices(first, second, bridge)
        held = assign_to_claims(found, [claim, other], {})
        assert list_assigned(held, CLAIM) == (first.address,)
        assert list_assigned(held, OTHER_CLAIM) == (second.address,)
        guest = make_guest(2, pins=GuestPins((), (second.address,)))
        held = assign_to_guests(found, [self.GUEST, guest], [])
        assert list_assigned(held, guest.uuid) == (second.address,)


class TestSync:
    def test_a_free_device_that_disappears_is_dropped(self):
        assert sync_devices(make_devices(*CARD, GPU), CARD, ALL, {}) == make_devices(*CARD)

    def test_an_assigned_device_that_disappears_is_kept_until_it_is_freed(self):
        before = claim_devices(make_devices(*CARD), [VF0.address], CLAIM)
        devices = sync_devices(before, [PF, VF1], ALL, {})
        assert statuses(devices) == {
            PF.address: "unavailable",
            VF1.address: "available",
            VF0.address: "removed",
        }
        assert devices[VF0.address].claim_uuid == CLAIM
        assert free_devices(devices, CLAIM) == make_devices(PF, VF1)

    def test_a_removed_device_keeps_its_status_when_its_claim_is_confirmed(self):
        devices = claim_devices(make_devices(GPU), [GPU.address], CLAIM)
        devices = sync_devices(devices, [], ALL, {})
        assert allocate_devices(devices, list_assigned(devices, CLAIM), CLAIM) == devices

    def test_an_assigned_device_that_reappears_is_allocated_again(self):
        before = allocate_devices(make_devices(*CARD), [VF0.address], CLAIM)
        devices = sync_devices(before, [PF, VF1], ALL, {})
        assert sync_devices(devices, CARD, ALL, {}) == before

    def test_an_assigned_pf_that_disappears_still_blocks_its_vfs(self):
        devices = claim_devices(make_devices(*CARD), [PF.address], CLAIM)
        devices = sync_devices(devices, [VF0], ALL, {})
        assert statuses(devices) == {VF0.address: "unclaimable", PF.address: "removed"}

    @pytest.mark.parametrize("other", [{"vendor_id": "144d"}, {"product_id": "20b0"}])
    def test_another_device_at_the_address_of_an_assigned_one_is_not_the_claim_s(self, other):
        before = claim_devices(make_devices(GPU), [GPU.address], CLAIM)
        shifted = dataclasses.replace(GPU, address="0000:d0:00.0")
        devices = sync_devices(before, [dataclasses.replace(GPU, **other), shifted], ALL, {})
        assert statuses(devices) == {GPU.address: "removed", shifted.address: "available"}
        assert (devices[GPU.address].vendor_id, devices[GPU.address].product_id) == (
            GPU.vendor_id,
            GPU.product_id,
        )
        claim = make_claim(CLAIM, make_guest(1).uuid, devices=(GPU.address,))
        held = make_claim(CLAIM, make_guest(1).uuid, devices=(GPU.address,), state=ClaimState.HELD)
        assert assign_to_claims(devices, [claim], {CLAIM: held}) == devices
        back = sync_devices(devices, [GPU], ALL, {})
        assert statuses(back) == {GPU.address: "allocated"}
        assert statuses(free_devices(devices, CLAIM)) == {shifted.address: "available"}

    def test_another_card_at_the_address_of_the_pf_of_a_lost_vf_is_available(self):
        before = claim_devices(make_devices(*CARD), [VF0.address], CLAIM)
        other = dataclasses.replace(GPU, address=PF.address)
        devices = sync_devices(before, [other], ALL, {})
        assert statuses(devices) == {PF.address: "available", VF0.address: "removed"}

    @pytest.mark.parametrize("is_assigned", [False, True])
    def test_a_changed_device_has_its_new_values(self, is_assigned):
        devices = make_devices(GPU)
        if is_assigned:
            devices = claim_devices(devices, [GPU.address], CLAIM)
        changed = dataclasses.replace(GPU, driver="vfio-pci", numa_node=1)
        (device,) = sync_devices(devices, [changed], ALL, {}).values()
        assert (device.driver, device.numa_node) == ("vfio-pci", 1)
        assert device.status is (PciStatus.CLAIMED if is_assigned else PciStatus.AVAILABLE)
        assert device.claim_uuid == (CLAIM if is_assigned else None)

    def test_virtual_functions_that_appear_are_available(self):
        devices = sync_devices(make_devices(PF), CARD, ALL, {})
        assert devices == make_devices(*CARD)

    def test_new_vfs_of_an_assigned_pf_are_unclaimable(self):
        devices = claim_devices(make_devices(PF), [PF.address], CLAIM)
        devices = sync_devices(devices, CARD, ALL, {})
        assert devices[VF0.address].status is PciStatus.UNCLAIMABLE

    def test_a_card_that_gets_vfs_becomes_a_pf(self):
        plain = dataclasses.replace(PF, dev_type=PciDeviceType.PCI, vf_total=0)
        devices = sync_devices(make_devices(plain), CARD, ALL, {})
        assert devices == make_devices(*CARD)

    def test_changed_specs_are_applied(self):
        specs = [DeviceSpec(tags={"physical_network": "one"})]
        assert sync_devices(make_devices(*CARD), CARD, [], {}) == make_devices(*CARD, specs=[])
        assert sync_devices(make_devices(*CARD, specs=[]), CARD, specs, {}) == make_devices(
            *CARD, specs=specs
        )

    def test_an_assigned_device_without_a_spec_is_unmanaged_once_freed(self):
        devices = claim_devices(make_devices(GPU), [GPU.address], CLAIM)
        devices = sync_devices(devices, [GPU], [], {})
        assert devices[GPU.address].status is PciStatus.CLAIMED
        assert free_devices(devices, CLAIM) == make_devices(GPU, specs=[])

    def test_an_interface_matches_its_device_while_it_exists(self):
        specs = [DeviceSpec(devname="eth0", address=AddressSpec())]
        devices = sync_devices({}, [*CARD, GPU], specs, {"eth0": PF.address})
        assert list(statuses(devices).values()) == ["available"] * 3 + ["unmanaged"]
        assert set(statuses(sync_devices(devices, CARD, specs, {})).values()) == {"unmanaged"}

    def test_stored_statuses_that_contradict_the_claims_are_corrected(self):
        devices = make_devices(*CARD)
        wrong = {
            PF.address: dataclasses.replace(devices[PF.address], status=PciStatus.CLAIMED),
            VF0.address: dataclasses.replace(devices[VF0.address], claim_uuid=CLAIM),
            VF1.address: devices[VF1.address],
        }
        assert list(statuses(derive_status(wrong)).values()) == [
            "unavailable",
            "allocated",
            "available",
        ]


class TestPools:
    def test_contain_equal_available_devices(self):
        specs = [
            DeviceSpec(
                product_id="10ed",
                address=AddressSpec(bus="80"),
                tags={"physical_network": "physnet0", "traits": "CUSTOM_FAST"},
            ),
            DeviceSpec(product_id="10ed", tags={"trusted": "true"}),
            DeviceSpec(vendor_id="10de", tags={"resource_class": "CUSTOM_GPU"}),
        ]
        devices = make_devices(*make_card(0, 3, 1), *make_card(1, 1), make_gpu(), specs=specs)
        devices = claim_devices(devices, ["0000:80:10.1"], CLAIM)
        assert pci_columns(devices.values())["pci_stats"] == [
            {
                "vendor_id": "10de",
                "product_id": "2335",
                "dev_type": "type-PCI",
                "numa_node": None,
                "count": 1,
            },
            {
                "vendor_id": "8086",
                "product_id": "10ed",
                "dev_type": "type-VF",
                "numa_node": None,
                "remote_managed": "false",
                "trusted": "true",
                "count": 1,
            },
            {
                "vendor_id": "8086",
                "product_id": "10ed",
                "dev_type": "type-VF",
                "numa_node": 1,
                "physical_network": "physnet0",
                "remote_managed": "false",
                "count": 2,
            },
        ]

    def test_that_are_empty_are_omitted(self):
        assert pci_columns(make_devices(*CARD, specs=[]).values()) == {"pci_stats": []}


SPEC_SETS = st.sampled_from([ALL, (), (DeviceSpec(product_id="10ed", tags={"trusted": "true"}),)])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "allocate", "free", "sync"]),
        st.sampled_from([CLAIM, OTHER_CLAIM]),
        st.sets(st.integers(0, 14), max_size=4),
        SPEC_SETS,
    ),
    max_size=12,
)


def assert_sound(devices):
    """Check the invariants."""
    for device in devices.values():
        parent = devices.get(device.parent_addr)
        assert not (device.is_assigned and parent is not None and parent.is_assigned)
        assert device.is_assigned == (device.status in ("claimed", "allocated", "removed"))
        if device.is_available:
            assert device.is_managed
            assert parent is None or not parent.is_assigned
    available = sum(1 for device in devices.values() if device.is_available)
    counts = count_pools(devices.values())
    assert sum(counts.values()) == available
    assert all(count > 0 for count in counts.values())
    assert derive_status(devices) == devices


@settings(deadline=None)
@given(HOSTS, STEPS)
def test_no_device_is_ever_in_two_claims_or_assigned_with_its_pf(host, steps):
    devices = make_devices(*host)
    observed, specs = host, ALL
    for step, claim_uuid, numbers, new_specs in steps:
        before = devices
        picked = [host[number].address for number in sorted(numbers) if number < len(host)]
        if step == "sync":  # the picked devices are unplugged, the others reappear
            specs = new_specs
            observed = [device for device in host if device.address not in picked]
            devices = sync_devices(devices, observed, specs, {})
            assert {a: d.claim_uuid for a, d in devices.items() if d.is_assigned} == {
                a: d.claim_uuid for a, d in before.items() if d.is_assigned
            }
        elif step == "free":
            devices = free_devices(devices, claim_uuid)
            assert list_assigned(devices, claim_uuid) == ()
        else:
            take = claim_devices if step == "claim" else allocate_devices
            try:
                devices = take(devices, picked, claim_uuid)
            except RefusedError:
                continue
            assert set(picked) <= set(list_assigned(devices, claim_uuid))
            if not list_assigned(before, claim_uuid):
                assert free_devices(devices, claim_uuid) == before
        assert_sound(devices)
    once = sync_devices(devices, observed, specs, {})
    assert sync_devices(once, observed, specs, {}) == once
    assert once == devices
