import dataclasses
import uuid

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.usage import Charge
from nodetracker.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    RequestError,
    StoreUnavailableError,
)
from nodetracker.model.change import ItemDiff
from nodetracker.model.pci_request import Alias, AliasSpec
from nodetracker.scheduler.host_manager import HostManager
from nodetracker.scheduler.scheduler import Scheduler
from nodetracker.settings import SchedulerSettings
from tests.contract.values import delete, make_device, update
from tests.unit.scheduler.fakes import ADMISSION_POLICY, ask


@pytest.fixture
def fake_fleet(empty_fleet):
    fake_fleet = empty_fleet
    fake_fleet.add("h1", "large", vcpus=8)
    fake_fleet.add("h2", "middle", vcpus=6)
    fake_fleet.add("h3", "small", vcpus=1)
    return fake_fleet


@pytest.fixture
def manager(fake_fleet):
    manager = HostManager(fake_fleet.store)
    manager.refresh()
    return manager


@pytest.fixture
def scheduler(fake_fleet, manager):
    return Scheduler(fake_fleet.store, manager, ADMISSION_POLICY)


def test_the_best_candidate_takes_it(scheduler):
    assert scheduler.create_claim(ask(VCPU=1)).nodename == "large"


def test_the_next_one_takes_what_the_best_refuses_meanwhile(fake_fleet, scheduler):
    fake_fleet.store.create_claim(ask(VCPU=8), "h1", "large", ADMISSION_POLICY)
    assert scheduler.create_claim(ask(VCPU=2)).nodename == "middle"
    candidate, answer = scheduler.try_claim(ask(VCPU=2))
    assert (candidate.nodename, answer.reasons) == ("middle", ())


def test_claims_choose_among_the_best_of_the_subset_by_their_uuids(fake_fleet, manager):
    settings = SchedulerSettings(host_subset_size=2)
    scheduler = Scheduler(fake_fleet.store, manager, ADMISSION_POLICY, settings)
    requests = [ask(claim=str(uuid.UUID(int=number)), VCPU=1) for number in range(16)]
    tried = [scheduler.try_claim(request)[0].nodename for request in requests]
    assert set(tried) == {"large", "middle"}
    assert [scheduler.try_claim(request)[0].nodename for request in requests] == tried
    listed = [candidate.nodename for candidate in scheduler.select(requests[0]).candidates]
    assert listed == ["large", "middle", "small"]


def test_when_none_takes_it_every_reason_is_told_with_its_node(fake_fleet, scheduler):
    fake_fleet.store.create_claim(ask(VCPU=8), "h1", "large", ADMISSION_POLICY)
    fake_fleet.store.create_claim(ask(VCPU=5), "h2", "middle", ADMISSION_POLICY)
    for call in (scheduler.create_claim, scheduler.try_claim):
        with pytest.raises(ClaimRefusedError) as caught:
            call(ask(VCPU=2))
        assert caught.value.reasons == (
            "h1/large: Free vcpu 0.00 VCPU < requested 2 VCPU",
            "h2/middle: Free vcpu 1.00 VCPU < requested 2 VCPU",
            "others: cpu: 1 of 3 nodes",
        )


def test_without_a_candidate_the_filters_say_why(scheduler):
    for call in (scheduler.create_claim, scheduler.try_claim):
        with pytest.raises(ClaimRefusedError, match="no candidate: cpu: 3 of 3 nodes") as caught:
            call(ask(VCPU=9))
        assert len(caught.value.reasons) == 1


def test_a_node_that_is_gone_by_then_is_passed_over(fake_fleet, scheduler):
    (record,) = fake_fleet.store.load_nodes("h1")
    fake_fleet.store.apply_changes(fake_fleet.agents["h1"], [delete(record)], 60)
    assert scheduler.try_claim(ask(VCPU=1))[0].nodename == "middle"
    assert scheduler.create_claim(ask(VCPU=1)).nodename == "middle"


def test_the_same_request_answers_the_same_claim_wherever_it_fits_best_now(fake_fleet, scheduler):
    request = ask(claim=str(uuid.uuid4()), VCPU=8)
    granted = scheduler.create_claim(request)
    assert scheduler.create_claim(request) == granted
    with pytest.raises(ClaimConflictError):
        scheduler.create_claim(ask(claim=granted.uuid, VCPU=1))
    assert [c.uuid for c in fake_fleet.store.list_claims()] == [granted.uuid]


def test_what_was_claimed_counts_before_the_next_refresh(fake_fleet, manager, scheduler):
    claims = [scheduler.create_claim(ask(VCPU=2, MEMORY_MB=1024)) for _ in range(4)]
    assert [claim.nodename for claim in claims] == ["large", "middle", "large", "middle"]
    for host, nodename in (("h1", "large"), ("h2", "middle")):
        used = manager.fleet.states[host, nodename].node.values.vcpus_used
        (record,) = fake_fleet.store.list_nodes(host)
        assert used == record.values.vcpus_used


class TestDevicesThatMovedMeanwhile:
    """What was granted is answered, whatever was known of the node's devices."""

    ALIAS = Alias("nic", (AliasSpec("8086", "154c"),))
    ADMISSION_POLICY = dataclasses.replace(ADMISSION_POLICY, aliases={"nic": ALIAS})
    FIRST, SECOND = make_device("0000:81:00.1"), make_device("0000:81:00.2")

    def ask(self):
        return ask(VCPU=1, pci_requests=[{"alias": "nic"}])

    def change(self, fake_fleet, **devices):
        (record,) = fake_fleet.store.load_nodes("h1")
        diff = ItemDiff(**{kind: (device,) for kind, device in devices.items()})
        fake_fleet.store.apply_changes(fake_fleet.agents["h1"], [update(record, devices=diff)], 60)

    @pytest.fixture
    def manager(self, fake_fleet):
        self.change(fake_fleet, added=self.FIRST)
        return HostManager(fake_fleet.store)

    def check(self, fake_fleet, manager, address):
        claim = Scheduler(fake_fleet.store, manager, self.ADMISSION_POLICY).create_claim(self.ask())
        assert claim.devices == (address,)
        assert manager.fleet.states["h1", "large"].is_estimate
        node = manager.refresh().states["h1", "large"].node
        assert node.devices[address].claim_uuid == claim.uuid

    def test_one_that_was_taken_is_free_by_now(self, fake_fleet, manager):
        self.change(fake_fleet, added=self.SECOND)
        other = fake_fleet.store.create_claim(self.ask(), "h1", "large", self.ADMISSION_POLICY)
        manager.refresh()
        fake_fleet.store.abort_claim(other.uuid)
        self.check(fake_fleet, manager, other.devices[0])

    def test_one_that_is_not_known_has_come(self, fake_fleet, manager):
        manager.refresh()
        self.change(fake_fleet, removed=self.FIRST)
        self.change(fake_fleet, added=self.SECOND)
        self.check(fake_fleet, manager, self.SECOND.address)


def test_a_store_that_fails_is_no_refusal(fake_fleet, manager):
    class Away:
        def __getattr__(self, name):
            return getattr(fake_fleet.store, name)

        def create_claim(self, *arguments):
            raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        Scheduler(Away(), manager, ADMISSION_POLICY).create_claim(ask(VCPU=1))


def test_an_overfull_node_takes_what_costs_nothing_of_it(empty_fleet):
    empty_fleet.add(charge=Charge(99000, 0, 0))
    scheduler = Scheduler(empty_fleet.store, HostManager(empty_fleet.store), ADMISSION_POLICY)
    assert scheduler.create_claim(ask(DISK_GB=1)).nodename == "n1"


def ask_move(source, kind, **resources):
    body = {"workload": {"uuid": source.workload.uuid}, "resources": resources}
    return parse_claim_request(body | {"migration": {"type": kind, "source_claim": source.uuid}})


class TestMoves:
    def test_a_move_takes_the_best_node_that_may_take_it(self, fake_fleet, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        assert source.nodename == "large"
        migration = scheduler.create_migration(ask_move(source, "migration", VCPU=1))
        assert (migration.source_node, migration.dest_node) == ("large", "middle")

    def test_a_resize_may_stay_and_a_rebuild_has_to(self, fake_fleet, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        grown = scheduler.create_migration(ask_move(source, "resize", VCPU=2))
        assert grown.dest_node == "large"
        other = fake_fleet.store.create_claim(ask(VCPU=1), "h3", "small", ADMISSION_POLICY)
        with pytest.raises(ClaimRefusedError, match="Free vcpu 0.00"):
            scheduler.create_migration(ask_move(other, "rebuild", VCPU=1))

    def test_the_same_request_answers_the_same_migration(self, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        request = ask_move(source, "migration", VCPU=1)
        migration = scheduler.create_migration(request)
        assert scheduler.create_migration(request) == migration

    def test_no_room_names_every_node(self, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        with pytest.raises(ClaimRefusedError) as caught:
            scheduler.create_migration(ask_move(source, "migration", VCPU=7))
        assert caught.value.reasons == (
            "h1/large: node large of host h1 already has the workload",
            "others: cpu: 2 of 3 nodes",
        )

    def test_what_is_not_there_is_said_so(self, scheduler):
        source = dataclasses.replace(scheduler.create_claim(ask(VCPU=1)), uuid=str(uuid.uuid4()))
        for kind in ("rebuild", "migration"):
            with pytest.raises(ClaimRefusedError, match=f"no such claim: {source.uuid}"):
                scheduler.create_migration(ask_move(source, kind, VCPU=1))
        with pytest.raises(RequestError, match="migration"):
            scheduler.create_migration(ask(VCPU=1))
