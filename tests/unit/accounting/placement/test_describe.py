from dataclasses import replace

import pytest

from nodetracker.accounting.placement.comparison import compare
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import NIL_UUID, ConsumerType, PlacedTree
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import CellAssignment, NumaAssignment
from tests.builders import NOW, make_guest
from tests.placement_model import NODE, make_claim, make_move, make_node, make_uuid


def describe(*arguments, is_disabled=False, **values):
    return describe_tree(make_node(*arguments, **values), is_disabled)


def test_a_consumer_has_what_the_ledger_charges_in_whole_units() -> None:
    claims = [
        make_claim(1, vcpu_milli=1500, memory_mb=100, disk_mb=1500),
        make_claim(2, workload=1, vcpu_milli=600, memory_mb=100, disk_mb=600),
    ]
    tree = describe(claims, overhead={"memory_mb": 7})
    [consumer] = tree.consumers.values()
    assert consumer.resources == {NODE: {"VCPU": 2, "MEMORY_MB": 214, "DISK_GB": 2}}
    assert (consumer.type, consumer.project_id) == (ConsumerType.INSTANCE, "p1")
    assert tree.root.classes["MEMORY_MB"].charged == 214


def test_a_container_has_no_overhead_and_nothing_of_less_than_a_unit() -> None:
    claim = make_claim(1, kind=WorkloadKind.CONTAINER, vcpu_milli=900, memory_mb=64)
    [consumer] = describe([claim], overhead={"memory_mb": 7}).consumers.values()
    assert (consumer.type, consumer.resources) == (
        ConsumerType.CONTAINER,
        {NODE: {"MEMORY_MB": 64}},
    )


def test_a_difference_names_the_workload_of_an_allocation_if_it_has_a_name() -> None:
    claim, other = make_claim(1), make_claim(2)
    tree = describe([claim, other])
    names = {claim.workload.uuid: "web-1", other.workload.uuid: ""}
    found = [item.what for item in compare(PlacedTree(), tree, names) if "alloc" in item.what]
    assert found == [
        f"allocations of web-1 ({claim.workload.uuid})", f"allocations of {other.workload.uuid}"
    ]  # fmt: skip


def test_a_spare_host_has_a_trait() -> None:
    node = make_node()
    assert "CUSTOM_NODETRACKER_SPARE" in describe_tree(node, False, is_spare=True).root.traits
    assert "CUSTOM_NODETRACKER_SPARE" not in describe_tree(node, False).root.traits


def test_unknown_owners_are_the_nil_uuid() -> None:
    claim = replace(make_claim(1), workload=Workload(make_uuid(1)))
    [consumer] = describe([claim]).consumers.values()
    assert (consumer.project_id, consumer.user_id) == (NIL_UUID, NIL_UUID)


def test_the_source_of_an_open_move_has_the_migration_s_consumer() -> None:
    source, dest = make_claim(1), make_claim(2, workload=1)
    move = make_move(1, source, dest)
    tree = describe([source, dest], moves=[move])
    assert tree.consumers.keys() == {source.workload.uuid, move.migration.uuid}
    assert tree.workload_of == dict.fromkeys(tree.consumers, source.workload.uuid)


def test_a_released_claim_is_known_as_released_unless_its_workload_has_another() -> None:
    claims = [make_claim(1, state=ClaimState.RELEASED), make_claim(2, state=ClaimState.RELEASED)]
    tree = describe([*claims, make_claim(3, workload=2)])
    assert tree.released == {make_uuid(1)}


def test_a_guest_without_a_claim_is_charged_and_has_no_consumer() -> None:
    tree = describe([], [make_guest(1)])
    assert tree.consumers == {}
    assert tree.workload_of == {make_uuid(1): make_uuid(1)} == dict(tree.workload_of)
    assert tree.root.classes["VCPU"].charges == {make_uuid(1): 2000}


@pytest.mark.parametrize(
    ("fact", "classes"),
    [("memory", {"MEMORY_MB"}), ("guests", {"VCPU", "MEMORY_MB", "DISK_GB"})],
)
def test_of_what_is_unknown_all_is_reserved(fact, classes) -> None:
    unknown = FactEntry(FactState.UNKNOWN, "test", NOW, "gone")
    tree = describe([make_claim(1)], facts={fact: unknown})
    reserved = {
        name
        for name, entry in tree.root.classes.items()
        if entry.inventory(entry.reserved_for({})).capacity == 0
    }
    assert reserved == classes


def test_classes_without_a_total_are_left_out_and_ratios_have_six_digits() -> None:
    tree = describe(local_gb=0, cpu_allocation_ratio=2 / 3)
    assert tree.root.classes.keys() == {"VCPU", "MEMORY_MB"}
    assert tree.root.classes["VCPU"].allocation_ratio == 0.666666


def test_a_disabled_host_has_the_trait() -> None:
    assert describe(traits=["HW_CPU_X86_AVX"], is_disabled=True).root.traits == {
        "COMPUTE_NODE", "COMPUTE_STATUS_DISABLED", "CUSTOM_OWNER_NODETRACKER", "HW_CPU_X86_AVX"
    }  # fmt: skip


def test_unused_huge_pages_are_offered_unless_the_host_withholds_them() -> None:
    pool = {"size_kb": 1048576, "total": 40, "used": 0, "reserved": 0}
    cell = {"id": 0, "cpuset": [0], "pcpuset": [], "memory": 65536, "siblings": []}
    column = {"cells": [cell | {"mempages": [pool]}]}
    node = {"memory_mb": 65536, "reserved": {"memory_mb": 512}, "ram_allocation_ratio": 1.0}
    claims = [
        make_claim(1, memory_mb=1024),
        replace(
            make_claim(2, memory_mb=8192),
            numa=NumaAssignment((CellAssignment(0, 0, 8192, 1048576, 8),)),
        ),
    ]
    offered = describe(claims, numa_topology=column, **node).root.classes["MEMORY_MB"]
    assert offered.grantable == 65536 - 512 - 1024 - 8192
    withheld = column | {"is_withheld_in_placement": True}
    memory = describe(claims, numa_topology=withheld, **node).root.classes["MEMORY_MB"]
    assert memory.grantable == 65536 - 40960 - 512 - 1024
    allocated = {make_uuid(1): 1024, make_uuid(2): 8192}
    inventory = memory.inventory(memory.reserved_for(allocated))
    assert (inventory.total, inventory.reserved) == (65536, 512 + 40960 - 8192)
