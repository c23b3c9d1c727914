"""Test merging several drivers' readings: one row, no duplicates, independent failures."""

import dataclasses

from nodetracker.accounting.audit.merge import DriverReading, merge_readings
from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.reconcile import (
    ListingEvidence,
    count_absences,
    reconcile_claims,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.fact import FactState, failed, fresh
from nodetracker.model.guest import GuestListing, WorkloadKind, derive_container_uuid
from nodetracker.model.host import ContainerEngine, Filesystem, MemoryInfo, StorageInfo
from nodetracker.model.node import failed_snapshot
from nodetracker.model.settings import Policy
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import NOW, later, make_claim, make_guest, make_record, make_snapshot

INSTANCES = frozenset({WorkloadKind.INSTANCE})
CONTAINERS = frozenset({WorkloadKind.CONTAINER})
VM = [make_guest(number, memory_mb=1024, vcpu_milli=1000, disk_mb=10240) for number in (1, 2)]
BOX = [
    make_guest(number, name=f"c{number}", kind=WorkloadKind.CONTAINER, memory_mb=64,
               vcpu_milli=500, disk_mb=1024)
    for number in (11, 12, 13)
]  # fmt: skip
ENGINE = ContainerEngine("docker", labels={"rack": "7"})


def libvirt(*guests, **changes):
    return DriverReading("libvirt", INSTANCES, make_snapshot("node-1", *guests, **changes))


def docker(*guests, **changes):
    changes = {"engine": fresh("sock", ENGINE)} | changes
    return DriverReading("docker", CONTAINERS, make_snapshot("host-1", *guests, **changes))


def away(reading):
    snapshot = failed_snapshot(reading.snapshot.nodename, reading.driver, "no answer")
    return dataclasses.replace(reading, snapshot=snapshot)


def stored(*readings):
    view = account(merge_readings(readings), None, Policy(), NOW)
    return make_record(view.values, guests=view.guests, devices=view.devices)


def names(view):
    return sorted(guest.name for guest in view.guests.values())


def on_disk(device_id):
    return fresh("srv", StorageInfo(Filesystem("/srv", 512000, 1, 1, device_id=device_id)))


def test_two_domains_and_three_containers_are_one_row():
    values = account(merge_readings([libvirt(*VM), docker(*BOX)]), None, Policy(), NOW).values
    assert values.memory_mb == 65536
    assert values.memory_mb_used == 512 + 2 * 1024 + 3 * 64
    assert values.cpu_used == 3.5
    assert values.disk_used == 2 * 10 + 3 * 1
    assert (values.running_vms, values.total_containers) == (2, 3)
    assert values.labels == {"rack": "7"}
    assert {entry.state for entry in values.facts.values()} == {FactState.FRESH}


def test_the_first_driver_provides_the_facts():
    other = docker(memory=fresh("x", MemoryInfo(1, 1)))
    merged = merge_readings([libvirt(), other])
    assert merged.nodename == "node-1"
    assert merged.memory.value.total_mb == 65536


def test_disk_on_another_filesystem_is_not_charged():
    readings = [libvirt(*VM, storage=on_disk(1)), docker(*BOX, storage=on_disk(2))]
    values = account(merge_readings(readings), None, Policy(), NOW).values
    assert values.disk_used == 20
    assert values.memory_mb_used == 512 + 2 * 1024 + 3 * 64


def test_disk_on_an_unknown_filesystem_is_charged():
    readings = [libvirt(storage=on_disk(1)), docker(*BOX, storage=failed("srv", "x"))]
    assert account(merge_readings(readings), None, Policy(), NOW).values.disk_used == 3


def test_a_guest_listed_twice_counts_once_with_a_warning():
    twin = dataclasses.replace(BOX[0], uuid=VM[0].uuid)
    merged = merge_readings([libvirt(*VM), docker(twin)])
    view = account(merged, None, Policy(), NOW)
    assert view.values.memory_mb_used == 512 + 2048
    assert [warning.kind for warning in view.warnings] == [WarningKind.GUEST_LISTED_TWICE]


def test_a_failed_driver_s_guests_are_held_and_the_others_are_fresh():
    record = stored(libvirt(*VM), docker(*BOX))
    view = account(merge_readings([libvirt(VM[0]), away(docker())]), record, Policy(), NOW)
    assert names(view) == ["c11", "c12", "c13", "vm-1"]
    assert view.values.memory_mb_used == 512 + 1024 + 3 * 64
    assert view.values.facts["guests"].state is FactState.HELD
    assert "docker: no answer" in view.values.facts["guests"].error
    assert view.values.facts["guests"].unseen_kinds == (WorkloadKind.CONTAINER,)
    assert view.values.labels == {"rack": "7"}


def test_if_the_first_driver_fails_only_the_facts_and_its_guests_are_held():
    record = stored(libvirt(*VM), docker(*BOX))
    view = account(merge_readings([away(libvirt()), docker(BOX[0])]), record, Policy(), NOW)
    assert names(view) == ["c11", "vm-1", "vm-2"]
    assert view.values.memory_mb == 65536
    assert view.values.facts["memory"].state is FactState.HELD
    assert view.values.facts["engine"].state is FactState.FRESH


def test_a_row_is_not_created_before_every_driver_was_read_once():
    view = account(merge_readings([libvirt(*VM), away(docker())]), None, Policy(), NOW)
    assert view.missing == ("guests",)


def test_when_all_fail_the_listing_fails():
    merged = merge_readings([away(libvirt()), away(docker())])
    assert merged.guests.value is None
    assert "libvirt" in merged.guests.error
    assert "docker" in merged.guests.error


def test_unreadable_guests_of_one_driver_do_not_affect_the_others():
    record = stored(libvirt(*VM), docker(*BOX))
    part = GuestListing((BOX[0],), ("container c12: odd",))
    readings = [libvirt(VM[0]), docker(guests=fresh("sock", part))]
    view = account(merge_readings(readings), record, Policy(), NOW)
    assert names(view) == ["c11", "c12", "c13", "vm-1"]
    entry = view.values.facts["guests"]
    assert (entry.state, entry.error) == (FactState.HELD, "container c12: odd")
    assert entry.unseen_kinds == ()
    assert {warning.kind for warning in view.warnings} == {
        WarningKind.FACT_HELD,
        WarningKind.GUEST_UNREADABLE,
    }


def test_the_source_of_guests_is_constant_while_one_driver_fails():
    whole = merge_readings([libvirt(), docker()]).guests.source
    assert merge_readings([libvirt(), docker()]).guests.source == whole


def test_measures_traits_overhead_and_warnings_of_all_are_kept():
    warning = HostWarning(WarningKind.ENGINE_NAME, "host-1", "", "x")
    merged = merge_readings(
        [
            libvirt(measured={"a": 1}, overhead_mb=100, traits=("T2",)),
            docker(measured={"a": 2, "b": 3}, traits=("T1",), warnings=(warning,)),
        ]
    )
    assert merged.measured == {"a": 3, "b": 3}
    assert (merged.overhead_mb, merged.traits) == (100, ("T1", "T2"))
    assert merged.warnings == (dataclasses.replace(warning, nodename="node-1"),)


DOCKERD, PODMAN = "unix:///run/docker.sock", "unix:///run/podman/podman.sock"


def engine(url, *containers, root_dir="/var/lib/docker", name="docker", **changes):
    guests = [
        make_guest(number, name=f"c{number}", kind=WorkloadKind.CONTAINER, memory_mb=64,
                   details={"container_id": container_id})
        for number, container_id in containers
    ]  # fmt: skip
    described = fresh(url, ContainerEngine(name, root_dir=root_dir))
    snapshot = make_snapshot("host-1", *guests, **{"engine": described} | changes)
    return DriverReading(url, CONTAINERS, snapshot)


def podman(*containers, **changes):
    return engine(PODMAN, *containers, root_dir="/var/lib/containers", name="podman", **changes)


def test_two_engines_are_one_node_with_the_containers_of_both():
    readings = [
        engine(DOCKERD, (1, "a"), measured={"containers_memory_used_mb": 10}),
        podman((2, "b"), measured={"containers_memory_used_mb": 5}),
    ]
    merged = merge_readings(readings)
    view = account(merged, None, Policy(), NOW)
    assert names(view) == ["c1", "c2"]
    assert view.values.engine["name"] == "docker"
    assert merged.measured == {"containers_memory_used_mb": 15}


def test_one_engine_behind_two_sockets_counts_once():
    readings = [
        engine(url, (1, "a"), (2, "b"), measured={"containers_memory_used_mb": 10})
        for url in (DOCKERD, "unix:///var/run/docker.sock")
    ]
    merged = merge_readings(readings)
    view = account(merged, None, Policy(), NOW)
    assert names(view) == ["c1", "c2"]
    assert merged.measured == {"containers_memory_used_mb": 10}
    assert [(w.kind, w.item) for w in view.warnings] == [
        (WarningKind.GUEST_LISTED_TWICE, "unix:///var/run/docker.sock")
    ]


def test_containers_of_two_engines_with_one_workload_uuid_count_twice():
    view = account(
        merge_readings([engine(DOCKERD, (1, "a")), podman((1, "b"))]), None, Policy(), NOW
    )
    assert names(view) == ["c1", "c1"]
    assert view.guests.keys() == {make_guest(1).uuid, derive_container_uuid("b")}
    assert [w.kind for w in view.warnings] == [WarningKind.GUEST_LISTED_TWICE]


def test_a_use_is_unknown_while_one_engine_is_away():
    readings = [engine(DOCKERD, measured={"containers_memory_used_mb": 10}), away(podman())]
    merged = merge_readings(readings)
    assert merged.measured == {"containers_memory_used_mb": None}
    assert merged.guests.error == f"{PODMAN}: no answer"


def test_a_container_goes_with_its_own_engine_while_the_other_is_away():
    record = stored(engine(DOCKERD, (1, "a"), (2, "b")), podman((3, "c")))
    first = dataclasses.replace(
        engine(DOCKERD, (1, "a")), gone=frozenset({make_guest(2).uuid, make_guest(3).uuid})
    )
    gone_of_first_only = dataclasses.replace(first, gone=frozenset({make_guest(2).uuid}))
    held = account(merge_readings([gone_of_first_only, away(podman())]), record, Policy(), NOW)
    assert names(held) == ["c1", "c3"]
    listed = account(merge_readings([first, podman((3, "c"))]), record, Policy(), NOW)
    assert names(listed) == ["c1", "c3"]


def test_a_node_has_a_source_of_guests_if_one_driver_lists_any():
    nothing = fresh("local", GuestListing(has_source=False))
    local = DriverReading("local", frozenset(), make_snapshot("node-1", guests=nothing))
    assert merge_readings([local, docker()]).guests.value.has_source
    assert not merge_readings([local, local]).guests.value.has_source


def test_claims_of_a_kind_that_was_not_read_do_not_expire():
    claims = {
        kind.value: make_claim(
            kind.value,
            workload=Workload(f"workload-{kind}", kind),
            state=ClaimState.HELD,
            amounts=Amounts(memory_mb=1),
            expires_at=later(-1),
        )
        for kind in WorkloadKind
    }
    merged = merge_readings([libvirt(), away(docker())])
    reconciled = reconcile_claims("node-1", claims, {}, merged.guests, ListingEvidence(NOW)).claims
    assert reconciled["instance"].state is ClaimState.RELEASED
    assert reconciled["container"].state is ClaimState.HELD
    before = {"instance": 1, "container": 1}
    counts = count_absences(claims.values(), merged.guests, before)
    assert counts == {"instance": 2, "container": 1}


def pending(reading):
    return dataclasses.replace(reading, is_pending=True)


def test_a_driver_that_is_still_being_read_counts_as_last_read():
    record = stored(libvirt(*VM), docker(*BOX))
    late = pending(docker(*BOX))
    view = account(merge_readings([libvirt(VM[0]), late]), record, Policy(), NOW)
    assert names(view) == sorted(guest.name for guest in (VM[0], *BOX))
    assert view.values.facts == record.values.facts
    assert not view.warnings
    new_box = pending(docker(*BOX[1:]))
    view = account(merge_readings([libvirt(*VM), new_box]), record, Policy(), NOW)
    assert names(view) == sorted(guest.name for guest in (*VM, *BOX))


def test_a_driver_that_failed_and_is_read_again_is_still_unseen():
    record = stored(libvirt(*VM), docker(*BOX))
    view = account(merge_readings([libvirt(*VM), pending(away(docker()))]), record, Policy(), NOW)
    assert view.values.facts["guests"].state is FactState.HELD
    assert view.values.facts["guests"].unseen_kinds == (WorkloadKind.CONTAINER,)
    assert names(view) == sorted(guest.name for guest in (*VM, *BOX))
