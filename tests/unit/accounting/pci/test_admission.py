import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.pci.admission import GROUP_IN_USE, PciAdmission, rank_affinity
from nodetracker.accounting.pci.state import claim_devices
from nodetracker.model.pci import (
    Alias,
    AliasSpec,
    DeviceSpec,
    PciDeviceType,
    PciNumaPolicy,
    PciRequest,
)
from tests.unit.accounting.pci.cases import (
    CLAIM,
    HOSTS,
    OTHER_CLAIM,
    make_card,
    make_devices,
    make_gpu,
)

ALIASES = {
    alias.name: alias
    for alias in (
        Alias("nic", (AliasSpec("8086", "10ed"),), PciDeviceType.VF),
        Alias("card", (AliasSpec("8086", "10fb"),), PciDeviceType.PF),
        Alias("untyped-card", (AliasSpec("8086", "10fb"),)),
        Alias("gpu", (AliasSpec("10de", "2335"),)),
        Alias("any-gpu", (AliasSpec("10de", "2335"), AliasSpec("10de", "1db6"))),
        Alias("movable", (AliasSpec("10de", "2335", True),)),
        Alias("immovable", (AliasSpec("10de", "2335", False),)),
        Alias("near", (AliasSpec("10de", "2335"),), None, PciNumaPolicy.REQUIRED),
    )
}
SOCKETS = {0: 0, 1: 0, 2: 1, 3: None}
NEAR = {cell: {cell} for cell in SOCKETS}


def admit(devices, *requests):
    return PciAdmission(devices, requests, ALIASES, NEAR, SOCKETS)


def chosen(devices, *requests, cells=()):
    """Return the devices chosen for each request; fail with the reasons on refusal."""
    verdict = admit(devices, *requests).evaluate(cells)
    assert verdict.reasons == ()
    return [list(addresses) for addresses in verdict.addresses]


def gpus(*cells):
    """Return a GPU for each cell id; the first is 0000:c0:00.0."""
    return make_devices(*(make_gpu(number, cell) for number, cell in enumerate(cells)))


class TestAffinity:
    @pytest.mark.parametrize(
        ("policy", "cells", "ranks"),
        [
            ("required", {0}, [0, None, None, None, None]),
            ("legacy", {0}, [0, None, None, None, 1]),
            ("preferred", {0}, [0, 2, 2, 2, 1]),
            ("socket", {0}, [0, 1, None, None, None]),
            ("socket", {1, 2}, [1, 0, 0, None, None]),
            ("socket", {3}, [None, None, None, 0, None]),
            ("required", set(), [1, 1, 1, 1, 0]),
            ("preferred", set(), [1, 1, 1, 1, 0]),
        ],
    )
    def test_decides_which_cells_are_near(self, policy, cells, ranks):
        found = [
            rank_affinity(near, PciNumaPolicy(policy), cells, SOCKETS)
            for near in ({0}, {1}, {2}, {3}, set())
        ]
        assert found == ranks

    @pytest.mark.parametrize(
        ("policy", "ranks"),
        [
            ("required", [0, None, None]),
            ("legacy", [0, 0, None]),
            ("preferred", [0, 0, 2]),
            ("socket", [0, 0, 1]),
        ],
    )
    def test_a_device_of_a_cell_without_cpus_is_near_the_nearest_ones(self, policy, ranks):
        """One, two at the same distance, and another one of the guest's socket."""
        found = [
            rank_affinity(near, PciNumaPolicy(policy), {0}, SOCKETS) for near in ({0}, {0, 2}, {1})
        ]
        assert found == ranks

    def test_a_device_of_a_cell_that_the_node_does_not_have_is_near_none(self):
        for policy, is_accepted in (("legacy", True), ("socket", False), ("required", False)):
            request = PciRequest("gpu", 1, PciNumaPolicy(policy))
            assert admit(gpus(7), request).accepts({0}) is is_accepted

    def test_the_request_s_policy_wins_over_the_alias_s(self):
        devices = gpus(1)
        assert not admit(devices, PciRequest("near")).accepts({0})
        assert admit(devices, PciRequest("near", 1, PciNumaPolicy.PREFERRED)).accepts({0})

    def test_a_guest_without_cells_gets_devices_from_anywhere(self):
        assert chosen(gpus(1), PciRequest("near")) == [["0000:c0:00.0"]]

    def test_unknown_sockets_are_near_nothing(self):
        request = PciRequest("gpu", 1, PciNumaPolicy.SOCKET)
        admission = PciAdmission(gpus(1), (request,), ALIASES, NEAR)
        assert admission.accepts({1})
        assert not admission.accepts({0})


class TestChoice:
    def test_prefers_near_devices(self):
        request = PciRequest("gpu", 2, PciNumaPolicy.PREFERRED)
        assert chosen(gpus(0, None, 1), request, cells={1}) == [["0000:c1:00.0", "0000:c2:00.0"]]

    def test_leaves_devices_of_a_cell_to_guests_with_cells(self):
        assert chosen(gpus(0, None), PciRequest("gpu")) == [["0000:c1:00.0"]]

    def test_avoids_virtual_functions_of_unused_cards(self):
        devices = make_devices(*make_card(0), *make_card(1))
        devices = claim_devices(devices, ["0000:81:10.1"], OTHER_CLAIM)
        assert chosen(devices, PciRequest("nic")) == [["0000:81:10.0"]]

    def test_prefers_the_card_with_the_fewest_functions_for_a_pf(self):
        devices = make_devices(*make_card(0, 3), *make_card(1, 1))
        assert chosen(devices, PciRequest("card")) == [["0000:81:00.0"]]

    def test_prefers_the_larger_pool(self):
        devices = make_devices(
            make_gpu(0, product_id="1db6"), *(make_gpu(number) for number in (1, 2))
        )
        assert chosen(devices, PciRequest("any-gpu")) == [["0000:c1:00.0"]]

    def test_takes_functions_of_one_card_together(self):
        one, other = (
            dataclasses.replace(make_card()[0], address=f"0000:80:00.{function}")
            for function in (0, 1)
        )
        vfs = [
            dataclasses.replace(vf, parent_addr=(one, other)[number % 2].address)
            for number, vf in enumerate(make_card(0, 4)[1:])
        ]
        devices = make_devices(one, other, *vfs)
        assert chosen(devices, PciRequest("nic", 2)) == [["0000:80:10.0", "0000:80:10.2"]]

    def test_assigns_physical_functions_only_on_request(self):
        devices = make_devices(*make_card(0, 0))
        assert not admit(devices, PciRequest("untyped-card")).accepts()
        assert admit(devices, PciRequest("card")).accepts()

    @pytest.mark.parametrize(
        ("tags", "movable", "immovable"),
        [
            ({"live_migratable": "true"}, True, False),
            ({"live_migratable": "false"}, False, True),
            ({}, False, True),
        ],
    )
    def test_respects_whether_devices_are_live_migratable(self, tags, movable, immovable):
        devices = make_devices(make_gpu(), specs=[DeviceSpec(tags=tags)])
        assert admit(devices, PciRequest("gpu")).accepts()
        assert admit(devices, PciRequest("movable")).accepts() is movable
        assert admit(devices, PciRequest("immovable")).accepts() is immovable

    def test_never_assigns_remotely_managed_devices(self):
        devices = make_devices(make_gpu(), specs=[DeviceSpec(tags={"remote_managed": "true"})])
        assert not admit(devices, PciRequest("gpu")).accepts()


class TestSeveralRequests:
    def test_share_no_device(self):
        devices = gpus(None, None)
        assert chosen(devices, PciRequest("gpu"), PciRequest("gpu")) == [
            ["0000:c0:00.0"],
            ["0000:c1:00.0"],
        ]
        assert not admit(devices, PciRequest("gpu", 2), PciRequest("gpu")).accepts()

    def test_leave_devices_that_only_one_can_use_to_each_other(self):
        devices = make_devices(make_gpu(0), make_gpu(1), make_gpu(2, product_id="1db6"))
        requests = [PciRequest("any-gpu"), PciRequest("gpu", 2)]
        assert chosen(devices, *requests) == [["0000:c2:00.0"], ["0000:c0:00.0", "0000:c1:00.0"]]

    def test_may_want_a_card_and_functions_of_another(self):
        devices = make_devices(*make_card(0, 2), *make_card(1, 2))
        requests = [PciRequest("nic", 2), PciRequest("card")]
        assert chosen(devices, *requests) == [["0000:81:10.0", "0000:81:10.1"], ["0000:80:00.0"]]
        assert not admit(devices, PciRequest("nic", 3), PciRequest("card")).accepts()


class TestIommuGroups:
    def admit(self, *drivers, is_container=False, groups=(23, 23)):
        """Ask for a GPU where another guest has the first one."""
        found = [
            dataclasses.replace(make_gpu(number), driver=driver, iommu_group=group)
            for number, (driver, group) in enumerate(zip(drivers, groups, strict=True))
        ]
        devices = claim_devices(make_devices(*found), ["0000:c0:00.0"], OTHER_CLAIM)
        request = (PciRequest("gpu"),)
        return PciAdmission(devices, request, ALIASES, is_container=is_container).evaluate()

    @pytest.mark.parametrize("driver", ["vfio-pci", "nvidia", ""])
    @pytest.mark.parametrize("own", ["vfio-pci", "nvidia"])
    def test_keep_an_instance_from_devices_beside_those_of_another_guest(self, driver, own):
        assert self.admit(driver, own).reasons == (
            "PCI devices 'gpu': 0 usable < requested 1 (10de:2335 type-PCI without a cell: 0 usable "
            f"of 0 available, 1 claimed, 1 {GROUP_IN_USE})",
        )

    def test_keep_a_container_from_what_it_could_use_by_vfio_only(self):
        assert GROUP_IN_USE in self.admit("nvidia", "vfio-pci", is_container=True).reasons[0]

    @pytest.mark.parametrize("driver", ["nvidia", "vfio-pci"])
    def test_do_not_concern_a_container_that_uses_the_driver_of_the_host(self, driver):
        verdict = self.admit(driver, "nvidia", is_container=True)
        assert verdict.all_addresses == ("0000:c1:00.0",)

    def test_are_as_before_without_groups(self):
        assert self.admit("vfio-pci", "vfio-pci", groups=(None, None)).reasons == ()

    def test_of_one_guest_are_shared_by_its_devices(self):
        found = [dataclasses.replace(make_gpu(number), iommu_group=23) for number in (0, 1)]
        assert chosen(make_devices(*found), PciRequest("gpu", 2)) == [
            ["0000:c0:00.0", "0000:c1:00.0"]
        ]

    def test_that_are_shared_are_taken_last(self):
        groups = [23, 23, 24]
        found = [
            dataclasses.replace(make_gpu(number), iommu_group=group)
            for number, group in enumerate(groups)
        ]
        assert chosen(make_devices(*found), PciRequest("gpu")) == [["0000:c2:00.0"]]


class TestReasons:
    def test_report_the_numbers_of_every_pool(self):
        devices = gpus(0, 0, 0, 1, None)
        devices = claim_devices(devices, ["0000:c0:00.0", "0000:c1:00.0"], OTHER_CLAIM)
        verdict = admit(devices, PciRequest("near", 2), PciRequest("nic")).evaluate({0, 2})
        assert verdict.reasons
        assert verdict.addresses == ()
        assert verdict.reasons == (
            "PCI devices 'near': 1 usable by policy required for cells 0,2 < requested 2 ("
            "10de:2335 type-PCI without a cell: 0 usable of 1 available, "
            "10de:2335 type-PCI on cell 0: 1 usable of 1 available, 2 claimed, "
            "10de:2335 type-PCI on cell 1: 0 usable of 1 available)",
            "PCI devices 'nic': 0 usable by policy legacy for cells 0,2 < requested 1 "
            "(no managed device matches)",
        )
        assert [finding.usable for finding in verdict.findings] == [1, 0]

    def test_name_devices_that_match_but_for_their_type(self):
        card, vf, _ = make_card()
        kind = (AliasSpec("8086", None),)
        aliases = {"any": Alias("any", kind), "vfs": Alias("vfs", kind, PciDeviceType.VF)}
        verdict = PciAdmission(make_devices(card), (PciRequest("any"),), aliases).evaluate()
        assert verdict.reasons == (
            "PCI devices 'any': 0 usable < requested 1 (no managed device matches; of another "
            "type: 8086:10fb type-PF without a cell, while the alias has no device_type, which "
            "excludes type-PF)",
        )
        verdict = PciAdmission(make_devices(card, vf), (PciRequest("vfs", 2),), aliases).evaluate()
        assert verdict.reasons == (
            "PCI devices 'vfs': 1 usable < requested 2 (8086:10ed type-VF without a cell: 1 usable "
            "of 1 available; of another type: 8086:10fb type-PF without a cell, while the alias "
            "has type-VF)",
        )

    def test_name_an_alias_that_is_not_configured(self):
        verdict = admit(gpus(None), PciRequest("fpga"), PciRequest("gpu")).evaluate()
        assert verdict.reasons == ("PCI alias 'fpga' is not configured",)

    def test_report_what_is_not_available_together(self):
        devices = make_devices(*make_card(0, 2))
        verdict = admit(devices, PciRequest("nic", 2), PciRequest("card")).evaluate()
        assert verdict.reasons == ("PCI devices: 2 usable together < requested 3",)
        assert [finding.usable for finding in verdict.findings] == [2, 1]

    def test_there_are_none_without_requests(self):
        verdict = admit({}).evaluate()
        assert verdict.reasons == ()
        assert verdict.all_addresses == ()


REQUESTS = st.lists(
    st.builds(
        PciRequest,
        st.sampled_from(["nic", "card", "gpu", "any-gpu"]),
        st.integers(1, 3),
        st.sampled_from([None, *PciNumaPolicy]),
    ),
    max_size=3,
)


@settings(deadline=None)
@given(HOSTS, REQUESTS, st.sets(st.integers(0, 3)))
def test_chosen_devices_can_be_claimed_and_meet_the_requests(host, requests, cells):
    devices = make_devices(*host)
    admission = admit(devices, *requests)
    verdict = admission.evaluate(cells)
    assert (not verdict.reasons) == admission.accepts(cells)
    assert verdict == admit(dict(reversed(devices.items())), *requests).evaluate(cells)
    if not verdict.reasons:
        claimed = claim_devices(devices, verdict.all_addresses, CLAIM)
        assert len(set(verdict.all_addresses)) == sum(request.count for request in requests)
        for request, addresses in zip(requests, verdict.addresses, strict=True):
            alias = ALIASES[request.alias]
            policy = request.numa_policy or alias.numa_policy
            for address in addresses:
                assert alias.matches(claimed[address])
                node = claimed[address].numa_node
                near = set() if node is None else NEAR[node]
                assert rank_affinity(near, policy, cells, SOCKETS) is not None
    one_more = [dataclasses.replace(request, count=request.count + 99) for request in requests]
    assert not admit(devices, *one_more).accepts(cells) or not requests
