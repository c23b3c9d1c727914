import dataclasses

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.admission import FACTS
from nodetracker.accounting.ledger.warnings import find_capacity_warnings
from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.settings import Policy
from nodetracker.model.units import MIB_PER_GIB
from nodetracker.model.warning import WarningKind
from tests.builders import NOW, make_guest, make_record, make_snapshot

NODE = NodeValues(
    vcpus=8,
    pcpus=2,
    memory_mb=24576,
    local_gb=100,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.5,
    disk_allocation_ratio=1.0,
    reserved={"memory_mb": 512},
    memory_mb_used=512,
)


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({"memory_mb": 24576, "vcpu_milli": 10000, "disk_mb": 100 * MIB_PER_GIB}, None),
        ({"memory_mb": 1048576}, "1 TiB of 24 GiB of memory"),
        ({"vcpu_milli": 10500}, "10.5 of 10 CPUs"),
        ({"disk_mb": 3072 * MIB_PER_GIB}, "3 TiB of 100 GiB of disk"),
        (
            {"memory_mb": 30000, "disk_mb": 101 * MIB_PER_GIB},
            "30,000 MiB of 24,576 MiB of memory, 101 GiB of 100 GiB of disk",
        ),
    ],
    ids=["as large as the node", "memory", "CPUs", "disk", "two amounts"],
)
def test_a_guest_larger_than_the_node_is_a_warning(amounts, text):
    guest = make_guest(1, **({"memory_mb": 1, "vcpu_milli": 1, "disk_mb": 1} | amounts))
    found = [(w.kind, w.item, w.message) for w in find_capacity_warnings("n", NODE, [guest])]
    message = f"guest {guest.name} is larger than the node: it has {text}, and is charged in full"
    expected = (WarningKind.GUEST_EXCEEDS_NODE, guest.uuid, message)
    assert found == ([] if text is None else [expected])


@pytest.mark.parametrize(
    ("used", "text"),
    [
        ({"memory_mb_used": 36608}, None),
        (
            {"memory_mb_used": 36609},
            "MEMORY_MB is overcommitted: 36,609 MiB are used, 36,608 MiB are allowed by "
            "capacity and ratio",
        ),
        ({"cpu_used": 32.0}, None),
        (
            {"cpu_used": 32.5},
            "VCPU is overcommitted: 32.5 are used, 32 are allowed by capacity and ratio",
        ),
        (
            {"pcpus_used": 3},
            "PCPU is overcommitted: 3 are used, 2 are allowed by capacity and ratio",
        ),
        (
            {"disk_used": 3072.0},
            "DISK_GB is overcommitted: 3 TiB are used, 100 GiB are allowed by capacity and ratio",
        ),
    ],
    ids=["memory at its limit", "memory", "CPUs at their limit", "CPUs", "pinned CPUs", "disk"],
)
def test_use_beyond_capacity_and_ratio_is_a_warning(used, text):
    found = find_capacity_warnings("n", replace_values(**used), [])
    assert [warning.message for warning in found] == ([] if text is None else [text])
    assert {warning.kind for warning in found} <= {WarningKind.NODE_OVERCOMMITTED}


def replace_values(**changes):
    return dataclasses.replace(NODE, **changes)


def test_a_limit_above_the_machine_is_charged_as_it_is_until_the_guest_is_gone():
    huge = make_guest(1, kind=WorkloadKind.CONTAINER, memory_mb=1 << 20)
    view = account(make_snapshot("n", huge), None, Policy(), NOW)
    assert view.values.memory_mb_used == 512 + (1 << 20)
    assert {warning.kind for warning in view.warnings} == {
        WarningKind.GUEST_EXCEEDS_NODE,
        WarningKind.NODE_OVERCOMMITTED,
    }
    record = make_record(view.values, guests=view.guests)
    assert not account(make_snapshot("n"), record, Policy(), NOW).warnings


def test_a_node_whose_driver_does_not_track_resources_has_none():
    values = replace_values(tracks_resources=False, memory_mb_used=1 << 30)
    assert not find_capacity_warnings("n", values, [make_guest(1, memory_mb=1 << 20)])


@pytest.mark.parametrize("resource", [VCPU, MEMORY, DISK])
def test_a_resource_that_was_never_read_is_neither_overcommitted_nor_too_small(resource):
    entry = FactEntry(FactState.UNKNOWN, "fake", NOW, "broken")
    unread = {VCPU: {"vcpus": 0, "pcpus": 0}, MEMORY: {"memory_mb": 0}, DISK: {"local_gb": 0}}
    node = dataclasses.replace(
        NODE, **unread[resource], cpu_used=1.0, disk_used=1.0, facts={FACTS[resource]: entry}
    )
    assert find_capacity_warnings("n", node, [make_guest(1)]) == []
    was_read = dataclasses.replace(node, facts={})
    assert find_capacity_warnings("n", was_read, [make_guest(1)])
