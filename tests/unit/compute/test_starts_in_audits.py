"""Claims that the agent made at a start end with the guest's run, by the listings of audits."""

from dataclasses import replace
from uuid import uuid4

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import ARRIVING
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from tests.builders import make_guest, make_node
from tests.unit.compute.tracked_host import (
    ADMISSION_POLICY,
    HOST,
    AgentWithClaimants,
    guest,
    node,
)

RUNNING, OFF = guest(1, power_state="running"), guest(1, power_state="shutdown")
ASKED = make_guest(vcpu_milli=2000, memory_mb=2048, disk_mb=0, project_id="")


@pytest.fixture
def host(clock, tmp_path):
    return AgentWithClaimants(clock, tmp_path, Policy(ignores_inactive=True))


def start(host):
    asked = replace(ASKED, uuid=RUNNING["uuid"])
    return host.store.admit_start(asked, HOST, "node-1", str(uuid4()), ADMISSION_POLICY)


def test_a_guest_that_runs_confirms_its_claim(host):
    host.audit(node(1, OFF))
    assert host.used == 0
    claim = start(host)
    assert host.used == 2
    host.audit(node(1, RUNNING))
    assert host.find(claim).state is ClaimState.CONFIRMED
    assert host.used == 2
    assert host.audit().changes == ()


def test_a_guest_that_is_off_does_not_confirm_it_and_lets_it_expire(host, clock):
    claim = start(host)
    host.audit(node(1, OFF))
    assert host.find(claim).state is ClaimState.HELD
    clock.seconds += 610
    host.audit()
    assert (host.find(claim).state, host.find(claim).reason) == (ClaimState.RELEASED, "stopped")
    assert host.used == 0
    assert host.warnings(WarningKind.CLAIM_EXPIRED) == []


@pytest.mark.parametrize("after", [(OFF,), ()], ids=["switched off", "undefined"])
def test_a_guest_that_stops_releases_it(host, clock, after):
    claim = start(host)
    host.audit(node(1, RUNNING))
    clock.seconds += 1
    host.audit(node(1, *after))
    assert (host.find(claim).state, host.find(claim).reason) == (ClaimState.RELEASED, "stopped")
    assert host.used == 0
    assert host.warnings(WarningKind.GUEST_VANISHED) == []


@pytest.mark.parametrize("step", ["reading", "writing"])
def test_what_ends_during_an_audit_is_free_at_once(host, monkeypatch, step):
    start(host)
    host.audit(node(1, RUNNING))
    changed = node(1, RUNNING, guest(2, power_state="running"))
    owner, name = {
        "reading": (host.driver, "get_available_resource"),
        "writing": (host.store, "apply_changes"),
    }[step]
    proceed = getattr(owner, name)

    def end_meanwhile(*args):
        result = proceed(*args) if step == "reading" else None
        if host.used == 2:
            host.clock.seconds += 1
            host.queue.note_end("node-1", RUNNING["uuid"])
            host.store.end_start(RUNNING["uuid"], HOST, "node-1")
        return result or proceed(*args)

    monkeypatch.setattr(owner, name, end_meanwhile)
    host.audit(changed)
    assert host.used == 2  # of the other
    monkeypatch.undo()
    host.audit(changed)
    assert host.used == 4  # it was started again without a question


def test_a_listing_that_may_lack_guests_releases_nothing(host, clock):
    claim = start(host)
    host.audit(node(1, RUNNING))
    clock.seconds += 1
    host.audit(node(1, {"uuid": "broken"}))
    assert host.find(claim).state is ClaimState.CONFIRMED


def test_a_guest_that_is_arriving_holds_its_claim_for_as_long_as_it_takes(host, clock):
    claim = start(host)
    arriving = guest(1, power_state="paused", details={ARRIVING: True})
    clock.seconds += 1000
    host.audit(node(1, arriving))
    assert host.find(claim).state is ClaimState.HELD


def test_a_claim_for_what_a_guest_has_beside_another_is_not_one_too_many(host):
    host.claim(1, VCPU=1, MEMORY_MB=2048, DISK_GB=20)
    assert start(host).amounts.vcpu_milli == 1000
    host.audit(node(1, RUNNING))
    assert host.warnings(WarningKind.CLAIMED_TWICE) == []
    assert host.used == 2


def test_the_source_of_a_move_is_left_to_the_move(host, clock):
    claim = start(host)
    host.audit(node(1, RUNNING))
    body = {
        "workload": {"uuid": RUNNING["uuid"]},
        "resources": {"VCPU": 1, "MEMORY_MB": 64},
        "migration": {"type": "live-migration", "source_claim": claim.uuid},
    }
    make_node(host.store, host="beta")
    moved = host.store.create_migration(
        parse_claim_request(body), "beta", "node-1", ADMISSION_POLICY
    )
    clock.seconds += 1
    host.audit(node(1))
    assert host.find(claim).state is ClaimState.CONFIRMED
    (stored,) = host.store.list_migrations(uuid=moved.uuid)
    assert stored.is_running
