"""Instances that are switched off take what they would when they run, or only their disk."""

from dataclasses import replace

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.usage import INACTIVE
from nodetracker.model.fact import Fact
from nodetracker.model.guest import (
    GuestListing,
    GuestPins,
    PartialGuest,
    PowerState,
    WorkloadKind,
)
from nodetracker.model.settings import Policy
from nodetracker.model.start import AdmissionMode
from tests.builders import NOW, SOURCE, make_guest, make_record, make_snapshot

IGNORING = Policy(ignores_inactive=True)
OFF = replace(
    make_guest(disk_mb=1024),
    power_state=PowerState.SHUTDOWN,
    pins=GuestPins(devices=("0000:01:00.0",)),
)


def audit(*guests, stored=(), policy=IGNORING, partial=(), error=None):
    listing = Fact(SOURCE, GuestListing(guests, partial=tuple(partial)), error)
    before = account(make_snapshot(), None, policy, NOW)
    record = make_record(before.values, guests={guest.uuid: guest for guest in stored})
    return account(make_snapshot(guests=listing), record, policy, NOW)


def test_are_counted_unless_they_are_ignored():
    assert audit(OFF, policy=Policy()).values.memory_mb_used == 512 + OFF.memory_mb


def test_that_are_ignored_take_only_their_disk():
    view = audit(OFF)
    assert view.values.memory_mb_used == 512
    assert view.values.vcpus_used == audit().values.vcpus_used
    assert view.values.local_gb_used == 1
    assert view.guests[OFF.uuid].pins == GuestPins()
    assert view.values.stats["num_vm_left_out"] == 1


def test_that_are_ignored_are_shown_with_what_they_would_take():
    details = audit(OFF).guests[OFF.uuid].details[INACTIVE]
    assert (details["vcpu_milli"], details["memory_mb"]) == (OFF.vcpu_milli, OFF.memory_mb)
    assert details["pins"]["devices"] == ["0000:01:00.0"]


def test_that_hold_memory_are_counted():
    for state in set(PowerState) - {PowerState.SHUTDOWN}:
        view = audit(replace(OFF, power_state=state))
        assert view.values.memory_mb_used == 512 + OFF.memory_mb, state


def test_the_row_tells_which_engines_ask_and_no_longer_which_asked():
    asking = replace(IGNORING, engine_modes={"libvirt": AdmissionMode.ENFORCE})
    view = audit(policy=asking)
    assert view.values.engine["admission_libvirt"] == "enforce"
    record = make_record(view.values)
    after = account(make_snapshot(), record, IGNORING, NOW)
    assert after.values.engine == audit().values.engine


def test_containers_are_left_to_their_driver():
    assert audit(replace(OFF, kind=WorkloadKind.CONTAINER)).values.memory_mb_used > 512


def test_a_guest_that_runs_by_now_and_cannot_be_read_is_counted_in_full():
    stored = audit(OFF).guests[OFF.uuid]
    unread = PartialGuest(OFF.uuid, OFF.name, OFF.kind, PowerState.RUNNING, problem="hangs")
    view = audit(stored=[stored], partial=[unread])
    assert view.values.memory_mb_used == 512 + OFF.memory_mb
    assert view.guests[OFF.uuid].pins == OFF.pins
    assert INACTIVE not in view.guests[OFF.uuid].details


def test_are_counted_again_once_the_setting_is_taken_back():
    stored = audit(OFF).guests[OFF.uuid]
    view = audit(OFF, stored=[stored], policy=Policy())
    assert view.guests[OFF.uuid].pins == OFF.pins
    assert view.values.memory_mb_used == 512 + OFF.memory_mb
