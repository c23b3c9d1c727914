"""Claims and guests as audits see them: confirmed, expired, late, vanished, adopted."""

import dataclasses
import re
from pathlib import Path

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import ClaimRefusedError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from tests.builders import WORKLOAD, ask
from tests.unit.compute.tracked_host import (
    ADMISSION_POLICY,
    HOST,
    AgentWithClaimants,
    TrackedHost,
    guest,
    node,
)


@pytest.fixture
def claimed_host(clock, tmp_path):
    return AgentWithClaimants(clock, tmp_path)


def test_used_is_what_claims_and_unclaimed_guests_hold(claimed_host):
    claimed_host.claim(1, VCPU=3)
    claimed_host.audit(node(1, guest(2)))
    assert claimed_host.used == 3 + 2


def test_one_complete_listing_confirms(claimed_host):
    claim = claimed_host.claim(1, VCPU=3)
    claimed_host.audit(node(1, guest(1)))
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    assert claimed_host.find(claim).expires_at is None
    assert claimed_host.records()["node-1"].guests[guest(1)["uuid"]].claim_uuid == claim.uuid
    assert claimed_host.used == 3
    assert claimed_host.audit().changes == ()


def test_a_guest_of_another_kind_is_charged_beside_the_claim_of_its_uuid(claimed_host, clock):
    claim = claimed_host.claim(1, VCPU=3)
    stranger = guest(1, kind="container")
    claimed_host.audit(node(1, stranger))
    assert claimed_host.find(claim).state is ClaimState.HELD
    assert claimed_host.used == 3 + 2
    assert len(claimed_host.warnings(WarningKind.CLAIM_MISMATCH)) == 1
    assert claimed_host.audit().changes == ()
    claimed_host.audit(node(1, stranger), fail={"node-1": "boom"})
    assert len(claimed_host.warnings(WarningKind.CLAIM_MISMATCH)) == 1
    claimed_host.audit(node(1, stranger))
    claimed_host.store.abort_claim(claim.uuid)
    assert claimed_host.used == 2
    claimed_host.audit()
    assert claimed_host.warnings(WarningKind.CLAIM_MISMATCH) == []


def test_an_incomplete_listing_confirms_nothing(claimed_host):
    claim = claimed_host.claim(1)
    claimed_host.audit(node(1, guest(1), {"uuid": "broken"}))
    assert claimed_host.find(claim).state is ClaimState.HELD


def test_a_held_claim_expires_by_a_listing_that_started_after_its_time(claimed_host, clock):
    claim = claimed_host.claim(1)
    clock.seconds += 590
    claimed_host.audit()
    assert claimed_host.find(claim).state is ClaimState.HELD
    clock.seconds += 20
    claimed_host.audit()
    assert (claimed_host.find(claim).state, claimed_host.find(claim).reason) == (
        ClaimState.RELEASED,
        "expired",
    )
    assert claimed_host.used == 0


def test_held_listings_prolong_a_claim_by_themselves(claimed_host, clock):
    claim = claimed_host.claim(1)
    clock.seconds += 3600
    claimed_host.audit(node(1), fail={"node-1": "boom"})
    assert claimed_host.find(claim).state is ClaimState.HELD
    claimed_host.audit(node(1))
    assert claimed_host.find(claim).reason == "expired"


def test_a_late_guest_reopens_its_expired_claim(claimed_host, clock):
    claim = claimed_host.claim(1, VCPU=3)
    clock.seconds += 3600
    claimed_host.audit()
    assert claimed_host.used == 0
    claimed_host.audit(node(1, guest(1)))
    assert (claimed_host.find(claim).state, claimed_host.find(claim).reason) == (
        ClaimState.CONFIRMED,
        "",
    )
    assert claimed_host.used == 3


def test_a_guest_that_is_a_day_late_reopens_its_claim_by_one_more_statement(
    claimed_host, clock, monkeypatch
):
    claim = claimed_host.claim(1, VCPU=3)
    clock.seconds += 3600
    claimed_host.audit()
    clock.seconds += 86400
    claimed_host.audit()  # all rows are read again
    asked = []
    list_expired = claimed_host.store.list_expired_claims
    monkeypatch.setattr(
        claimed_host.store,
        "list_expired_claims",
        lambda host, uuids: asked.append(uuids) or list_expired(host, uuids),
    )
    assert claim.uuid not in claimed_host.records()["node-1"].claims
    claimed_host.audit(node(1, guest(1)))
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    claimed_host.audit(node(1, guest(1), guest(2)))
    claimed_host.audit()
    assert asked == [[guest(1)["uuid"]], [guest(2)["uuid"]]]


def test_an_aborted_claim_is_not_reopened(claimed_host):
    claim = claimed_host.claim(1, VCPU=3)
    claimed_host.store.abort_claim(claim.uuid)
    claimed_host.audit(node(1, guest(1)))
    assert claimed_host.find(claim).state is ClaimState.RELEASED
    assert claimed_host.used == 2


def test_an_expired_claim_that_is_aborted_is_not_reopened(claimed_host, clock):
    """Whoever aborted it was told that it is released."""
    claim = claimed_host.claim(1, VCPU=3)
    clock.seconds += 3600
    claimed_host.audit()
    assert claimed_host.find(claim).reason == "expired"
    claimed_host.store.abort_claim(claim.uuid)
    claimed_host.audit(node(1, guest(1)))
    found = claimed_host.find(claim)
    assert (found.state, found.reason) == (ClaimState.RELEASED, "aborted")
    assert claimed_host.used == 2


def test_a_confirmed_guest_that_vanished_is_flagged_and_still_charged(claimed_host):
    claim = claimed_host.claim(1, VCPU=3)
    claimed_host.audit(node(1, guest(1)))
    claimed_host.audit(node(1))
    assert claimed_host.warnings(WarningKind.GUEST_VANISHED) == []
    claimed_host.audit(node(1))
    (warning,) = claimed_host.warnings(WarningKind.GUEST_VANISHED)
    assert claim.uuid in warning.message
    stored = claimed_host.records()["node-1"].guests[guest(1)["uuid"]]
    assert stored.missing_since is not None
    assert claimed_host.used == 3
    assert claimed_host.audit().changes == ()
    claimed_host.audit(node(1, guest(1)))
    assert claimed_host.warnings(WarningKind.GUEST_VANISHED) == []
    assert claimed_host.records()["node-1"].guests[guest(1)["uuid"]].missing_since is None


def test_a_claim_created_during_a_listing_is_not_evaluated_by_it(claimed_host):
    claimed_host.claim(1)
    claimed_host.store.confirm_claim(claimed_host.store.list_claims()[0].uuid)
    claimed_host.audit(node(1))
    claimed_host.audit(node(1))
    assert claimed_host.warnings(WarningKind.GUEST_VANISHED) == []


def test_a_vanished_guest_s_row_is_deleted_with_its_claim(claimed_host):
    claim = claimed_host.claim(1, VCPU=3)
    for nodes in ([node(1, guest(1))], [node(1)], [node(1)], [node(1)]):
        claimed_host.audit(*nodes)
    claimed_host.store.abort_claim(claim.uuid)
    assert claimed_host.used == 0
    claimed_host.audit()
    assert claimed_host.records()["node-1"].guests == {}
    assert claimed_host.warnings(WarningKind.GUEST_VANISHED) == []


def test_a_restart_lowers_nothing(claimed_host, clock, tmp_path):
    claimed_host.claim(1, VCPU=3)
    claimed_host.audit(node(1, guest(1), guest(2)))
    again = TrackedHost(claimed_host.store, claimed_host.path, clock)
    again.audit(fail={"node-1": "boom"})
    assert claimed_host.used == 5
    again.audit(node(1, guest(1), guest(2)))
    assert claimed_host.used == 5


def test_an_orphan_with_claims_is_kept_with_a_warning(claimed_host):
    claimed_host.audit(node(1), node(2))
    claim = claimed_host.claim(1)
    for _ in range(4):
        claimed_host.audit(node(2))
    assert set(claimed_host.records()) == {"node-1", "node-2"}
    (warning,) = claimed_host.warnings(WarningKind.ORPHAN_NODE_KEPT)
    assert warning.nodename == "node-1"
    with pytest.raises(ClaimRefusedError, match="cpu has been unknown .* is no longer listed"):
        claimed_host.claim(2)
    assert claimed_host.audit(node(2)).changes == ()
    claimed_host.audit(node(1), node(2))
    claimed_host.store.abort_claim(claimed_host.claim(2).uuid)
    claimed_host.store.abort_claim(claim.uuid)
    for _ in range(3):
        claimed_host.audit(node(2))
    assert set(claimed_host.records()) == {"node-2"}


def test_a_node_that_does_not_track_accepts_every_claim(claimed_host):
    claimed_host.audit(node(1, tracks_resources=False))
    claim = claimed_host.claim(1, VCPU=10_000, MEMORY_MB=2**30, CUSTOM_THING=1)
    assert claimed_host.find(claim).state is ClaimState.HELD
    claimed_host.audit(node(1, guest(1), tracks_resources=False))
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    claimed_host.store.set_service(HOST, COMPUTE_BINARY, ServiceChange(disabled=True))
    with pytest.raises(ClaimRefusedError, match="is disabled"):
        claimed_host.claim(2)


class TestInstanceClaim:
    REQUEST = ask(guest(1)["uuid"], VCPU=2)

    def test_the_example_of_the_documentation_holds_while_the_guest_is_created(self, claimed_host):
        text = (Path(__file__).parents[3] / "docs/claims.md").read_text()
        (example,) = re.findall("^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        used = []
        names = {
            "tracker": claimed_host.tracker,
            "create_guest": lambda claim: used.append((claim.workload.uuid, claimed_host.used)),
        }
        exec(example, names)
        assert used == [(WORKLOAD, 2)]

    def test_an_exception_aborts_the_claim(self, claimed_host):
        def make_guest():
            with claimed_host.tracker.instance_claim(self.REQUEST):
                assert claimed_host.used == 2
                raise OSError("no image")

        with pytest.raises(OSError, match="no image"):
            make_guest()
        assert claimed_host.used == 0
        (claim,) = claimed_host.store.list_claims()
        assert claim.reason == "aborted"

    def test_a_released_claim_is_refused(self, claimed_host):
        with pytest.raises(OSError, match="x"), claimed_host.tracker.instance_claim(self.REQUEST):
            raise OSError("x")
        with (
            pytest.raises(RefusedError, match=r"is released \(aborted\)"),
            claimed_host.tracker.instance_claim(self.REQUEST),
        ):
            pytest.fail("a guest would be made that nothing is held for")

    def test_without_an_exception_the_claim_is_kept(self, claimed_host, clock):
        with claimed_host.tracker.instance_claim(self.REQUEST, "node-1") as claim:
            pass
        clock.seconds += 300
        renewed = claimed_host.store.renew_claim(claim.uuid, ADMISSION_POLICY)
        assert renewed.expires_at > claim.expires_at
        assert claimed_host.store.confirm_claim(claim.uuid).state is ClaimState.CONFIRMED
        assert claimed_host.store.abort_claim(claim.uuid).state is ClaimState.RELEASED
        assert claimed_host.used == 0

    @pytest.mark.parametrize(
        ("requested", "given", "used"),
        [(None, "node-2", "node-2"), ("node-2", None, "node-2"), ("node-1", "node-2", "node-2")],
    )
    def test_the_caller_s_nodename_comes_before_the_request_s(
        self, claimed_host, requested, given, used
    ):
        claimed_host.audit(node(1), node(2))
        request = dataclasses.replace(self.REQUEST, nodename=requested)
        with claimed_host.tracker.instance_claim(request, given) as claim:
            assert claim.nodename == used

    def test_a_host_with_several_nodes_requires_a_nodename(self, claimed_host):
        claimed_host.audit(node(1), node(2))
        with (
            pytest.raises(RefusedError, match=r"name one of them \(node-1, node-2\)"),
            claimed_host.tracker.instance_claim(self.REQUEST),
        ):
            pass


def test_a_late_guest_whose_workload_has_a_claim_elsewhere_is_a_warning(claimed_host, clock):
    claimed_host.audit(node(1), node(2))
    claim = claimed_host.claim(1)
    clock.seconds += 3600
    claimed_host.audit()
    request = ask(guest(1)["uuid"], VCPU=2)
    other = claimed_host.store.create_claim(request, HOST, "node-2", ADMISSION_POLICY)
    claimed_host.audit(node(1, guest(1)), node(2))
    claimed_host.audit()
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    here, there = sorted(claimed_host.warnings(WarningKind.SPLIT_BRAIN))
    assert (here.nodename, here.item) == ("node-1", guest(1)["uuid"])
    assert f"another on node node-2 of host {HOST}" in here.message
    assert there.nodename == "node-2"
    claimed_host.store.abort_claim(other.uuid)
    claimed_host.audit()
    assert claimed_host.warnings(WarningKind.SPLIT_BRAIN) == []


def test_a_guest_whose_claim_is_on_another_host_is_a_warning(claimed_host, clock):
    claimed_host.audit(node(1), node(2))
    claimed_host.claim(1)
    claimed_host.audit(node(1, guest(1)), node(2, guest(1)))
    (warning,) = claimed_host.warnings(WarningKind.SPLIT_BRAIN)
    assert (warning.nodename, warning.item) == ("node-2", guest(1)["uuid"])
    assert (
        f"runs here without a claim and holds one on node node-1 of host {HOST}" in warning.message
    )
    claimed_host.audit(node(1, guest(1)), node(2))
    assert claimed_host.warnings(WarningKind.SPLIT_BRAIN) == []


def test_split_brains_are_looked_for_only_after_changes_and_while_there_are_some(claimed_host):
    looks = []
    look = claimed_host.store.list_split_brains
    claimed_host.store.list_split_brains = lambda host: looks.append(host) or look(host)

    def count(*nodes):
        looks.clear()
        claimed_host.audit(*nodes)
        return len(looks)

    claimed_host.audit(node(1), node(2))
    assert (count(), count()) == (1, 0)
    claimed_host.claim(1)
    assert (count(), count(), count()) == (0, 1, 0)
    assert count(node(1, guest(1)), node(2, guest(1))) == 0
    assert (count(), count()) == (1, 1)  # the other side may end it
    assert (count(node(1, guest(1)), node(2)), count()) == (1, 0)


def test_two_claims_of_a_migration_are_not_a_split_brain(claimed_host, clock):
    claimed_host.audit(node(1), node(2))
    claim = claimed_host.claim(1)
    move = {"type": "migration", "source_claim": claim.uuid}
    body = {"workload": {"uuid": claim.workload.uuid}, "resources": {"VCPU": 1}, "migration": move}
    claimed_host.store.create_migration(parse_claim_request(body), HOST, "node-2", ADMISSION_POLICY)
    claimed_host.audit()
    assert claimed_host.warnings(WarningKind.SPLIT_BRAIN) == []


CELL = {"id": 0, "cpus": "0-3", "memory_mb": 65536}


def test_pins_are_shown_and_kept_over_restarts_and_not_assigned_twice(clock, tmp_path):
    claimed_host = AgentWithClaimants(clock, tmp_path, Policy(cpu_dedicated_set=frozenset({2, 3})))
    claimed_host.audit(node(1, vcpus=4, cells=[CELL]))

    def pinned():
        (cell,) = claimed_host.records()["node-1"].values.numa_topology["cells"]
        return cell["pinned_cpus"]

    early = claimed_host.claim(1, PCPU=2)
    assert pinned() == [2, 3]
    claimed_host.audit()
    assert pinned() == [2, 3]
    clock.seconds += 3600
    claimed_host.audit()
    assert pinned() == []
    claimed_host.claim(2, PCPU=2)
    claimed_host.audit(node(1, guest(1), guest(2), vcpus=4, cells=[CELL]))
    assert claimed_host.find(early).state is ClaimState.RELEASED
    (warning,) = claimed_host.warnings(WarningKind.CLAIM_LOST)
    assert early.uuid in warning.message
    assert pinned() == [2, 3]


def confirm(claimed_host, number=1):
    claim = claimed_host.claim(number, VCPU=3)
    claimed_host.audit(node(1, guest(number)))
    return claim


def test_a_confirmed_guest_that_was_undefined_releases_its_claim(claimed_host):
    claim = confirm(claimed_host)
    claimed_host.delete(1)
    claimed_host.audit(node(1))
    assert (claimed_host.find(claim).state, claimed_host.find(claim).reason) == (
        ClaimState.RELEASED,
        "deleted",
    )
    assert claimed_host.records()["node-1"].guests == {}
    assert claimed_host.used == 0
    assert claimed_host.warnings(WarningKind.GUEST_VANISHED) == []


def test_only_a_complete_listing_decides_that_a_guest_is_deleted(claimed_host):
    claim = confirm(claimed_host)
    claimed_host.delete(1)
    claimed_host.audit(node(1, {"uuid": "broken"}))
    claimed_host.audit(node(1), fail={"node-1": "boom"})
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    claimed_host.audit(node(1))
    assert claimed_host.find(claim).reason == "deleted"


def test_a_deleted_guest_that_is_listed_again_is_not_deleted(claimed_host):
    claim = confirm(claimed_host)
    claimed_host.delete(1)
    claimed_host.audit(node(1, guest(1)))
    claimed_host.audit(node(1))
    claimed_host.audit(node(1))
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    assert len(claimed_host.warnings(WarningKind.GUEST_VANISHED)) == 1


def test_a_claim_that_was_confirmed_and_whose_guest_never_comes_is_a_warning(claimed_host, clock):
    claim = claimed_host.claim(1)
    claimed_host.store.confirm_claim(claim.uuid)
    for seconds, fail, is_raised in (
        (599, {}, False),
        (2, {"node-1": "boom"}, False),
        (0, {}, True),
        (9000, {"node-1": "boom"}, True),
    ):
        clock.seconds += seconds
        claimed_host.audit(node(1), fail=fail)
        found = claimed_host.warnings(WarningKind.CLAIM_UNUSED)
        assert [warning.item for warning in found] == [claim.uuid] * is_raised
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
    claimed_host.audit(node(1, guest(1)))
    assert claimed_host.warnings(WarningKind.CLAIM_UNUSED) == []
    claimed_host.audit(node(1))
    claimed_host.audit(node(1))
    assert claimed_host.warnings(WarningKind.CLAIM_UNUSED) == []  # but `guest_vanished`
    assert len(claimed_host.warnings(WarningKind.GUEST_VANISHED)) == 1


def test_a_claim_created_since_the_last_audit_is_released_when_its_guest_is_deleted(claimed_host):
    claimed_host.audit(node(1, guest(1)))
    claim = claimed_host.claim(1)
    claimed_host.delete(1)
    claimed_host.audit(node(1))
    assert claimed_host.find(claim).reason == "deleted"
    assert claimed_host.warnings(WarningKind.GUEST_VANISHED) == []


def test_a_held_claim_whose_guest_came_and_went_is_released_once_it_is_confirmed(claimed_host):
    claim = claimed_host.claim(1)
    claimed_host.delete(1)
    claimed_host.audit(node(1))
    assert claimed_host.find(claim).state is ClaimState.HELD
    assert claimed_host.queue.list_deleted("node-1") != {}
    claimed_host.store.confirm_claim(claim.uuid)
    claimed_host.audit()
    assert claimed_host.find(claim).reason == "deleted"
    assert claimed_host.queue.list_deleted("node-1") == {}


def test_a_claim_created_after_its_guest_was_deleted_is_not_released(claimed_host):
    claimed_host.delete(1)
    claim = claimed_host.claim(1)
    claimed_host.store.confirm_claim(claim.uuid)
    claimed_host.audit(node(1))
    assert claimed_host.find(claim).state is ClaimState.CONFIRMED
