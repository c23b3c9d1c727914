"""What docs/coming-from-nova.md states about nodetracker, one rule a test."""

import dataclasses

import pytest

from nodetracker.accounting.ledger.request import parse_numa_request
from nodetracker.accounting.numa.assignment import NumaRefusal, fit_numa
from nodetracker.accounting.numa.cells import cell_limits
from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.accounting.usage import count_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import PowerState
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import CellUsage, HostCell, NumaAssignment, NumaLimits, PagePool
from nodetracker.model.pci import PciDevice, PciStatus, track_device
from tests.builders import make_guest

NOBODY = frozenset[int]()
SMALL_PAGES_PER_MIB = 256
MIXED_PAGES = HostCell(
    0,
    frozenset(range(4)),
    NOBODY,
    8192,
    pages=(
        PagePool(4, 1024 * SMALL_PAGES_PER_MIB, reserved=512 * SMALL_PAGES_PER_MIB),
        PagePool(2048, 3584),
    ),
)
"""1 GiB of small pages, half of it reserved, and 7 GiB of huge pages."""


def request(vcpus=0, pcpus=0, memory_mb=512, **numa):
    return parse_numa_request(numa, Amounts(vcpus * 1000, pcpus, memory_mb))


def fits(asked, *cells, usage=None, **limits):
    found = fit_numa(asked, cells, usage or {}, limits=NumaLimits(**limits))
    return isinstance(found, NumaAssignment)


def test_the_ram_ratio_covers_ordinary_memory_without_reserved_pages():
    taken = {0: CellUsage(memory_mb=256)}
    assert fits(request(1, memory_mb=256), MIXED_PAGES, usage=taken, ram_allocation_ratio=1.0)
    assert not fits(request(1, memory_mb=257), MIXED_PAGES, usage=taken, ram_allocation_ratio=1.0)
    assert fits(request(1, memory_mb=512), MIXED_PAGES, usage=taken, ram_allocation_ratio=1.5)


def test_reserved_small_pages_are_withheld_from_shared_guests():
    assert fits(request(1, memory_mb=512), MIXED_PAGES)
    assert not fits(request(1, memory_mb=513), MIXED_PAGES)


def test_cells_are_limited_by_the_node_s_ratios():
    taken = {0: CellUsage(shared_vcpus=15, memory_mb=9000)}
    values = NodeValues(cpu_allocation_ratio=4.0, ram_allocation_ratio=20.0)
    of_node = dataclasses.asdict(cell_limits(values))
    assert fits(request(1), MIXED_PAGES, usage=taken, **of_node)
    assert not fits(request(2), MIXED_PAGES, usage=taken, **of_node)
    unlimited = dataclasses.replace(values, numa_topology={"is_limited": False})
    assert fits(request(2), MIXED_PAGES, usage=taken, **dataclasses.asdict(cell_limits(unlimited)))


def test_require_uses_uneven_cores():
    cores = (frozenset({0, 1, 2}), frozenset({3, 4, 5}))
    cell = HostCell(0, NOBODY, frozenset(range(6)), 4096, siblings=cores)
    taken = {0: CellUsage(pinned_cpus=frozenset({5}))}
    assert fits(request(pcpus=5, cpu_thread_policy="require"), cell, usage=taken)


def test_isolate_keeps_the_siblings_of_a_dedicated_core_unused():
    cores = (frozenset({0, 1}), frozenset({2, 3}))
    cell = HostCell(0, NOBODY, frozenset(range(4)), 4096, siblings=cores)
    found = fit_numa(request(pcpus=2, cpu_thread_policy="isolate"), [cell], {})
    assert set(found.cells[0].pins.values()) == {0, 2}
    assert found.cells[0].isolated == {1, 3}


def test_cells_are_ordered_by_free_cpus():
    small = HostCell(0, frozenset(range(2)), NOBODY, 4096)
    large = HostCell(1, frozenset(range(2, 10)), NOBODY, 4096)
    found = fit_numa(request(1), [small, large], {1: CellUsage(shared_vcpus=2)})
    assert found.cells[0].host_cell == 1


def test_pinning_without_dedicated_cpus_and_a_host_without_cells_are_refused():
    shared = HostCell(0, frozenset(range(4)), NOBODY, 4096)
    assert not fits(request(pcpus=2), shared)
    assert isinstance(fit_numa(request(1), [], {}), NumaRefusal)


def test_a_guest_cell_without_cpus_is_an_invalid_request():
    with pytest.raises(RequestError, match="has no CPU"):
        request(2, memory_mb=1024, cells=[{"vcpus": 2, "memory_mb": 512}, {"memory_mb": 512}])


def test_2mb_is_megabytes_in_any_case():
    assert request(1, page_size="2Mb").page_size == request(1, page_size="2MB").page_size == 2048


def test_counts_are_of_listed_guests_by_power_state():
    columns = count_columns([make_guest(1), make_guest(2, power_state=PowerState.SHUTDOWN)])
    assert columns["running_vms"] == 2
    assert columns["stats"] == {
        "num_instances": 2, "io_workload": 0, "num_vm_running": 1, "num_vm_shutdown": 1,
    }  # fmt: skip


def test_pools_merge_cards_and_have_no_envelope():
    devices = [
        track_device(
            PciDevice(f"0000:0{card}:00.0", "8086", "10fb"), PciStatus.AVAILABLE, tags={"x": "y"}
        )
        for card in (1, 2)
    ]
    assert pci_columns(devices)["pci_stats"] == [
        {
            "vendor_id": "8086", "product_id": "10fb", "dev_type": "type-PCI", "numa_node": None,
            "x": "y", "count": 2,
        }
    ]  # fmt: skip
