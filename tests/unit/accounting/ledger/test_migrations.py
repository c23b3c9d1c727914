"""Starting, advancing and ending a migration: decisions and their writes."""

import dataclasses

import pytest

from nodetracker.accounting.ledger.migrations import (
    decide_move,
    decide_move_confirm,
    decide_move_revert,
    decide_move_status,
)
from nodetracker.accounting.ledger.transaction import (
    LedgerWrite,
    LockedMigration,
    LockedMove,
    MigrationStep,
    NodeWrite,
)
from nodetracker.model.claim import ClaimState, MigrationStatus, MigrationType
from nodetracker.model.errors import ClaimRefusedError, RefusedError
from nodetracker.model.pci import PciStatus
from tests import builders
from tests.builders import later
from tests.unit.accounting.ledger.cases import USAGE
from tests.unit.accounting.ledger.fakes import (
    ADDRESS,
    GUEST,
    PINNED,
    POLICY,
    WORKLOAD,
    check_columns,
    make_claim,
    make_migration,
    make_node,
)

SOURCE = "0b9c2f6c-5a34-4a64-9d3a-0f4f5c9a7b12"
CONFIRMED = {"state": ClaimState.CONFIRMED, "expires_at": None}
EXPIRED = {"state": ClaimState.RELEASED, "expires_at": None, "reason": "expired"}
ABORTED = EXPIRED | {"reason": "aborted"}
ENDS = [decide_move_confirm, decide_move_revert]


def ask(kind="migration", workload=WORKLOAD):
    move = {"type": kind, "source_claim": SOURCE}
    return builders.ask(workload, VCPU=2, migration=move)


class TestStarting:
    def start(self, request, dest, migrations=(), **source):
        claim = make_claim(SOURCE, **(CONFIRMED | source))
        return decide_move(request, LockedMove(dest, {SOURCE: claim}, tuple(migrations)), POLICY)

    def test_the_destination_is_claimed_and_the_source_s_agent_reads_its_node(self):
        request = ask()
        write = self.start(request, make_node(node_id=2))
        migration, claim = write.answer, write.new_claim
        assert (migration.uuid, claim.migration_uuid) == (request.migration.uuid,) * 2
        assert (migration.source_node, migration.dest_node) == ("node-1", "node-2")
        assert (migration.source_claim, migration.dest_claim) == (SOURCE, claim.uuid)
        assert migration.status is MigrationStatus.ACCEPTED
        dest, source = write.nodes
        assert (dest.node_id, source) == (2, NodeWrite(1))
        assert check_columns(dest, [claim]) == USAGE
        assert write == LedgerWrite(
            migration,
            (claim, migration),
            new_claim=claim,
            requirement=request.requirement,
            nodes=write.nodes,
            new_migration=migration,
        )

    def test_on_one_node_it_is_written_once(self):
        (node,) = self.start(ask("resize"), make_node([make_claim(SOURCE)])).nodes
        assert node.node_id == 1

    @pytest.mark.parametrize(
        ("request_", "dest", "source", "status", "reason"),
        [
            pytest.param(
                ask(workload=builders.WORKLOAD), 2, {}, None,
                f"claim {SOURCE} belongs to workload {WORKLOAD}", id="another workload",
            ),
            pytest.param(
                ask(), 2, ABORTED, None, f"claim {SOURCE} is released (aborted)", id="released"
            ),
            pytest.param(
                ask(), 2, {}, MigrationStatus.ERROR,
                f"claim {SOURCE} is part of migration move-1, which is error", id="moving",
            ),
            pytest.param(
                ask(), 1, {}, None, "node node-1 of host host-1 already has the workload",
                id="onto its own node",
            ),
            pytest.param(
                ask("rebuild"), 2, {}, None, "a rebuild must stay on node node-1 of host host-1",
                id="a rebuild on another node",
            ),
        ],
    )  # fmt: skip
    def test_it_is_refused_with_the_reason(self, request_, dest, source, status, reason):
        migrations = []
        if status is not None:
            migrations = [dataclasses.replace(make_migration(status), source_claim=SOURCE)]
        with pytest.raises(ClaimRefusedError) as caught:
            self.start(request_, make_node(node_id=dest), migrations, **source)
        assert caught.value.reasons == (reason,)

    def test_a_source_that_does_not_exist_is_refused_with_the_node_s_reasons(self):
        with pytest.raises(ClaimRefusedError) as caught:
            decide_move(ask(), LockedMove(make_node(node_id=2, service=None), {}, ()), POLICY)
        assert caught.value.reasons == (f"no such claim: {SOURCE}", "host host-2 has no service")

    def test_a_migration_that_ended_does_not_matter(self):
        ended = make_migration(MigrationStatus.REVERTED)
        assert self.start(ask(), make_node(node_id=2), [ended]).new_migration is not None


def lock(source=None, dest=None, migration=None, guest=None):
    """Lock a migration whose two claims are on different nodes or on one."""
    source = source or make_claim(**CONFIRMED)
    dest = dest or make_claim("claim-2", 2)
    claims = [source, dest]
    nodes = {}
    for node_id in {claim.node_id for claim in claims}:
        here = [c for c in claims if c.is_active and c.node_id == node_id]
        nodes[node_id] = make_node(here, guest if node_id == 1 else None, node_id)
    by_uuid = {claim.uuid: claim for claim in claims}
    return LockedMigration(migration or make_migration(), nodes, by_uuid, later(10))


class TestEnding:
    def test_confirming_releases_the_source_and_confirms_the_destination(self):
        guest = dataclasses.replace(GUEST, claim_uuid="claim-1")
        write = decide_move_confirm(lock(guest=guest))
        dest, source = write.changed_claims
        assert (dest.uuid, dest.state, dest.expires_at) == ("claim-2", ClaimState.CONFIRMED, None)
        assert (source.uuid, source.state, source.reason) == ("claim-1", "released", "moved")
        left, taken = write.nodes
        assert taken == NodeWrite(2)
        (unclaimed,) = left.guests.changed
        assert unclaimed.claim_uuid is None
        assert check_columns(left, [], [unclaimed]) == USAGE
        assert write.migration_step == MigrationStep("move-1", MigrationStatus.CONFIRMED, later(10))
        assert (write.answer.status, write.answer.updated_at) == ("confirmed", later(10))

    def test_reverting_releases_the_destination_and_keeps_the_source(self):
        write = decide_move_revert(lock())
        (dest,) = write.changed_claims
        assert (dest.uuid, dest.state, dest.reason) == ("claim-2", "released", "reverted")
        kept, left = write.nodes
        assert (kept, left.node_id) == (NodeWrite(1), 2)
        assert check_columns(left) == USAGE
        assert write.migration_step.status is MigrationStatus.REVERTED

    @pytest.mark.parametrize(
        ("kind", "status"),
        [
            (MigrationType.RESIZE, MigrationStatus.CONFIRMED),
            (MigrationType.LIVE_MIGRATION, MigrationStatus.CONFIRMED),
            (MigrationType.EVACUATION, MigrationStatus.DONE),
            (MigrationType.REBUILD, MigrationStatus.DONE),
        ],
    )
    def test_confirming_sets_the_status_of_each_type(self, kind, status):
        assert decide_move_confirm(lock(migration=make_migration(kind=kind))).answer.status is (
            status
        )

    @pytest.mark.parametrize(
        ("decide", "left", "reason"),
        [
            pytest.param(decide_move_confirm, "claim-2", "moved", id="confirm"),
            pytest.param(decide_move_revert, "claim-1", "reverted", id="revert"),
        ],
    )
    def test_on_one_node_the_other_side_is_left_with_the_guest(self, decide, left, reason):
        guest = dataclasses.replace(GUEST, claim_uuid="claim-1")
        locked = lock(
            make_claim(numa=PINNED, **CONFIRMED),
            make_claim("claim-2", devices=(ADDRESS,)),
            guest=dataclasses.replace(
                guest, claim_uuid="claim-1" if left == "claim-2" else "claim-2"
            ),
        )
        write = decide(locked)
        (node,) = write.nodes
        (assigned,) = node.guests.changed
        assert assigned.claim_uuid == left
        kept = locked.claims[left]
        check_columns(node, [kept], [assigned])
        (device,) = node.devices.changed
        expected = {
            "claim-2": (PciStatus.ALLOCATED, "claim-2"),
            "claim-1": (PciStatus.AVAILABLE, None),
        }
        assert (device.status, device.claim_uuid) == expected[left]
        assert {c.reason for c in write.changed_claims if not c.is_active} == {reason}
        assert ("numa_topology" in node.columns) == (left == "claim-2")

    @pytest.mark.parametrize(
        ("decide", "status", "ended"),
        [
            (decide_move_confirm, MigrationStatus.CONFIRMED, ["claim-1", "claim-2"]),
            (decide_move_revert, MigrationStatus.REVERTED, ["claim-2"]),
        ],
    )
    def test_ending_again_writes_nothing(self, decide, status, ended):
        migration = make_migration(status)
        locked = lock(migration=migration)
        claims = [locked.claims[uuid] for uuid in ended]
        assert decide(locked) == LedgerWrite(migration, (*claims, migration))

    @pytest.mark.parametrize("decide", ENDS)
    def test_the_other_end_is_refused(self, decide):
        with pytest.raises(RefusedError, match="migration move-1 is cancelled"):
            decide(lock(migration=make_migration(MigrationStatus.CANCELLED)))

    @pytest.mark.parametrize(
        ("decide", "sides", "match"),
        [
            pytest.param(
                decide_move_confirm,
                {"dest": make_claim("claim-2", 2, **ABORTED)},
                r"its destination claim claim-2 is released \(aborted\); revert it",
                id="confirm without a destination",
            ),
            pytest.param(
                decide_move_revert,
                {"source": make_claim(**ABORTED)},
                r"its source claim claim-1 is released \(aborted\); confirm it",
                id="revert without a source",
            ),
        ],
    )
    def test_an_end_at_a_side_that_is_lost_is_refused(self, decide, sides, match):
        with pytest.raises(RefusedError, match=match):
            decide(lock(**sides))

    def test_reverting_ends_a_migration_that_has_lost_both_sides(self):
        sides = {"source": make_claim(**ABORTED), "dest": make_claim("claim-2", 2, **ABORTED)}
        write = decide_move_revert(lock(**sides))
        assert (write.answer.status, write.changed_claims) == (MigrationStatus.REVERTED, ())

    @pytest.mark.parametrize(
        ("decide", "lost", "message"),
        [
            (decide_move_confirm, "claim-2", "its destination claim claim-2 no longer exists"),
            (decide_move_revert, "claim-1", "its source claim claim-1 no longer exists"),
        ],
    )
    def test_an_end_at_a_side_that_was_deleted_is_refused(self, decide, lost, message):
        locked = lock()
        claims = {uuid: claim for uuid, claim in locked.claims.items() if uuid != lost}
        with pytest.raises(RefusedError, match=message):
            decide(dataclasses.replace(locked, claims=claims))

    @pytest.mark.parametrize(
        ("state", "reasons"),
        [
            pytest.param(EXPIRED, ["reverted"], id="expired"),
            pytest.param(ABORTED, [], id="aborted"),
        ],
    )
    def test_a_side_that_is_released_returns_nothing_again(self, state, reasons):
        write = decide_move_revert(lock(dest=make_claim("claim-2", 2, **state)))
        assert [claim.reason for claim in write.changed_claims] == reasons
        assert write.nodes == (NodeWrite(1), NodeWrite(2))

    def test_a_side_whose_node_was_deleted_is_skipped(self):
        locked = lock()
        nodes, claims = {2: locked.nodes[2]}, {"claim-2": locked.claims["claim-2"]}
        write = decide_move_confirm(dataclasses.replace(locked, nodes=nodes, claims=claims))
        assert (len(write.changed_claims), write.nodes) == (1, (NodeWrite(2),))


class TestStatus:
    def test_both_agents_read_a_new_status_again(self):
        write = decide_move_status(lock(), MigrationStatus.POST_MIGRATING)
        changed = make_migration(MigrationStatus.POST_MIGRATING)
        changed = dataclasses.replace(changed, updated_at=later(10))
        assert write == LedgerWrite(
            changed,
            (changed,),
            nodes=(NodeWrite(1), NodeWrite(2)),
            migration_step=MigrationStep("move-1", MigrationStatus.POST_MIGRATING, later(10)),
        )

    def test_the_same_status_is_not_written(self):
        write = decide_move_status(lock(), MigrationStatus.MIGRATING)
        assert write == LedgerWrite(make_migration(), (make_migration(),))

    @pytest.mark.parametrize(
        "status", [MigrationStatus.ACCEPTED, MigrationStatus.CONFIRMED, MigrationStatus.CANCELLED]
    )
    def test_a_step_back_and_an_end_are_refused(self, status):
        with pytest.raises(RefusedError, match=f"move-1 is migrating and cannot become {status}"):
            decide_move_status(lock(), status)
