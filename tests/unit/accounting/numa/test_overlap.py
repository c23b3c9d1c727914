"""A host whose cells share CPUs is one cell, with all that was placed on any of them."""

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.numa.cells import merge_overlapping_cells, sum_usage
from nodetracker.model.fact import failed, fresh
from nodetracker.model.numa import (
    CellAssignment,
    HostCell,
    NumaAssignment,
    NumaCell,
    NumaTopology,
    PagePool,
)
from nodetracker.model.pci import PciDevice
from nodetracker.model.settings import Policy
from tests.builders import NOW, SOURCE, make_record, make_snapshot

CORES = (frozenset({0, 2}), frozenset({1, 3}))
FIRST = NumaCell(1, frozenset({0, 1}), 512, (), (PagePool(4, 131072),), socket=0)
SECOND = NumaCell(4, frozenset({1, 2, 3}), 256, (), (PagePool(4, 65536),), socket=0)
MERGED = merge_overlapping_cells(NumaTopology((FIRST, SECOND)), CORES, "node")


def test_the_one_cell_has_everything():
    (only,) = MERGED.cells
    assert only == NumaCell(1, frozenset(range(4)), 768, CORES, (PagePool(4, 196608),), socket=0)
    (problem,) = MERGED.problems
    assert problem.text == "several cells have CPU 1; the node is treated as one cell"


def test_cells_without_a_common_cpu_are_unchanged():
    topology = NumaTopology((FIRST, NumaCell(4, frozenset({2}), 256), NumaCell(5, frozenset(), 64)))
    assert merge_overlapping_cells(topology, CORES, "node") == topology


def test_placements_on_the_merged_cells_still_count():
    cell = HostCell(1, frozenset(range(4)), frozenset(), 768)
    assignments = [NumaAssignment((CellAssignment(number, 1, 100),)) for number in (1, 4)]
    usage = sum_usage([cell], assignments)[1]
    assert (usage.shared_vcpus, usage.memory_mb) == (2, 200)


def test_devices_of_the_merged_cells_are_in_the_one_cell():
    devices = (
        PciDevice("0000:01:00.0", "8086", "10fb", numa_node=4),
        PciDevice("0000:02:00.0", "8086", "10fb"),
    )
    snapshot = make_snapshot(pci=fresh(SOURCE, devices), numa=fresh(SOURCE, MERGED))
    view = account(snapshot, None, Policy(), NOW)
    assert [device.numa_node for device in view.devices.values()] == [1, None]
    assert view.unread == frozenset()
    assert ("host_data", "node") in [(found.kind, found.item) for found in view.warnings]
    held = make_snapshot(pci=fresh(SOURCE, devices), numa=failed(SOURCE, "boom"))
    again = account(held, make_record(view.values), Policy(), NOW)
    assert again.devices["0000:01:00.0"].numa_node == 1
