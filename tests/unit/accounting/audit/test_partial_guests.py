"""Guests of which a driver could not read everything: the stored data of each counts."""

import dataclasses

import pytest

from nodetracker.accounting.audit.merge import DriverReading, merge_readings
from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.node_limits import limits_of, refusing_flags
from nodetracker.accounting.ledger.reconcile import count_absences
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.fact import FactState, failed, fresh
from nodetracker.model.guest import GuestListing, GuestPins, PartialGuest, PowerState, WorkloadKind
from nodetracker.model.node import failed_snapshot
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from tests.builders import (
    NOW,
    SOURCE,
    ask,
    later,
    make_claim,
    make_guest,
    make_record,
    make_snapshot,
)

HUNG = "domain vm-1: its emulator does not answer"
KNOWN = {"vcpu_milli": 2000, "memory_mb": 2048, "disk_mb": 20480}


def partial(number=1, problem=HUNG, **known):
    guest = make_guest(number)
    return PartialGuest(
        guest.uuid, guest.name, guest.kind, PowerState.PAUSED, problem=problem, **known
    )


def listing(*guests, **changes):
    whole = tuple(guest for guest in guests if not isinstance(guest, PartialGuest))
    rest = tuple(guest for guest in guests if isinstance(guest, PartialGuest))
    return fresh(SOURCE, GuestListing(whole, partial=rest, **changes))


def snapshot(*guests):
    return make_snapshot(guests=listing(*guests))


def stored(*guests, **changes):
    values = account(make_snapshot("node-1", *guests), None, Policy(), NOW).values
    return make_record(values, guests={guest.uuid: guest for guest in guests}, **changes)


def claim_of(guest, **changes):
    workload = Workload(guest.uuid, guest.kind, guest.name)
    amounts = Amounts(memory_mb=1024)
    held = {"workload": workload, "state": ClaimState.HELD, "amounts": amounts}
    return make_claim("00000000-0000-4000-9000-000000000001", **(held | changes))


@pytest.mark.parametrize("unknown", ["vcpu_milli", "memory_mb", "disk_mb"])
def test_of_an_unknown_amount_the_stored_one_counts_and_the_others_follow(unknown):
    before = make_guest(vcpu_milli=1000, memory_mb=1024, disk_mb=5120)
    reading = partial(**KNOWN | {unknown: None})
    guest = account(snapshot(reading), stored(before), Policy(), NOW).guests[before.uuid]
    expected = KNOWN | {unknown: getattr(before, unknown)}
    assert {name: getattr(guest, name) for name in KNOWN} == expected
    assert guest.power_state is PowerState.PAUSED


def test_what_is_stored_of_an_unreadable_guest_is_kept():
    pins = GuestPins(devices=("0000:81:00.0",))
    before = make_guest(project_id="p1", pins=pins, details={"vcpus_max": 8})
    view = account(snapshot(partial()), stored(before), Policy(), NOW)
    assert view.guests[before.uuid] == dataclasses.replace(before, power_state=PowerState.PAUSED)


def test_a_guest_whose_source_does_not_answer_holds_the_fact_and_is_named():
    view = account(snapshot(partial(), make_guest(2)), stored(make_guest(1)), Policy(), NOW)
    entry = view.values.facts["guests"]
    assert (entry.state, entry.error) == (FactState.HELD, HUNG)
    (warning,) = [w for w in view.warnings if w.kind is WarningKind.GUEST_UNREADABLE]
    assert (warning.item, warning.message) == (make_guest(1).uuid, HUNG)
    assert len(view.guests) == 2


def test_the_fact_names_a_few_of_many_guests():
    problems = [f"domain {number}: broken" for number in range(5)]
    guests = [partial(number, problem) for number, problem in enumerate(problems)]
    error = account(snapshot(*guests), None, Policy(), NOW).values.facts["guests"].error
    assert error == "domain 0: broken; domain 1: broken; domain 2: broken; and 2 more"


def test_an_amount_that_the_source_does_not_have_holds_nothing():
    view = account(snapshot(partial(problem="", **KNOWN | {"disk_mb": None})), None, Policy(), NOW)
    assert view.missing == ()
    assert view.values.facts["guests"].state is FactState.FRESH
    assert view.guests[make_guest().uuid].disk_mb == 0


UNREAD = {
    "nothing is known": partial(2),
    "its disk is unknown": partial(2, **KNOWN | {"disk_mb": None}),
    "it has no uuid": "domain 2: no uuid",
}


def read_beside(unread, record):
    """Return the view of a node with a guest that was read and another one."""
    guests = listing(make_guest(1), *[unread] if isinstance(unread, PartialGuest) else [])
    if isinstance(unread, str):
        guests = listing(make_guest(1), unreadable=(unread,))
    return account(make_snapshot(guests=guests), record, Policy(), NOW)


def refusals(view, kind):
    request = ask(make_guest(9).uuid, kind=kind, MEMORY_MB=1)
    flags = limits_of(view.values).admission_flags & refusing_flags(request)
    placed = describe_tree(make_record(view.values, guests=view.guests), is_disabled=False)
    grantable = {entry.grantable for entry in placed.providers[0].classes.values()}
    return bool(flags), grantable == {0}


@pytest.mark.parametrize("kind", list(WorkloadKind))
@pytest.mark.parametrize("is_new", [True, False], ids=["new row", "known row"])
@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_a_node_admits_no_claim_while_a_guest_was_never_read(unread, is_new, kind):
    record = None if is_new else stored(make_guest(1))
    view = read_beside(unread, record)
    assert view.missing == ()
    assert view.guests.keys() == {make_guest(1).uuid}
    entry = view.values.facts["guests"]
    assert (entry.state, entry.unseen_kinds) == (FactState.HELD, tuple(WorkloadKind))
    assert WarningKind.GUEST_UNREADABLE in {warning.kind for warning in view.warnings}
    assert refusals(view, kind) == (True, True)
    after = account(snapshot(make_guest(1)), make_record(view.values), Policy(), NOW)
    assert after.values.facts["guests"].state is FactState.FRESH
    assert refusals(after, kind) == (False, False)


@pytest.mark.parametrize("kind", list(WorkloadKind))
def test_a_node_admits_claims_beside_a_guest_that_counts_as_stored_or_is_dead(kind):
    known = account(snapshot(partial(1)), stored(make_guest(1)), Policy(), NOW)
    dead = account(snapshot(partial(1, holds_nothing=True)), None, Policy(), NOW)
    unnamed = account(
        make_snapshot(guests=listing(unreadable=("x",))), stored(make_guest(1)), Policy(), NOW
    )
    for view, memory_mb in ((known, 2048), (dead, 0), (unnamed, 2048)):
        assert view.missing == ()
        assert view.values.memory_mb_used == 512 + memory_mb
        state = FactState.FRESH if view is dead else FactState.HELD
        assert view.values.facts["guests"].state is state
        assert WarningKind.GUEST_UNREADABLE in {warning.kind for warning in view.warnings}
        assert refusals(view, kind) == (False, False)


@pytest.mark.parametrize(
    ("before", "expected"),
    [(None, 512), (0, 512), (64, 512), (4096, 4096)],
    ids=["new", "was off", "was assumed", "was measured"],
)
def test_of_unknown_memory_the_last_one_counts_and_at_least_what_is_assumed(before, expected):
    record = None if before is None else stored(make_guest(1, memory_mb=before))
    reading = partial(1, "", vcpu_milli=0, disk_mb=0, assumed_memory_mb=512)
    view = account(snapshot(reading), record, Policy(), NOW)
    assert view.guests[make_guest(1).uuid].memory_mb == expected
    assert view.values.facts["guests"].state is FactState.FRESH


def test_an_unreadable_guest_is_not_missing():
    guest = make_guest(1)
    claim = claim_of(guest, state=ClaimState.CONFIRMED)
    reading = listing(partial())
    assert count_absences([claim], reading, {}) == {}
    record = stored(guest, claims={claim.uuid: claim})
    view = account(make_snapshot(guests=reading), record, Policy(), NOW)
    assert view.guests[guest.uuid].missing_since is None
    assert view.claims[claim.uuid].is_active


def test_a_held_claim_of_an_unreadable_guest_is_confirmed_and_does_not_expire():
    guest = make_guest(1)
    claim = claim_of(guest, expires_at=later(-60))
    record = stored(claims={claim.uuid: claim})
    view = account(make_snapshot(guests=listing(partial())), record, Policy(), NOW)
    assert view.claims[claim.uuid].state is ClaimState.CONFIRMED


def test_guests_of_several_drivers_are_merged_partial_ones_too():
    box = make_guest(2, kind=WorkloadKind.CONTAINER)
    readings = [
        DriverReading("libvirt", frozenset({WorkloadKind.INSTANCE}), snapshot(partial())),
        DriverReading("docker", frozenset({WorkloadKind.CONTAINER}), snapshot(box, partial())),
    ]
    merged = merge_readings(readings)
    assert merged.guests.value.uuids == {make_guest(1).uuid, box.uuid}
    assert [guest.uuid for guest in merged.guests.value.partial] == [make_guest(1).uuid]
    assert merged.guests.value.is_complete
    away = failed_snapshot("node-1", "docker", "no answer")
    readings[1] = dataclasses.replace(readings[1], snapshot=away)
    view = account(merge_readings(readings), stored(make_guest(1), box), Policy(), NOW)
    assert view.guests.keys() == {make_guest(1).uuid, box.uuid}
    assert view.values.facts["guests"].error == f"docker: no answer; {HUNG}"


def test_a_failed_listing_stays_failed():
    view = account(make_snapshot(guests=failed(SOURCE, "x")), stored(make_guest()), Policy(), NOW)
    assert view.guests.keys() == {make_guest().uuid}
