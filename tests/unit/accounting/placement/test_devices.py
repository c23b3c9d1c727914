"""PCI devices as providers below their node's."""

import dataclasses
import uuid

import pytest

from nodetracker.accounting.audit.provider_config import check_reported_specs
from nodetracker.accounting.placement.comparison import compare, settle
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import PlacedConsumer, PlacedTree
from nodetracker.bootstrap.options.pci_entries import parse_device_specs
from nodetracker.model.errors import ConfigError
from nodetracker.model.pci import PciDeviceType, PciStatus, TrackedDevice
from tests.placement_model import NODE, make_claim, make_node

PF, VF = PciDeviceType.PF, PciDeviceType.VF
CARD, GPU = "0000:81:00.0", "0000:c1:00.0"


def vf(number, **changes):
    address = f"0000:81:10.{number}"
    default = {"parent_addr": CARD, "status": PciStatus.AVAILABLE, "tags": {"traits": "gold"}}
    return TrackedDevice(address, "8086", "10ed", dev_type=VF, **(default | changes))


def gpu(**changes):
    default = {"status": PciStatus.AVAILABLE, "tags": {"resource_class": "fast gpu"}}
    return TrackedDevice(GPU, "10de", "2330", **(default | changes))


def node_with(*devices, claims=()):
    record = make_node(claims)
    return dataclasses.replace(record, devices={device.address: device for device in devices})


def describe(record, is_reported=True):
    return describe_tree(record, False, is_reported)


def test_each_card_is_a_provider_with_its_functions_together() -> None:
    card = TrackedDevice(CARD, "8086", "10fb", dev_type=PF)
    tree = describe(node_with(card, vf(0), vf(1), gpu()))
    _, first, second = tree.providers
    assert (first.uuid, first.parent_uuid) == (str(uuid.uuid5(uuid.UUID(NODE), CARD)), NODE)
    assert (first.name, second.name) == (
        f"{tree.nodename}_0000:81:00.0", f"{tree.nodename}_0000:C1:00.0"
    )  # fmt: skip
    assert {name: entry.total for name, entry in first.classes.items()} == {
        "CUSTOM_PCI_8086_10ED": 2
    }
    assert first.traits == {"COMPUTE_MANAGED_PCI_DEVICE", "CUSTOM_GOLD"}
    assert set(second.classes) == {"CUSTOM_FAST_GPU"}


@pytest.mark.parametrize("network", [None, ""])
def test_a_physical_network_that_is_null_or_empty_is_none(network) -> None:
    _, card = describe(node_with(vf(0, tags={"physical_network": network}))).providers
    assert card.classes["CUSTOM_PCI_8086_10ED"].total == 1


def test_devices_that_are_not_managed_or_of_networks_have_no_provider() -> None:
    devices = [vf(0, tags=None), vf(1, tags={"physical_network": "physnet1"})]
    assert len(describe(node_with(*devices)).providers) == 1
    assert len(describe(node_with(gpu()), is_reported=False).providers) == 1


def test_claims_have_their_devices_and_the_rest_of_what_is_assigned_is_reserved() -> None:
    claim = dataclasses.replace(make_claim(1, vcpu_milli=1000), devices=(vf(0).address,))
    held = vf(0, claim_uuid=claim.uuid, status=PciStatus.ALLOCATED)
    guest = vf(1, claim_uuid=str(uuid.uuid4()), status=PciStatus.ALLOCATED)
    tree = describe(node_with(held, guest, vf(2), claims=[claim]))
    child = tree.providers[1].uuid
    (consumer,) = tree.consumers.values()
    assert consumer.resources[child] == {"CUSTOM_PCI_8086_10ED": 1}
    entry = settle(PlacedTree(), tree).providers[child].inventories["CUSTOM_PCI_8086_10ED"]
    assert (entry.total, entry.reserved) == (3, 1)


def test_a_card_for_one_use_is_all_reserved_from_then_on() -> None:
    claim = dataclasses.replace(make_claim(1, vcpu_milli=1000), devices=(GPU,))
    free = gpu(tags={"one_time_use": "true"})
    used = dataclasses.replace(free, claim_uuid=claim.uuid, status=PciStatus.ALLOCATED)

    def reserved(tree):
        (child,) = (p for p in tree.providers.values() if p.parent_uuid)
        (entry,) = child.inventories.values()
        return child.uuid, entry.reserved

    fresh = settle(PlacedTree(), describe(node_with(free)))
    assert reserved(fresh)[1] == 0
    placed = settle(fresh, describe(node_with(used, claims=[claim])))
    child, amount = reserved(placed)
    assert (amount, child in placed.consumers[claim.workload.uuid].resources) == (1, True)
    unused = describe(node_with(free))
    released = settle(PlacedTree(placed.providers), unused)
    assert reserved(released)[1] == 1
    assert compare(released, unused) == []


def test_a_card_that_is_no_longer_managed_is_deleted_once_nobody_uses_it() -> None:
    before = settle(PlacedTree(), describe(node_with(gpu())))
    child = next(uuid for uuid in before.providers if uuid != NODE)
    after = describe(node_with())
    (line,) = compare(before, after)
    assert (line.provider, line.what, line.expected) == (child, "provider", "")
    assert set(settle(before, after).providers) == {NODE}
    foreign = PlacedConsumer("f", 1, {child: {"CUSTOM_FAST_GPU": 1}}, True, "INSTANCE")
    kept = settle(PlacedTree(before.providers, {"f": foreign}), after)
    assert kept.providers[child].inventories["CUSTOM_FAST_GPU"].reserved == 1


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (
            ['{"product_id": "10fb"}', '{"product_id": "10ed"}'],
            r'{"product_id": "10fb"} and {"product_id": "10ed"}: card 0000:81:00.0: both the '
            "function and its virtual functions",
        ),
        (
            ['{"address": "0000:81:10.0", "resource_class": "A"}', '{"product_id": "10ed"}'],
            r'"resource_class": "A"} and .*different resource classes, CUSTOM_A and CUSTOM_PCI',
        ),
        (
            ['{"address": "0000:81:10.0", "traits": "gold"}', '{"product_id": "10ed"}'],
            "different traits",
        ),
        (['{"devname": "eth0"}'], r'{"devname": "eth0"}: devname cannot be used'),
        (
            ['{"product_id": "10ed", "one_time_use": "true"}'],
            "one_time_use is not supported for the virtual function 0000:81:10.0",
        ),
    ],
    ids=["PF and VFs", "classes", "traits", "devname", "one time use"],
)
def test_specs_that_contradict_each_other_are_named(texts, problem) -> None:
    specs = parse_device_specs(texts, report_in_placement=True)
    devices = [TrackedDevice(CARD, "8086", "10fb", dev_type=PF), vf(0), vf(1)]
    with pytest.raises(ConfigError, match=problem):
        check_reported_specs(specs, devices)


def test_devices_of_networks_contradict_no_other_spec_of_their_card() -> None:
    texts = [
        '{"address": "0000:81:10.0", "physical_network": "physnet1", "one_time_use": "true"}',
        '{"product_id": "10fb"}',
    ]
    specs = parse_device_specs(texts, report_in_placement=True)
    card = TrackedDevice(CARD, "8086", "10fb", dev_type=PF)
    check_reported_specs(specs, [card, vf(0), vf(1)])


def test_specs_that_agree_are_accepted() -> None:
    specs = parse_device_specs(['{"product_id": "10ed"}', '{"vendor_id": "10de"}'], True)
    check_reported_specs(specs, [vf(0), vf(1), gpu()])
