"""Adoption of guests without a claim."""

from dataclasses import replace

import pytest

from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.guest import GuestPins, LoosePages
from nodetracker.usecases.adoption import adopt_guest
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ADMISSION_POLICY, ask, claim, create, make_guest, make_node, make_values
from tests.stores import SqliteStore

GUEST = make_guest(name="web-1", vcpu_milli=2000, memory_mb=1024, disk_mb=2048)


@pytest.fixture
def store():
    return SqliteStore()


@pytest.fixture
def adopt(store):
    return lambda uuid=GUEST.uuid: adopt_guest(store, Scheduler(store, ADMISSION_POLICY), uuid)


def test_a_claim_of_what_the_guest_uses_is_confirmed_and_made_once(store, adopt):
    make_node(store, guests=(GUEST,))
    made = adopt()
    assert (made.state, made.workload.name) == (ClaimState.CONFIRMED, "web-1")
    assert (made.amounts.vcpu_milli, made.amounts.memory_mb, made.amounts.disk_mb) == (
        2000, 1024, 2048,
    )  # fmt: skip
    again = adopt()
    assert (again.uuid, again.is_repeated) == (made.uuid, True)
    assert len(store.list_claims()) == 1
    store.abort_claim(made.uuid)
    assert adopt().uuid != made.uuid


def test_a_guest_of_a_second_node_is_adopted_there(store, adopt):
    agent = make_node(store)
    store.apply_changes(agent, [create(agent, "node-2", make_values(), (GUEST,))], 60)
    made = adopt()
    assert (made.host, made.nodename, made.state) == ("alpha", "node-2", ClaimState.CONFIRMED)
    guests = {node.nodename: {*node.guests} for node in store.load_nodes("alpha")}
    assert guests == {"node-1": set(), "node-2": {GUEST.uuid}}
    assert (adopt().uuid, len(store.list_claims())) == (made.uuid, 1)


@pytest.mark.parametrize("reads_before", [True, False])
def test_adoptions_at_the_same_time_make_one_claim(reads_before, store, adopt, monkeypatch):
    make_node(store, guests=(GUEST,))
    load, made = store.load_nodes, []

    def load_late(*arguments):
        monkeypatch.setattr(store, "load_nodes", load)
        record = load(*arguments)
        made.append(adopt())
        return record if reads_before else load(*arguments)

    monkeypatch.setattr(store, "load_nodes", load_late)
    assert [adopt().uuid] == [found.uuid for found in made]
    assert len(store.list_claims()) == 1


def test_a_guest_whose_huge_pages_are_in_no_certain_cell_is_adopted(store, adopt):
    pins = GuestPins(pages=(LoosePages(2048, 512, (0, 1)),))
    make_node(store, guests=(replace(GUEST, pins=pins),))
    assert adopt().state is ClaimState.CONFIRMED
    (node,) = store.load_nodes("alpha")
    assert node.guests[GUEST.uuid].pins == pins


def test_a_guest_with_a_claim_is_refused_by_name(store, adopt):
    make_node(store, guests=(GUEST,))
    granted = claim(store, ask(GUEST.uuid, VCPU=1))
    with pytest.raises(RefusedError, match=f"guest {GUEST.uuid} has claim {granted.uuid}"):
        adopt()


def test_a_guest_that_ended_is_refused_by_name_and_holds_nothing(store, adopt, monkeypatch):
    with pytest.raises(NotFoundError, match=f"no such guest: {GUEST.uuid}"):
        adopt()
    make_node(store, guests=(GUEST,))
    monkeypatch.setattr(store, "load_nodes", lambda *_: [])
    with pytest.raises(NotFoundError, match="guest web-1 on node node-1 of host alpha has ended"):
        adopt()
    assert store.list_claims() == []


def test_a_guest_that_ends_before_the_grant_leaves_no_claim(store, adopt, monkeypatch):
    make_node(store, guests=(GUEST,))
    create = Scheduler.create_claim

    def create_held(scheduler, request):
        made = create(scheduler, request)
        return replace(made, state=ClaimState.HELD)

    monkeypatch.setattr(Scheduler, "create_claim", create_held)
    with pytest.raises(NotFoundError, match="web-1"):
        adopt()
    assert [found.is_active for found in store.list_claims()] == [False]


def test_a_guest_that_is_bound_needs_a_claim_with_its_cells(store, adopt):
    make_node(store, guests=(replace(GUEST, pins=GuestPins((), ("0000:82:00.0",))),))
    with pytest.raises(RefusedError, match="is bound to CPUs, memory or devices"):
        adopt()
