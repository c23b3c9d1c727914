"""Claims and guests as audits see them: confirmed, expired, late, vanished, adopted."""

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import ClaimRefusedError, RefusedError
from nodetracker.model.claim import ClaimState
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WarningKind
from nodetracker.ports import LedgerTerms
from nodetracker.settings import Policy
from tests.unit.compute.test_resource_tracker import HOST, Agent, Clock, guest, node

TERMS = LedgerTerms(service_down_time=10**9, claim_timeout=600)


class World(Agent):
    """An agent, and whoever claims on its node."""

    def __init__(self, clock, tmp_path, policy=None):
        super().__init__(MemoryStore(clock.now), tmp_path / "inventory.yaml", clock, policy)
        self.store.beat(self.key, 1, AuditState())
        self.audit(node(1))

    def claim(self, number=1, **resources):
        request = parse_claim_request(
            {"workload": {"uuid": guest(number)["uuid"]}, "resources": resources or {"VCPU": 2}}
        )
        return self.store.create_claim(request, HOST, "node-1", TERMS)

    def find(self, claim):
        (found,) = self.store.list_claims(uuid=claim.uuid)
        return found

    @property
    def used(self):
        return self.records()["node-1"].values.vcpus_used

    def warnings(self, kind):
        return [
            record.warning
            for record in self.store.list_warnings(HOST)
            if record.warning.kind is kind and record.resolved_at is None
        ]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def world(clock, tmp_path):
    return World(clock, tmp_path)


def test_used_is_what_claims_and_unclaimed_guests_hold(world):
    world.claim(1, VCPU=3)
    world.audit(node(1, guest(2)))
    assert world.used == 3 + 2


def test_one_complete_listing_confirms(world):
    claim = world.claim(1, VCPU=3)
    world.audit(node(1, guest(1)))
    assert world.find(claim).state is ClaimState.CONFIRMED
    assert world.find(claim).expires_at is None
    assert world.records()["node-1"].guests[guest(1)["uuid"]].claim_uuid == claim.uuid
    assert world.used == 3
    assert world.audit().changes == ()


def test_an_incomplete_listing_confirms_nothing(world):
    claim = world.claim(1)
    world.audit(node(1, guest(1), {"uuid": "broken"}))
    assert world.find(claim).state is ClaimState.HELD


def test_a_held_claim_expires_by_a_listing_that_began_after_its_time(world, clock):
    claim = world.claim(1)
    clock.seconds += 590
    world.audit()
    assert world.find(claim).state is ClaimState.HELD
    clock.seconds += 20
    world.audit()
    assert (world.find(claim).state, world.find(claim).reason) == (ClaimState.RELEASED, "expired")
    assert world.used == 0


def test_held_listings_prolong_a_claim_by_themselves(world, clock):
    claim = world.claim(1)
    clock.seconds += 3600
    world.audit(node(1), fail={"node-1": "boom"})
    assert world.find(claim).state is ClaimState.HELD
    world.audit(node(1))
    assert world.find(claim).reason == "expired"


def test_a_guest_that_comes_late_takes_its_expired_claim_up_again(world, clock):
    claim = world.claim(1, VCPU=3)
    clock.seconds += 3600
    world.audit()
    assert world.used == 0
    world.audit(node(1, guest(1)))
    assert (world.find(claim).state, world.find(claim).reason) == (ClaimState.CONFIRMED, "")
    assert world.used == 3


def test_an_aborted_claim_is_not_taken_up_again(world):
    claim = world.claim(1, VCPU=3)
    world.store.abort_claim(claim.uuid)
    world.audit(node(1, guest(1)))
    assert world.find(claim).state is ClaimState.RELEASED
    assert world.used == 2


def test_a_confirmed_guest_that_vanished_is_flagged_and_stays_charged(world):
    claim = world.claim(1, VCPU=3)
    world.audit(node(1, guest(1)))
    world.audit(node(1))
    assert world.warnings(WarningKind.GUEST_VANISHED) == []
    world.audit(node(1))
    (warning,) = world.warnings(WarningKind.GUEST_VANISHED)
    assert claim.uuid in warning.message
    stored = world.records()["node-1"].guests[guest(1)["uuid"]]
    assert stored.missing_since is not None
    assert world.used == 3
    assert world.audit().changes == ()
    world.audit(node(1, guest(1)))
    assert world.warnings(WarningKind.GUEST_VANISHED) == []
    assert world.records()["node-1"].guests[guest(1)["uuid"]].missing_since is None


def test_a_claim_that_was_made_during_a_listing_is_not_judged_by_it(world):
    world.claim(1)
    world.store.confirm_claim(world.store.list_claims()[0].uuid)
    world.audit(node(1))
    world.audit(node(1))
    assert world.warnings(WarningKind.GUEST_VANISHED) == []


def test_a_vanished_guest_s_row_goes_with_its_claim(world):
    claim = world.claim(1, VCPU=3)
    for nodes in ([node(1, guest(1))], [node(1)], [node(1)], [node(1)]):
        world.audit(*nodes)
    world.store.abort_claim(claim.uuid)
    assert world.used == 0
    world.audit()
    assert world.records()["node-1"].guests == {}
    assert world.warnings(WarningKind.GUEST_VANISHED) == []


def test_a_restart_lowers_nothing(world, clock, tmp_path):
    world.claim(1, VCPU=3)
    world.audit(node(1, guest(1), guest(2)))
    again = Agent(world.store, world.path, clock)
    again.audit(fail={"node-1": "boom"})
    assert world.used == 5
    again.audit(node(1, guest(1), guest(2)))
    assert world.used == 5


def test_an_orphan_with_claims_is_kept_and_warned_of(world):
    world.audit(node(1), node(2))
    claim = world.claim(1)
    for _ in range(4):
        world.audit(node(2))
    assert set(world.records()) == {"node-1", "node-2"}
    (warning,) = world.warnings(WarningKind.ORPHAN_NODE_KEPT)
    assert warning.nodename == "node-1"
    with pytest.raises(ClaimRefusedError, match="cpu is unknown .* is not listed any more"):
        world.claim(2)
    assert world.audit(node(2)).changes == ()
    world.audit(node(1), node(2))
    world.store.abort_claim(world.claim(2).uuid)
    world.store.abort_claim(claim.uuid)
    for _ in range(3):
        world.audit(node(2))
    assert set(world.records()) == {"node-2"}


def test_a_node_that_does_not_track_takes_every_claim(world):
    world.audit(node(1, tracks_resources=False))
    claim = world.claim(1, VCPU=10_000, MEMORY_MB=2**30, CUSTOM_THING=1)
    assert world.find(claim).state is ClaimState.HELD
    world.audit(node(1, guest(1), tracks_resources=False))
    assert world.find(claim).state is ClaimState.CONFIRMED
    world.store.set_service(HOST, COMPUTE_BINARY, ServiceChange(disabled=True))
    with pytest.raises(ClaimRefusedError, match="is disabled"):
        world.claim(2)


class TestInstanceClaim:
    REQUEST = parse_claim_request(
        {"workload": {"uuid": guest(1)["uuid"]}, "resources": {"VCPU": 2}}
    )

    def test_an_exception_gives_it_back(self, world):
        def make_guest():
            with world.tracker.instance_claim(self.REQUEST):
                assert world.used == 2
                raise OSError("no image")

        with pytest.raises(OSError, match="no image"):
            make_guest()
        assert world.used == 0
        (claim,) = world.store.list_claims()
        assert claim.reason == "aborted"

    def test_nothing_is_made_on_a_claim_that_was_given_back(self, world):
        with pytest.raises(OSError, match="x"), world.tracker.instance_claim(self.REQUEST):
            raise OSError("x")
        with (
            pytest.raises(RefusedError, match=r"is released \(aborted\)"),
            world.tracker.instance_claim(self.REQUEST),
        ):
            pytest.fail("a guest would be made that nothing is held for")

    def test_without_one_it_stays_until_it_is_ended(self, world, clock):
        with world.tracker.instance_claim(self.REQUEST, "node-1") as claim:
            pass
        clock.seconds += 300
        renewed = world.store.renew_claim(claim.uuid, TERMS)
        assert renewed.expires_at > claim.expires_at
        assert world.store.confirm_claim(claim.uuid).state is ClaimState.CONFIRMED
        assert world.store.abort_claim(claim.uuid).state is ClaimState.RELEASED
        assert world.used == 0

    def test_of_several_nodes_one_is_named(self, world):
        world.audit(node(1), node(2))
        with (
            pytest.raises(RefusedError, match=r"name one of them \(node-1, node-2\)"),
            world.tracker.instance_claim(self.REQUEST),
        ):
            pass


def test_a_late_guest_whose_workload_has_a_claim_elsewhere_is_warned_of(world, clock):
    world.audit(node(1), node(2))
    claim = world.claim(1)
    clock.seconds += 3600
    world.audit()
    request = parse_claim_request(
        {"workload": {"uuid": guest(1)["uuid"]}, "resources": {"VCPU": 2}}
    )
    other = world.store.create_claim(request, HOST, "node-2", TERMS)
    world.audit(node(1, guest(1)), node(2))
    world.audit()
    assert world.find(claim).state is ClaimState.CONFIRMED
    here, there = sorted(world.warnings(WarningKind.SPLIT_BRAIN))
    assert (here.nodename, here.item) == ("node-1", guest(1)["uuid"])
    assert f"another on node node-2 of host {HOST}" in here.message
    assert there.nodename == "node-2"
    world.store.abort_claim(other.uuid)
    clock.seconds += 601
    world.audit()
    assert world.warnings(WarningKind.SPLIT_BRAIN) == []


def test_a_guest_that_runs_beside_its_claim_elsewhere_is_warned_of(world, clock):
    world.audit(node(1), node(2))
    world.claim(1)
    world.audit(node(1, guest(1)), node(2, guest(1)))
    clock.seconds += 601
    world.audit()
    (told,) = world.warnings(WarningKind.SPLIT_BRAIN)
    assert (told.nodename, told.item) == ("node-2", guest(1)["uuid"])
    assert f"runs here without a claim and holds one on node node-1 of host {HOST}" in told.message
    world.audit(node(1, guest(1)), node(2))
    clock.seconds += 601
    world.audit()
    assert world.warnings(WarningKind.SPLIT_BRAIN) == []


def test_what_a_migration_ties_is_no_split_brain(world, clock):
    world.audit(node(1), node(2))
    claim = world.claim(1)
    move = {"type": "migration", "source_claim": claim.uuid}
    body = {"workload": {"uuid": claim.workload.uuid}, "resources": {}, "migration": move}
    world.store.create_migration(parse_claim_request(body), HOST, "node-2", TERMS)
    clock.seconds += 601
    world.audit()
    assert world.warnings(WarningKind.SPLIT_BRAIN) == []


CELL = {"id": 0, "cpus": "0-3", "memory_mb": 65536}


def test_pins_are_shown_kept_over_restarts_and_not_given_to_a_late_guest_twice(clock, tmp_path):
    world = World(clock, tmp_path, Policy(cpu_dedicated_set=frozenset({2, 3})))
    world.audit(node(1, vcpus=4, cells=[CELL]))

    def pinned():
        (cell,) = world.records()["node-1"].values.numa_topology["cells"]
        return cell["pinned_cpus"]

    early = world.claim(1, PCPU=2)
    assert pinned() == [2, 3]
    world.audit()
    assert pinned() == [2, 3]
    clock.seconds += 3600
    world.audit()
    assert pinned() == []
    world.claim(2, PCPU=2)
    world.audit(node(1, guest(1), guest(2), vcpus=4, cells=[CELL]))
    assert world.find(early).state is ClaimState.RELEASED
    (warning,) = world.warnings(WarningKind.CLAIM_LOST)
    assert early.uuid in warning.message
    assert pinned() == [2, 3]


def confirm(world, number=1):
    claim = world.claim(number, VCPU=3)
    world.audit(node(1, guest(number)))
    return claim


def test_a_confirmed_guest_that_was_undefined_releases_its_claim(world):
    claim = confirm(world)
    world.tracker.note_gone({"node-1": {guest(1)["uuid"]}})
    world.audit(node(1))
    assert (world.find(claim).state, world.find(claim).reason) == (ClaimState.RELEASED, "deleted")
    assert world.records()["node-1"].guests == {}
    assert world.used == 0
    assert world.warnings(WarningKind.GUEST_VANISHED) == []


def test_who_is_gone_is_judged_by_a_complete_listing_alone(world):
    claim = confirm(world)
    world.tracker.note_gone({"node-1": {guest(1)["uuid"]}})
    world.audit(node(1, {"uuid": "broken"}))
    world.audit(node(1), fail={"node-1": "boom"})
    assert world.find(claim).state is ClaimState.CONFIRMED
    world.audit(node(1))
    assert world.find(claim).reason == "deleted"


def test_who_was_gone_and_is_listed_again_is_gone_no_more(world):
    claim = confirm(world)
    world.tracker.note_gone({"node-1": {guest(1)["uuid"]}})
    world.audit(node(1, guest(1)))
    world.audit(node(1))
    world.audit(node(1))
    assert world.find(claim).state is ClaimState.CONFIRMED
    assert len(world.warnings(WarningKind.GUEST_VANISHED)) == 1


def test_a_claim_made_after_its_guest_had_gone_is_not_released_by_that(world):
    world.tracker.note_gone({"node-1": {guest(1)["uuid"]}})
    claim = world.claim(1)
    world.store.confirm_claim(claim.uuid)
    world.audit(node(1))
    assert world.find(claim).state is ClaimState.CONFIRMED
