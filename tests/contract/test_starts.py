"""Guests that are about to start: charged by the ledger, or refused, in every store."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from nodetracker.accounting.usage import usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import ClaimRefusedError, NotFoundError
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import (
    Guest,
    GuestPins,
    LoosePages,
    PowerState,
    ResourceKind,
    UnresolvedUse,
    WorkloadKind,
)
from nodetracker.model.numa import CellAssignment
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.ports import Store
from tests.builders import (
    ADMISSION_POLICY,
    RESERVED,
    SINCE,
    Clock,
    ask,
    claim,
    make_device,
    make_guest,
    make_node,
    move,
    node,
    update,
)
from tests.contract.stores import SQL_BACKENDS, StoreMaker
from tests.oracle import check_usage

GUEST = make_guest(vcpu_milli=2000, memory_mb=4096, disk_mb=0)
ADDRESS = "0000:81:00.1"


def start(store: Store, guest: Guest, **changes: bool):
    return store.admit_start(guest, "alpha", "node-1", str(uuid4()), ADMISSION_POLICY, **changes)


def another(number: int) -> Guest:
    return replace(GUEST, uuid=make_guest(number).uuid)


def test_are_charged_until_they_stop(store: Store) -> None:
    make_node(store)
    made = start(store, GUEST)
    assert made is not None
    assert (made.by_door, made.state) == (True, ClaimState.HELD)
    assert (made.amounts.vcpu_milli, made.amounts.memory_mb) == (2000, 4096)
    assert node(store).values.memory_mb_used == 512 + 4096
    check_usage(store, "alpha")
    store.abort_claim(made.uuid)
    assert node(store).values.memory_mb_used == 512


def test_that_do_not_fit_are_refused_with_every_reason(store: Store) -> None:
    make_node(store)
    start(store, GUEST)
    with pytest.raises(ClaimRefusedError) as refused:
        start(store, replace(another(2), memory_mb=4096, vcpu_milli=9000))
    assert [check.split(".")[-1] for check in refused.value.checks] == ["cpu", "ram"]
    assert node(store).values.memory_mb_used == 512 + 4096


def test_what_it_needs_elsewhere_follows_from_what_it_holds(store: Store) -> None:
    make_node(store)
    made = start(store, GUEST)
    assert made is not None
    assert store.find_requirements([made.uuid]) == {}


def test_a_container_has_a_minute_to_start(store: Store) -> None:
    make_node(store)
    for kind, seconds in ((WorkloadKind.INSTANCE, 600), (WorkloadKind.CONTAINER, 60)):
        made = start(store, replace(GUEST, uuid=str(uuid4()), kind=kind, memory_mb=64))
        assert made is not None
        assert made.expires_at is not None
        assert (made.expires_at - made.created_at).total_seconds() == seconds


def test_a_trial_writes_nothing(store: Store) -> None:
    make_node(store)
    assert start(store, GUEST, is_trial=True) is None
    assert node(store).claims == {}
    with pytest.raises(ClaimRefusedError):
        start(store, replace(GUEST, memory_mb=9000), is_trial=True)


def test_a_second_start_replaces_the_claim_of_the_first(store: Store) -> None:
    make_node(store)
    first, second = start(store, GUEST), start(store, replace(GUEST, memory_mb=6000))
    assert first is not None
    assert second is not None
    assert list(node(store).claims) == [second.uuid]
    assert node(store).values.memory_mb_used == 512 + 6000
    (released,) = store.list_claims(uuid=first.uuid)
    assert (released.state, released.reason) == (ClaimState.RELEASED, "stopped")
    check_usage(store, "alpha")


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_device_that_is_chosen_during_the_start_is_bound(store: Store, is_listed: bool) -> None:
    agent = make_node(store, devices=(make_device(ADDRESS),))
    first = start(store, GUEST)
    assert first is not None
    if is_listed:
        listed = replace(GUEST, power_state=PowerState.RUNNING, claim_uuid=first.uuid)
        charged = usage_columns(Amounts(2000, 0, 4096, 0), RESERVED, 8192, 100)
        record = replace(node(store), claims={})
        change = replace(update(record, **charged), guests=ItemDiff(added=(listed,)))
        store.apply_changes(agent, [change], 60)
    second = start(store, replace(GUEST, pins=GuestPins(devices=(ADDRESS,))))
    assert second is not None
    assert second.devices == (ADDRESS,)
    assert list(node(store).claims) == [second.uuid]
    assert node(store).values.memory_mb_used == 512 + 4096
    with pytest.raises(ClaimRefusedError, match=ADDRESS):
        start(store, replace(another(2), memory_mb=64, pins=GuestPins(devices=(ADDRESS,))))
    check_usage(store, "alpha")


def test_a_start_that_is_asked_for_again_has_the_same_claim(store: Store) -> None:
    make_node(store)
    uuid = str(uuid4())
    asked = GUEST, "alpha", "node-1", uuid, ADMISSION_POLICY
    first, again = store.admit_start(*asked), store.admit_start(*asked)
    assert first == again
    assert node(store).values.memory_mb_used == 512 + 4096


def test_a_second_start_that_is_refused_keeps_the_claim_of_the_first(store: Store) -> None:
    make_node(store)
    first = start(store, GUEST)
    assert first is not None
    with pytest.raises(ClaimRefusedError):
        start(store, replace(GUEST, memory_mb=9000))
    assert list(node(store).claims) == [first.uuid]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_guest_that_has_stopped_takes_only_its_disk(store: Store, pinned: bool) -> None:
    pins = GuestPins((CellAssignment(0, memory_mb=1024, pins={0: 4}),), devices=(ADDRESS,))
    guest = replace(GUEST, vcpu_milli=1000, memory_mb=1024, pins=pins if pinned else GuestPins())
    running = replace(guest, power_state=PowerState.RUNNING, disk_mb=10240)
    agent = make_node(store, devices=(make_device(ADDRESS),))
    before = node(store)
    made = start(store, guest)
    assert made is not None
    record = replace(node(store), claims={})
    listed = replace(running, claim_uuid=made.uuid)
    charged = usage_columns(
        Amounts(0 if pinned else 1000, int(pinned), 1024, 10240), RESERVED, 8192, 100
    )
    change = replace(update(record, **charged), guests=ItemDiff(added=(listed,)))
    store.apply_changes(agent, [change], 60)
    store.end_start(GUEST.uuid, "alpha", "node-1")
    after = node(store)
    (stored,) = after.guests.values()
    assert (stored.power_state, stored.memory_mb, stored.pins) == ("shutdown", 0, GuestPins())
    assert stored.details["inactive"]["memory_mb"] == 1024
    assert after.values.memory_mb_used == 512
    assert after.values.local_gb_used == 10
    assert after.values.numa_topology == before.values.numa_topology
    assert after.devices == before.devices
    assert not after.claims
    check_usage(store, "alpha")
    store.end_start(GUEST.uuid, "alpha", "node-1")  # nothing more to release


def test_the_source_of_a_move_ends_with_the_move(store: Store) -> None:
    make_node(store)
    make_node(store, host="beta")
    made = start(store, GUEST)
    assert made is not None
    store.confirm_claim(made.uuid)
    moved = move(store, made, "beta")
    store.end_start(GUEST.uuid, "alpha", "node-1")
    assert start(store, GUEST) is None
    assert node(store).claims[made.uuid].is_active
    store.confirm_migration(moved.uuid)
    assert not node(store).claims


def test_a_guest_is_admitted_by_its_claim(store: Store) -> None:
    make_node(store)
    own = claim(store, ask(GUEST.uuid, VCPU=2, MEMORY_MB=4096, DISK_GB=1))
    assert start(store, GUEST) is None
    assert list(node(store).claims) == [own.uuid]


def test_a_guest_that_is_larger_than_its_claim_asks_for_the_difference(store: Store) -> None:
    make_node(store)
    claim(store, ask(GUEST.uuid, VCPU=2, MEMORY_MB=4096, DISK_GB=1))
    made = start(store, replace(GUEST, memory_mb=5000))
    assert made is not None
    assert (made.amounts.vcpu_milli, made.amounts.memory_mb) == (0, 904)
    assert node(store).values.memory_mb_used == 512 + 5000


def test_a_guest_that_is_defined_takes_its_disk_once(store: Store) -> None:
    off = replace(
        GUEST, power_state=PowerState.SHUTDOWN, vcpu_milli=0, memory_mb=0, disk_mb=10240,
        details={"inactive": {"vcpu_milli": 2000, "memory_mb": 4096, "pins": {}}},
    )  # fmt: skip
    make_node(store, guests=(off,))
    start(store, GUEST)
    assert node(store).values.memory_mb_used == 512 + 4096


def test_a_host_that_takes_no_claims_starts_its_own_guests(store: Store) -> None:
    make_node(store)
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True, maintenance=True))
    assert start(store, GUEST) is not None


def test_an_engine_that_has_just_started_starts_guests_before_it_lists_them(store: Store) -> None:
    agent = make_node(store)
    away = FactEntry(FactState.HELD, "sock", SINCE, "away", tuple(WorkloadKind))
    store.apply_changes(agent, [update(node(store), facts={"guests": away})], 60)
    assert start(store, GUEST) is not None


def test_a_device_is_claimed_once(store: Store) -> None:
    make_node(store, devices=(make_device(ADDRESS),))
    pins = GuestPins(devices=(ADDRESS,))
    made = start(store, replace(GUEST, pins=pins))
    assert made is not None
    assert made.devices == (ADDRESS,)
    with pytest.raises(ClaimRefusedError, match=rf"PCI device {ADDRESS}: claimed"):
        start(store, replace(another(2), pins=pins))


def test_a_cpu_is_pinned_once(store: Store) -> None:
    make_node(store)
    pins = GuestPins((CellAssignment(0, memory_mb=1024, pins={0: 4}),))
    small = replace(GUEST, vcpu_milli=1000, memory_mb=1024, pins=pins)
    made = start(store, small)
    assert made is not None
    assert made.amounts.pcpus == 1
    with pytest.raises(ClaimRefusedError, match="CPU 4: pinned by another guest or claim"):
        start(store, replace(small, uuid=another(2).uuid))


def test_a_guest_with_a_claim_is_not_pinned_to_a_cpu_of_another(store: Store) -> None:
    make_node(store)
    pins = GuestPins((CellAssignment(0, memory_mb=1024, pins={0: 4}),))
    small = replace(GUEST, vcpu_milli=1000, memory_mb=1024, pins=pins)
    start(store, small)
    claim(store, ask(another(2).uuid, PCPU=1, MEMORY_MB=1024))
    with pytest.raises(ClaimRefusedError, match="CPU 4: pinned by another guest or claim"):
        start(store, replace(small, uuid=another(2).uuid))


def make_pages(store: Store) -> None:
    """Give each cell 512 pages of 2 MiB."""
    agent = make_node(store)
    pool = {"size_kb": 2048, "total": 512, "used": 0, "reserved": 0}
    cells = node(store).values.numa_topology["cells"]
    topology = {"cells": [cell | {"mempages": [*cell["mempages"], pool]} for cell in cells]}
    store.apply_changes(agent, [update(node(store), numa_topology=topology)], 60)


@pytest.mark.parametrize("is_loose", [True, False])
def test_huge_pages_beyond_a_guest_s_claims_are_asked_for(store: Store, is_loose: bool) -> None:
    def bind(pages: int) -> GuestPins:
        if is_loose:
            return GuestPins(pages=(LoosePages(2048, pages, (0,)),))
        part = CellAssignment(0, memory_mb=2 * pages, page_size_kb=2048, pages=pages)
        return GuestPins((part,))

    make_pages(store)
    own = claim(store, ask(GUEST.uuid, VCPU=1, MEMORY_MB=512, numa={"page_size": 2048}))
    assert own.numa is not None
    assert own.numa.cells[0].host_cell == 0
    small = replace(GUEST, vcpu_milli=1000, memory_mb=512)
    assert start(store, replace(small, pins=bind(256))) is None
    made = start(store, replace(small, pins=bind(300)))
    assert made is not None
    assert made.numa is not None
    assert [(part.host_cell, part.pages) for part in made.numa.cells] == [(0, 44)]
    with pytest.raises(ClaimRefusedError, match="huge pages of 2048 KiB .* 344 requested, 256"):
        start(store, replace(small, pins=bind(600)))
    claim(store, ask(another(2).uuid, VCPU=1, MEMORY_MB=512))
    other = replace(small, uuid=another(2).uuid, pins=bind(256))
    with pytest.raises(ClaimRefusedError, match="huge pages of 2048 KiB .* 256 requested, 212"):
        start(store, other)


def test_memory_bound_to_a_cell_is_that_of_the_cell(store: Store) -> None:
    make_node(store)
    pins = GuestPins((CellAssignment(1, vcpus=1, memory_mb=3000),))
    start(store, replace(GUEST, memory_mb=3000, pins=pins))
    with pytest.raises(ClaimRefusedError, match="memory of NUMA cell 1: 3000 MiB requested, 1096"):
        start(store, replace(another(2), memory_mb=3000, pins=pins))


def test_huge_pages_that_do_not_exist_are_refused(store: Store) -> None:
    make_node(store)
    pins = GuestPins(pages=(LoosePages(2048, 512),))
    with pytest.raises(ClaimRefusedError, match="huge pages of 2048 KiB in NUMA cell 1: 512"):
        start(store, replace(GUEST, memory_mb=1024, pins=pins))


@pytest.mark.parametrize("has_devices", [True, False])
def test_what_nobody_can_name_is_refused_where_it_may_be_a_device(
    store: Store, has_devices: bool
) -> None:
    make_node(store, devices=(make_device(ADDRESS),) if has_devices else ())
    use = UnresolvedUse(ResourceKind.PCI, "mdev-1", "its parent is not known")
    guest = replace(GUEST, pins=GuestPins(unresolved=(use,)))
    if not has_devices:
        assert start(store, guest) is not None
        return
    with pytest.raises(ClaimRefusedError, match="mdev-1: not known which device it is"):
        start(store, guest)


def test_a_function_that_a_guest_shares_is_not_refused(store: Store) -> None:
    make_node(store, devices=(make_device(ADDRESS),))
    use = UnresolvedUse(ResourceKind.FUNCTION, "eth0", "shared", within=ADDRESS)
    assert start(store, replace(GUEST, pins=GuestPins(unresolved=(use,)))) is not None


def test_a_node_that_does_not_exist_is_named(store: Store) -> None:
    with pytest.raises(NotFoundError, match="node-1 on host alpha"):
        start(store, GUEST)


def test_ten_at_once_never_take_more_than_there_is(store: Store) -> None:
    make_node(store)

    def attempt(number: int) -> bool:
        try:
            return start(store, replace(another(number), memory_mb=2048)) is not None
        except ClaimRefusedError:
            return False

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(attempt, range(10, 20))) == 3
    assert node(store).values.memory_mb_used == 512 + 3 * 2048
    check_usage(store, "alpha")


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_a_guest_that_is_migrated_is_no_split_brain_until_it_stays_on_both_hosts(
    stores: StoreMaker,
) -> None:
    clock = Clock()
    store = stores.open_empty(clock.now)
    make_node(store)
    make_node(store, host="beta")
    start(store, GUEST)
    made = store.admit_start(GUEST, "beta", "node-1", str(uuid4()), ADMISSION_POLICY)
    assert made is not None
    assert store.list_split_brains("alpha") == store.list_split_brains("beta") == []
    (first,) = node(store).claims
    for uuid in (first, made.uuid):
        store.confirm_claim(uuid)
    assert store.list_split_brains("beta") == []
    clock.seconds += 61
    assert [found.other_host for found in store.list_split_brains("beta")] == ["alpha"]
