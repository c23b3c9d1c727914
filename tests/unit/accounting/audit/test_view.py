import dataclasses
from datetime import timedelta
from typing import ClassVar

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.model.fact import Fact, FactState, failed, fresh
from nodetracker.model.guest import GuestListing, GuestPins, WorkloadKind
from nodetracker.model.host import (
    ContainerEngine,
    CpuInfo,
    CpuLimit,
    Filesystem,
    MemoryInfo,
    Nic,
    StorageInfo,
    SystemInfo,
)
from nodetracker.model.node import failed_snapshot
from nodetracker.model.numa import CellAssignment, NumaCell, NumaTopology, PagePool, ReservedPages
from nodetracker.model.pci import MdevType, PciDevice, track_device
from nodetracker.model.settings import AllocationRatios, Policy
from nodetracker.model.warning import WarningKind
from tests.builders import NOW, SOURCE, later, make_guest, make_record, make_snapshot

BOOM = failed(SOURCE, "boom")


def make_stored(*guests, **changes):
    view = account(make_snapshot("node-1", *guests), None, Policy(), NOW)
    return make_record(view.values, guests=view.guests, devices=view.devices, **changes)


def kinds(view):
    return [warning.kind for warning in view.warnings]


def test_a_fresh_snapshot_determines_every_column():
    values = account(make_snapshot("node-1", make_guest()), None, Policy(), NOW).values
    assert (values.vcpus, values.memory_mb, values.local_gb) == (16, 65536, 500)
    assert (values.vcpus_used, values.memory_mb_used, values.local_gb_used) == (2, 2560, 20)
    assert values.mem_available == 60000
    assert values.disk_available_least == 488
    assert values.metrics == {"memory_used_mb": 5536, "swap_used_mb": 0, "disk_used_mb": 12000}
    assert {entry.state for entry in values.facts.values()} == {FactState.FRESH}


@pytest.mark.parametrize(
    "name",
    ["hypervisor", "cpu", "memory", "numa", "storage", "pci", "gpus", "system", "guests"],
)
def test_a_failed_fact_leaves_its_columns_as_stored(name):
    stored = make_stored(make_guest())
    view = account(make_snapshot("node-1", make_guest(), **{name: BOOM}), stored, Policy(), NOW)
    assert dataclasses.replace(view.values, facts={}) == dataclasses.replace(
        stored.values, facts={}
    )
    assert view.values.facts[name].state is FactState.HELD
    assert view.guests == stored.guests
    assert kinds(view) == [WarningKind.FACT_HELD]


def test_a_node_that_cannot_be_read_at_all_keeps_its_row():
    stored = make_stored(make_guest())
    view = account(failed_snapshot("node-1", SOURCE, "boom"), stored, Policy(), NOW)
    assert view.values.vcpus == 16
    assert view.values.memory_mb_used == 2560
    assert {entry.state for entry in view.values.facts.values()} == {FactState.HELD}
    assert view.missing == ()


@pytest.mark.parametrize("name", ["cpu", "memory", "storage", "guests"])
def test_a_first_row_is_not_created_from_a_partial_reading(name):
    view = account(make_snapshot(**{name: BOOM}), None, Policy(), NOW)
    assert view.missing == (name,)


def test_a_first_row_may_lack_facts_that_are_not_essential():
    assert account(make_snapshot(numa=BOOM, pci=BOOM), None, Policy(), NOW).missing == ()


def test_guests_missing_from_an_incomplete_listing_still_count():
    stored = make_stored(make_guest(1), make_guest(2))
    listing = fresh(SOURCE, GuestListing((make_guest(2, memory_mb=4096),), ("guest 1: broken",)))
    view = account(make_snapshot(guests=listing), stored, Policy(), NOW)
    assert sorted(view.guests) == [make_guest(1).uuid, make_guest(2).uuid]
    assert view.values.memory_mb_used == 512 + 2048 + 4096
    assert kinds(view) == [WarningKind.FACT_HELD, WarningKind.GUEST_UNREADABLE]


def test_guests_missing_from_a_complete_listing_no_longer_count():
    view = account(make_snapshot(), make_stored(make_guest()), Policy(), NOW)
    assert view.guests == {}
    assert view.values.memory_mb_used == 512


class TestCpuSets:
    cpu = fresh(SOURCE, CpuInfo(online=frozenset(range(8))))

    @pytest.mark.parametrize(
        ("shared", "dedicated", "vcpus", "pcpus"),
        [
            (None, None, 8, 0),
            ({0, 1, 2}, None, 3, 0),
            (None, {4, 5, 6, 7}, 0, 4),
            ({0, 1}, {4, 5}, 2, 2),
        ],
        ids=["neither", "only shared", "only dedicated", "both"],
    )
    def test_are_available_as_in_nova(self, shared, dedicated, vcpus, pcpus):
        policy = Policy(
            cpu_shared_set=shared and frozenset(shared),
            cpu_dedicated_set=dedicated and frozenset(dedicated),
        )
        values = account(make_snapshot(cpu=self.cpu), None, policy, NOW).values
        assert (values.vcpus, values.pcpus) == (vcpus, pcpus)
        assert values.enable_cpu_pinning is bool(dedicated)

    def test_offline_cpus_are_ignored_with_a_warning(self):
        policy = Policy(cpu_shared_set=frozenset({6, 7, 8, 9}))
        view = account(make_snapshot(cpu=self.cpu), None, policy, NOW)
        assert view.values.vcpus == 2
        assert [warning.message for warning in view.warnings] == [
            "cpu_shared_set: 8-9 is offline and ignored"
        ]

    @pytest.mark.parametrize(
        ("policy", "cpus"),
        [
            (Policy(), {"isolated": "4-5", "machine.slice": "6-7"}),
            (Policy(cpu_shared_set=frozenset({0, 1})), {}),
            (
                Policy(cpu_shared_set=frozenset({0, 4}), cpu_dedicated_set=frozenset({5, 6})),
                {"isolated": "4", "machine.slice": "6"},
            ),
        ],
        ids=["all are shared", "none of them", "some are dedicated"],
    )
    def test_offered_cpus_on_which_no_guest_runs_are_warned_of(self, policy, cpus):
        limits = (
            CpuLimit("isolated", frozenset({4, 5}), allows_pins=True),
            CpuLimit("machine.slice", frozenset({6, 7})),
        )
        cpu = fresh("x", dataclasses.replace(self.cpu.value, limits=limits))
        view = account(make_snapshot(cpu=cpu), None, policy, NOW)
        found = {w.item: w.message for w in view.warnings if w.kind is WarningKind.HOST_DATA}
        assert found.keys() == cpus.keys()
        assert all(f"on CPUs {text} (" in found[path] for path, text in cpus.items())

    def test_a_set_without_an_online_cpu_holds_the_fact(self):
        policy = Policy(cpu_shared_set=frozenset({8, 9}))
        view = account(make_snapshot(cpu=self.cpu), make_stored(), policy, NOW)
        assert view.values.vcpus == 16
        assert view.values.facts["cpu"].error == "cpu_shared_set: none of 8-9 is online"
        (warning,) = [w for w in view.warnings if w.kind is WarningKind.CPU_SET_OFFLINE]
        assert warning.message == "cpu_shared_set: none of 8-9 is online; the CPU fact is held"


class TestRatios:
    @pytest.mark.parametrize(
        ("configured", "stored", "expected"),
        [(None, 0.0, 4.0), (None, 2.5, 2.5), (8.0, 2.5, 8.0), (0.0, 2.5, 2.5)],
        ids=["initial for a new row", "the row's own", "configured wins", "0 is not configured"],
    )
    def test_follow_configured_then_existing_then_initial(self, configured, stored, expected):
        record = make_record(dataclasses.replace(make_stored().values, cpu_allocation_ratio=stored))
        policy = Policy(configured_ratios=AllocationRatios(cpu=configured))
        values = account(make_snapshot(), record, policy, NOW).values
        assert values.cpu_allocation_ratio == expected

    def test_the_row_records_the_origin_of_each(self):
        policy = Policy(configured_ratios=AllocationRatios(cpu=8.0))
        values = account(make_snapshot(), None, policy, NOW).values
        assert values.ratio_origins == {"cpu": "configured", "ram": "initial", "disk": "initial"}
        again = account(make_snapshot(), make_record(values), Policy(), NOW).values
        assert again.ratio_origins == {"cpu": "existing", "ram": "initial", "disk": "initial"}
        older = dataclasses.replace(values, ratio_origins={})
        kept = account(make_snapshot(), make_record(older), policy, NOW).values
        assert kept.ratio_origins == {"cpu": "configured", "ram": "existing", "disk": "existing"}


class TestNuma:
    cells = (
        NumaCell(0, frozenset({0, 1}), 30000, pages=(PagePool(4, 100), PagePool(2048, 512))),
        NumaCell(5, frozenset({2, 3}), 34000, distances={0: 21, 5: 10}),
    )

    def test_cells_keep_their_ids_and_reserved_pages(self):
        policy = Policy(
            reserved_pages=(ReservedPages(0, 2048, 64),), cpu_dedicated_set=frozenset({3})
        )
        snapshot = make_snapshot(numa=fresh(SOURCE, NumaTopology(self.cells)))
        first, second = account(snapshot, None, policy, NOW).values.numa_topology["cells"]
        assert [first["id"], second["id"]] == [0, 5]
        assert first["mempages"][1] == {"size_kb": 2048, "total": 512, "used": 0, "reserved": 64}
        assert (second["cpuset"], second["pcpuset"]) == ([], [3])
        assert second["distances"] == {"0": 21, "5": 10}

    def test_the_column_says_if_the_host_does_not_limit_its_cells(self):
        snapshot = make_snapshot(numa=fresh(SOURCE, NumaTopology(self.cells)))
        limited = account(snapshot, None, Policy(), NOW).values
        assert limited.numa_topology.keys() == {"cells"}
        unlimited = account(
            snapshot, make_record(limited), Policy(limits_numa_cells=False), NOW
        ).values
        assert unlimited.numa_topology == limited.numa_topology | {"is_limited": False}
        again = account(snapshot, make_record(unlimited), Policy(), NOW).values
        assert again.numa_topology == limited.numa_topology

    def test_pages_that_others_use_count_as_used_and_are_held_with_the_fact(self):
        pages = (PagePool(4, 100), PagePool(2048, 512, in_use=200))
        cells = (dataclasses.replace(self.cells[0], pages=pages), self.cells[1])
        guest = make_guest(pins=GuestPins((CellAssignment(0, 0, 160, 2048, 80),)))
        snapshot = make_snapshot("node-1", guest, numa=fresh(SOURCE, NumaTopology(cells)))
        values = account(snapshot, None, Policy(), NOW).values
        pool = {"size_kb": 2048, "total": 512, "used": 200, "reserved": 0, "withheld": 120}
        assert values.numa_topology["cells"][0]["mempages"][1] == pool
        unread = make_snapshot("node-1", guest, numa=BOOM)
        held = account(unread, make_record(values), Policy(), NOW).values
        assert held.numa_topology == values.numa_topology

    @pytest.mark.parametrize(
        ("total_mb", "warned"), [(64000, False), (70000, False), (72000, True), (20000, True)]
    )
    def test_cells_that_differ_from_the_kernel_by_over_a_tenth_are_a_warning(
        self, total_mb, warned
    ):
        snapshot = make_snapshot(
            numa=fresh(SOURCE, NumaTopology(self.cells)),
            memory=fresh(SOURCE, MemoryInfo(total_mb, 1000)),
        )
        view = account(snapshot, None, Policy(), NOW)
        assert view.values.memory_mb == total_mb
        assert (WarningKind.MEMORY_MISMATCH in kinds(view)) is warned

    def test_a_smaller_total_of_the_kernel_names_both_files(self):
        """As where LXCFS shows a container's limit in /proc."""
        snapshot = make_snapshot(
            numa=fresh("/sys/devices/system/node", NumaTopology(self.cells)),
            memory=fresh("/proc/meminfo", MemoryInfo(476, 400)),
        )
        view = account(snapshot, None, Policy(), NOW)
        (found,) = (w for w in view.warnings if w.kind is WarningKind.MEMORY_MISMATCH)
        assert found.message == (
            "the NUMA cells of /sys/devices/system/node have 62.5 GiB in total, and /proc/meminfo "
            "says 476 MiB, which is offered"
        )


def test_devices_are_addressed_by_pci_address():
    device = PciDevice("0000:81:00.0", "8086", "10fb")
    view = account(make_snapshot(pci=fresh(SOURCE, (device,))), None, Policy(), NOW)
    assert view.devices == {"0000:81:00.0": track_device(device)}


def test_the_boot_time_is_kept_while_the_boot_id_is_the_same():
    def snapshot(boot_id, seconds):
        system = SystemInfo("h", "linux", "Debian", "6.1", boot_id, later(seconds))
        return make_snapshot(system=fresh(SOURCE, system))

    first = account(snapshot("b1", 0), None, Policy(), NOW)
    stored = make_record(first.values)
    same_boot = account(snapshot("b1", 1), stored, Policy(), NOW)
    next_boot = account(snapshot("b2", 100), stored, Policy(), NOW)
    assert same_boot.values == first.values
    assert next_boot.values.booted_at == NOW + timedelta(seconds=100)


@pytest.mark.parametrize(("seconds", "is_corrected"), [(-60, False), (60, False), (61, True)])
def test_a_boot_time_read_before_the_clock_was_set_is_corrected(seconds, is_corrected):
    def snapshot(booted_at):
        system = SystemInfo("h", "linux", "Debian", "6.1", "b1", booted_at)
        return make_snapshot(system=fresh(SOURCE, system))

    first = account(snapshot(NOW), None, Policy(), NOW)
    again = account(snapshot(later(seconds)), make_record(first.values), Policy(), NOW)
    assert again.values.booted_at == (later(seconds) if is_corrected else NOW)


def test_a_link_that_goes_down_and_up_changes_nothing():
    def read(*nics, stored=None):
        system = SystemInfo("h", "linux", "Debian", "6.1", nics=nics)
        return account(make_snapshot(system=fresh(SOURCE, system)), stored, Policy(), NOW).values

    def record(values):
        return dataclasses.replace(make_stored(), values=values)

    up, other = Nic("eth0", "0000:81:00.0", "ixgbe", 10000), Nic("eth1", None, "virtio_net")
    first = read(up, other)
    down = read(dataclasses.replace(up, speed_mbps=None), other, stored=record(first))
    assert down == first
    assert [nic["speed_mbps"] for nic in down.system["nics"]] == [10000, None]
    slower = read(dataclasses.replace(up, speed_mbps=1000), other, stored=record(down))
    assert slower.system["nics"][0]["speed_mbps"] == 1000
    replaced = read(Nic("eth0", "0000:c1:00.0", "mlx5_core"), stored=record(down))
    assert replaced.system["nics"] == [
        {"name": "eth0", "address": "0000:c1:00.0", "driver": "mlx5_core", "speed_mbps": None}
    ]


ENGINE = ContainerEngine(
    "docker",
    "20.10.24",
    "1.41",
    labels={"rack": "7"},
    runtimes=("runc",),
    default_runtime="runc",
    storage_driver="overlay2",
    root_dir="/var/lib/docker",
    has_disk_quotas=True,
)


def test_an_engine_sets_its_columns_and_a_failed_one_keeps_them():
    snapshot = make_snapshot(engine=fresh("sock", ENGINE))
    view = account(snapshot, None, Policy(), NOW)
    assert view.values.labels == {"rack": "7"}
    assert view.values.runtimes == ["runc"]
    assert view.values.disk_quota_supported
    assert view.values.engine["storage_driver"] == "overlay2"
    assert view.values.facts["engine"].state is FactState.FRESH
    record = make_record(view.values)
    away = make_snapshot(engine=failed("sock", "connection refused"))
    held = account(away, record, Policy(), NOW)
    assert held.values.engine == view.values.engine
    assert held.values.labels == {"rack": "7"}
    assert held.values.facts["engine"].state is FactState.HELD


def test_a_removed_engine_clears_its_columns():
    with_engine = account(make_snapshot(engine=fresh("sock", ENGINE)), None, Policy(), NOW)
    record = make_record(with_engine.values)
    nothing = account(make_snapshot(), None, Policy(), NOW).values
    values = account(make_snapshot(), record, Policy(), NOW).values
    assert dataclasses.replace(values, ratio_origins=nothing.ratio_origins) == nothing


@pytest.mark.parametrize(
    "away",
    [
        make_snapshot(guests=Fact("both", GuestListing(), "docker: no answer")),
        failed_snapshot("node-1", SOURCE, "boom"),
    ],
    ids=["one driver of two", "the only driver"],
)
def test_the_engine_is_held_when_its_driver_fails_completely(away):
    before = account(make_snapshot(engine=fresh("sock", ENGINE)), None, Policy(), NOW).values
    values = account(away, make_record(before), Policy(), NOW).values
    for name in ("engine", "labels", "runtimes", "disk_quota_supported"):
        assert getattr(values, name) == getattr(before, name)
    assert values.facts["engine"].state is FactState.HELD
    assert "engine" not in account(away, make_stored(), Policy(), NOW).values.facts


def test_a_node_without_an_engine_has_no_engine_fact():
    assert "engine" not in account(make_snapshot(), None, Policy(), NOW).values.facts


def test_disk_reserved_by_the_driver_is_kept_while_the_storage_is_held():
    storage = StorageInfo(Filesystem("/srv", 512000, 12000, 500000), reserved_mb=51200)
    policy = Policy(reserved_disk_mb=1024)
    view = account(make_snapshot(storage=fresh("srv", storage)), None, policy, NOW)
    assert view.values.reserved["disk_mb"] == 52224
    assert view.values.local_gb_used == 51
    held = account(make_snapshot(storage=failed("srv", "x")), make_record(view.values), policy, NOW)
    assert held.values.reserved == view.values.reserved


def test_measurements_of_a_driver_are_added_to_the_metrics():
    view = account(make_snapshot(measured={"images_disk_used_mb": 7}), None, Policy(), NOW)
    assert view.values.metrics["images_disk_used_mb"] == 7
    assert "memory_used_mb" in view.values.metrics


class TestWhatADriverMeasured:
    TAKEN: ClassVar = {"containers_memory_used_mb": 9, "images_disk_used_mb": 7}
    LISTING_IN_PART = Fact("both", GuestListing(), "sock: connection refused")

    def metrics(self, **changes):
        before = account(make_snapshot(measured=self.TAKEN), None, Policy(), NOW)
        after = account(make_snapshot(**changes), make_record(before.values), Policy(), NOW)
        return {name: after.values.metrics.get(name) for name in self.TAKEN}

    def test_is_removed_when_it_is_no_longer_measured(self):
        assert self.metrics() == dict.fromkeys(self.TAKEN)
        assert self.metrics(measured={"images_disk_used_mb": 8}) == {
            "containers_memory_used_mb": None,
            "images_disk_used_mb": 8,
        }

    @pytest.mark.parametrize(
        "changes",
        [
            {"measured": dict.fromkeys(TAKEN)},
            {"guests": BOOM},
            {"guests": LISTING_IN_PART},
        ],
        ids=["no number this time", "no listing", "a driver of two does not answer"],
    )
    def test_is_kept_while_it_cannot_be_measured(self, changes):
        assert self.metrics(**changes) == self.TAKEN


@pytest.mark.parametrize(
    ("name", "metric"), [("memory", "swap_used_mb"), ("storage", "disk_used_mb")]
)
def test_a_measurement_of_the_host_is_kept_while_its_fact_is_held(name, metric):
    stored = make_stored()
    values = account(make_snapshot(**{name: BOOM}), stored, Policy(), NOW).values
    assert values.metrics[metric] == stored.values.metrics[metric]


def test_a_partial_listing_is_used_and_its_fact_is_held():
    both = make_snapshot("node-1", make_guest(1), make_guest(2, kind=WorkloadKind.CONTAINER))
    before = account(both, None, Policy(), NOW)
    record = make_record(before.values, guests=before.guests)
    part = GuestListing((), unread_kinds=frozenset({WorkloadKind.CONTAINER}))
    after = account(
        make_snapshot(guests=Fact("both", part, "sock: connection refused")), record, Policy(), NOW
    )
    assert [guest.kind for guest in after.guests.values()] == [WorkloadKind.CONTAINER]
    assert after.values.facts["guests"].state is FactState.HELD
    assert "connection refused" in after.warnings[0].message


def test_mediated_devices_are_in_the_row_while_devices_are_readable():
    kinds = {"0000:41:00.0": (MdevType("nvidia-11", "GRID M60-0B", "vfio-pci", 16),)}
    values = account(make_snapshot(mdev_types=kinds), None, Policy(), NOW).values
    assert values.mdev_types == {
        "0000:41:00.0": {
            "nvidia-11": {"name": "GRID M60-0B", "device_api": "vfio-pci", "available": 16}
        }
    }
    lost = make_snapshot(pci=failed("test", "boom"))
    assert account(lost, make_record(values), Policy(), NOW).values.mdev_types == values.mdev_types
