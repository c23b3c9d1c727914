"""Moves in every store: across hosts, within a node, both ends, and concurrently."""

import dataclasses
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimState,
    Migration,
    MigrationStatus,
    SplitBrain,
)
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    MoveSourceError,
    NotFoundError,
    RefusedError,
    RequestError,
)
from nodetracker.model.guest import Guest, PowerState
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.ports import AdmissionPolicy, Store
from tests.builders import ADMISSION_POLICY, claim, make_device, make_guest, make_node, node, update
from tests.contract.moves import GUEST, WORKLOAD, ask, ask_move, find, move
from tests.contract.stores import SQL_BACKENDS, StoreMaker
from tests.refusals import list_short, refusing
from tests.statements import count_statements

CHARGE = Amounts(2000, memory_mb=1024, disk_mb=10240)


def used(store: Store) -> tuple[int, int]:
    """Return the CPUs used on each host, one of which is reserved."""
    return node(store, "alpha").values.vcpus_used, node(store, "beta").values.vcpus_used


def cover(store: Store, agent: Any, guest: Guest, claim_uuid: str | None, **columns: Any) -> None:
    """Write what an audit writes that finds the guest of a claim."""
    record = node(store, agent.host)
    changed = make_guest(
        guest.name,
        vcpu_milli=guest.vcpu_milli,
        memory_mb=guest.memory_mb,
        disk_mb=guest.disk_mb,
        claim_uuid=claim_uuid,
        missing_since=columns.pop("missing_since", None),
    )
    if guest.uuid in record.guests:
        diff: ItemDiff[Guest] = ItemDiff(changed=(changed,))
    else:
        diff = ItemDiff(added=(changed,))
    assert not store.apply_changes(agent, [update(record, diff, **columns)], 60).conflicts


@pytest.fixture
def source(store: Store) -> Claim:
    """A claim on alpha, confirmed by its guest; beta is empty."""
    make_node(store, (GUEST,), CHARGE)
    make_node(store, host="beta")
    return claim(store, ask())


class TestBeginning:
    def test_one_commit_holds_both_sides_and_both_agents_see_it(
        self, store: Store, source: Claim
    ) -> None:
        before = node(store), node(store, "beta")
        migration = move(store, ask_move(source))
        dest = find(store, migration.dest_claim)
        assert (migration.status, migration.migration_type) == ("accepted", "migration")
        assert (migration.source_host, migration.source_node) == ("alpha", "node-1")
        assert (migration.dest_host, migration.dest_node) == ("beta", "node-1")
        assert (migration.source_claim, migration.workload_uuid) == (source.uuid, WORKLOAD)
        assert (dest.kind, dest.migration_uuid) == (ClaimKind.MOVE, migration.uuid)
        assert dest.state is ClaimState.HELD
        assert used(store) == (3, 3)
        for record, host in zip(before, ("alpha", "beta"), strict=True):
            after = node(store, host)
            assert after.generation == record.generation + 1
            (found,) = after.moves
            assert found.migration == migration
            assert (found.is_source_active, found.is_dest_active) == (True, True)
        assert store.list_migrations() == [migration]

    def test_it_has_the_name_of_its_workload(self, store: Store) -> None:
        make_node(store, host="alpha")
        make_node(store, host="beta")
        source = claim(store, ask({"name": "db-1"}))
        migration = move(store, ask_move(source))
        (listed,) = store.list_migrations()
        ended = store.confirm_migration(migration.uuid)
        assert {found.workload_name for found in (migration, listed, ended)} == {"db-1"}

    def test_on_one_node_the_destination_is_charged_in_addition_to_the_source(
        self, store: Store, source: Claim
    ) -> None:
        move(store, ask_move(source, "resize", resources={"VCPU": 4}), "alpha")
        assert used(store) == (7, 1)
        with refusing(VCPU=1):
            claim(store, ask(str(uuid.uuid4()), resources={"VCPU": 2}))

    def test_a_destination_that_does_not_fit_leaves_no_trace(
        self, store: Store, source: Claim
    ) -> None:
        before = node(store), node(store, "beta")
        with pytest.raises(ClaimRefusedError) as caught:
            move(store, ask_move(source, resources={"VCPU": 9, "MEMORY_MB": 9999}))
        assert list_short(caught.value) == {"VCPU": (7, 9), "MEMORY_MB": (7680, 9999)}
        assert (node(store), node(store, "beta")) == before
        assert store.list_migrations() == []

    def test_a_host_that_is_down_can_be_evacuated_but_is_no_destination(
        self, store: Store, source: Claim
    ) -> None:
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(forced_down=True))
        migration = move(store, ask_move(source, "evacuation"))
        assert store.confirm_migration(migration.uuid).status is MigrationStatus.DONE
        back = ask_move(find(store, migration.dest_claim))
        with pytest.raises(ClaimRefusedError, match="host alpha is down"):
            move(store, back, "alpha")

    @pytest.mark.parametrize(
        ("kind", "host", "reason"),
        [
            ("migration", "alpha", "node node-1 of host alpha already has the workload"),
            ("live-migration", "alpha", "already has the workload"),
            ("evacuation", "alpha", "already has the workload"),
            ("rebuild", "beta", "a rebuild must stay on node node-1 of host alpha"),
        ],
    )
    def test_each_type_restricts_its_destination(
        self, store: Store, source: Claim, kind: str, host: str, reason: str
    ) -> None:
        with pytest.raises(ClaimRefusedError, match=reason):
            move(store, ask_move(source, kind), host)

    def test_a_refusal_lists_every_reason(self, store: Store, source: Claim) -> None:
        store.abort_claim(source.uuid)
        other = str(uuid.uuid4())
        with pytest.raises(ClaimRefusedError) as caught:
            move(store, ask_move(source, workload=other, resources={"VCPU": 9}))
        assert caught.value.reasons[:2] == (
            f"claim {source.uuid} belongs to workload {WORKLOAD}",
            f"claim {source.uuid} is released (aborted)",
        )
        assert list_short(caught.value) == {"VCPU": (7, 9)}

    def test_a_missing_node_or_claim_is_named(self, store: Store, source: Claim) -> None:
        with pytest.raises(ClaimRefusedError, match="no such node: node-1 on host ghost"):
            move(store, ask_move(source), "ghost")
        ghost = str(uuid.uuid4())
        request = ask(migration={"type": "resize", "source_claim": ghost})
        with pytest.raises(ClaimRefusedError, match=f"no such claim: {ghost}"):
            move(store, request)
        with pytest.raises(RequestError, match="migration: is missing"):
            move(store, ask())
        with pytest.raises(RequestError, match="is only accepted when a migration is requested"):
            claim(store, ask_move(source), "beta")

    def test_a_claim_is_part_of_at_most_one_open_move(self, store: Store, source: Claim) -> None:
        first = move(store, ask_move(source))
        make_node(store, host="gamma")
        for side in (source.uuid, first.dest_claim):
            with pytest.raises(ClaimRefusedError, match=f"migration {first.uuid}, which is accept"):
                move(store, ask_move(find(store, side)), "gamma")
        second = claim(store, ask(), "gamma")
        make_node(store, host="delta")
        assert move(store, ask_move(second), "delta").dest_host == "delta"
        store.revert_migration(first.uuid)
        assert move(store, ask_move(source), "gamma").dest_host == "gamma"

    def test_the_same_request_returns_the_same_migration(self, store: Store, source: Claim) -> None:
        name = str(uuid.uuid4())
        migration = move(store, ask_move(source, uuid=name, resources={"VCPU": 7}))
        assert migration.dest_claim == name
        assert move(store, ask_move(source, uuid=name, resources={"VCPU": 7})) == migration
        assert used(store) == (3, 8)
        store.confirm_migration(migration.uuid)
        again = move(store, ask_move(source, uuid=name, resources={"VCPU": 7}))
        assert again.status is MigrationStatus.CONFIRMED
        with pytest.raises(ClaimConflictError, match=name):
            move(store, ask_move(source, uuid=name, resources={"VCPU": 6}))


class TestWorkload:
    """What a request for a move says of the workload, and what the source's claim does."""

    KNOWN: ClassVar[Any] = {
        "kind": "container", "name": "job", "project_id": "p1", "user_id": "u1",
    }  # fmt: skip

    @pytest.fixture
    def batch(self, store: Store) -> Claim:
        """A container's claim with fractions of a CPU on alpha; beta adds memory to instances."""
        make_node(store)
        make_node(store, host="beta", overhead_mb=512)
        return claim(store, ask(self.KNOWN, resources={"VCPU": 0.5}))

    @staticmethod
    def ask_move(source: Claim, **more: Any) -> Any:
        workload = {"uuid": source.workload.uuid} | more.pop("workload", {})
        resources = {"VCPU": 0.5, "MEMORY_MB": 1024, "DISK_GB": 10}
        wanted = {"type": "migration", "source_claim": source.uuid}
        body = {"workload": workload, "resources": resources, "migration": wanted} | more
        return parse_claim_request(body)

    def test_what_a_move_leaves_out_comes_from_the_source(self, store: Store, batch: Claim) -> None:
        name = str(uuid.uuid4())
        there = move(store, self.ask_move(batch, uuid=name))
        dest = find(store, there.dest_claim)
        assert dest.workload == batch.workload
        assert node(store, "beta").values.memory_mb_used == 512 + 1024  # without the overhead
        assert move(store, self.ask_move(batch, uuid=name)) == there
        with pytest.raises(ClaimConflictError, match=name):
            move(store, self.ask_move(batch, uuid=name, workload={"project_id": "p1"}))
        store.confirm_migration(there.uuid)
        back = move(store, self.ask_move(find(store, dest.uuid)), "alpha")
        assert find(store, back.dest_claim).workload == batch.workload

    def test_what_only_the_request_knows_is_kept(self, store: Store, source: Claim) -> None:
        workload = {**self.KNOWN, "kind": "instance"}
        dest = find(store, move(store, ask_move(source, workload=workload)).dest_claim)
        assert (dest.workload.project_id, dest.workload.user_id) == ("p1", "u1")

    def test_a_workload_may_have_another_name_than_its_claim(
        self, store: Store, batch: Claim
    ) -> None:
        renamed = self.ask_move(batch, workload={"name": "nightly"})
        assert find(store, move(store, renamed).dest_claim).workload.name == "nightly"

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"project_id": "p2"}, "workload.project_id: expected 'p1' as in claim {}, got 'p2'"),
            ({"user_id": "u2"}, "workload.user_id: expected 'u1' as in claim {}, got 'u2'"),
        ],
    )
    def test_a_contradiction_is_refused_with_both_values(
        self, store: Store, batch: Claim, more: Any, reason: str
    ) -> None:
        with pytest.raises(MoveSourceError) as caught:
            move(store, self.ask_move(batch, workload=more))
        assert caught.value.reasons == (reason.format(batch.uuid),)

    def test_so_is_another_kind(self, store: Store, batch: Claim) -> None:
        wrong = self.ask_move(batch, workload={"kind": "instance"}, resources={"MEMORY_MB": 1})
        with pytest.raises(MoveSourceError) as caught:
            move(store, wrong)
        assert caught.value.reasons == (
            f"workload.kind: expected 'container' as in claim {batch.uuid}, got 'instance'",
        )

    def test_an_instance_moves_with_whole_cpus(self, store: Store, source: Claim) -> None:
        with pytest.raises(MoveSourceError) as caught:
            move(store, self.ask_move(source))
        assert caught.value.reasons == (
            "resources.VCPU: expected a whole number for an instance, got 0.5",
        )


class TestEnding:
    def test_confirming_releases_the_source_and_keeps_the_destination(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source))
        before = node(store), node(store, "beta")
        ended = store.confirm_migration(migration.uuid)
        assert ended.status is MigrationStatus.CONFIRMED
        assert store.list_migrations(uuid=migration.uuid) == [ended]
        released, kept = find(store, source.uuid), find(store, migration.dest_claim)
        assert (released.state, released.reason) == (ClaimState.RELEASED, "moved")
        assert (kept.state, kept.expires_at) == (ClaimState.CONFIRMED, None)
        after = node(store), node(store, "beta")
        assert [r.generation for r in after] == [r.generation + 1 for r in before]
        assert [r.moves for r in after] == [(), ()]

    def test_a_guest_that_is_still_at_the_source_counts_as_unclaimed(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source, resources={"VCPU": 4}))
        store.confirm_migration(migration.uuid)
        assert node(store).guests[WORKLOAD].claim_uuid is None
        assert used(store) == (3, 5)

    def test_a_guest_that_left_the_source_is_no_longer_charged(self, store: Store) -> None:
        agent = make_node(store, (GUEST,), CHARGE)
        make_node(store, host="beta")
        held = claim(store, ask())
        migration = move(store, ask_move(held))
        cover(store, agent, GUEST, held.uuid, missing_since=store.now())
        store.confirm_migration(migration.uuid)
        assert node(store).guests == {}
        assert used(store) == (1, 3)

    def test_reverting_releases_the_destination_and_leaves_the_source(
        self, store: Store, source: Claim
    ) -> None:
        before = node(store), node(store, "beta")
        migration = move(store, ask_move(source))
        ended = store.revert_migration(migration.uuid)
        assert ended.status is MigrationStatus.REVERTED
        assert find(store, migration.dest_claim).reason == "reverted"
        assert find(store, source.uuid) == source
        after = node(store), node(store, "beta")
        assert [r.values for r in after] == [r.values for r in before]
        assert [r.generation for r in after] == [r.generation + 2 for r in before]

    @pytest.mark.parametrize(("is_confirmed", "left"), [(True, 4), (False, 2)])
    def test_on_one_node_the_remaining_claim_is_charged_and_has_the_guest(
        self, store: Store, source: Claim, is_confirmed: bool, left: int
    ) -> None:
        migration = move(store, ask_move(source, "resize", resources={"VCPU": 4}), "alpha")
        assert used(store) == (7, 1)
        end = store.confirm_migration if is_confirmed else store.revert_migration
        end(migration.uuid)
        kept = migration.dest_claim if is_confirmed else source.uuid
        record = node(store)
        assert (record.values.vcpus_used, list(record.claims)) == (1 + left, [kept])
        assert record.guests[WORKLOAD].claim_uuid == kept

    def test_on_a_full_cell_of_its_node_a_workload_gets_what_it_has(self, store: Store) -> None:
        def ask_cell(memory_mb: int, **more: Any) -> dict[str, Any]:
            return {"resources": {"VCPU": 1, "MEMORY_MB": memory_mb}, "numa": {"nodes": 1}} | more

        make_node(store)
        source = claim(store, ask(**ask_cell(1400)))
        for memory_mb in (3000, 1400):
            claim(store, ask(str(uuid.uuid4()), **ask_cell(memory_mb)))
        with pytest.raises(ClaimRefusedError, match="NUMA topology cannot fit"):
            move(store, ask_move(source, "resize", **ask_cell(1401)), "alpha")
        migration = move(store, ask_move(source, "resize", **ask_cell(1400)), "alpha")
        (dest,) = store.list_claims(uuid=migration.dest_claim)
        assert dest.numa == source.numa

    def test_both_guests_of_a_live_migration_have_the_claim_of_their_node(
        self, store: Store
    ) -> None:
        make_node(store, (GUEST,), CHARGE)
        beta = make_node(store, host="beta")
        held = claim(store, ask())
        migration = move(store, ask_move(held, "live-migration"))
        cover(store, beta, GUEST, migration.dest_claim)
        assert node(store).guests[WORKLOAD].claim_uuid == held.uuid
        store.revert_migration(migration.uuid)
        assert node(store, "beta").guests[WORKLOAD].claim_uuid is None
        assert used(store) == (3, 3)  # the guest at the destination counts by itself

    def test_ending_again_changes_nothing_and_the_other_end_is_refused(
        self, store: Store, source: Claim
    ) -> None:
        for end, other, status in (
            (store.revert_migration, store.confirm_migration, "reverted"),
            (store.confirm_migration, store.revert_migration, "confirmed"),
        ):
            migration = move(store, ask_move(source))
            ended = end(migration.uuid)
            after = node(store), node(store, "beta"), store.list_claims()
            assert end(migration.uuid) == ended
            with pytest.raises(RefusedError, match=f"migration {migration.uuid} is {status}"):
                other(migration.uuid)
            assert (node(store), node(store, "beta"), store.list_claims()) == after

    def test_either_end_needs_no_agent(self, store: Store, source: Claim) -> None:
        migrations = [move(store, ask_move(source))]
        for host in ("alpha", "beta"):
            store.set_service(host, COMPUTE_BINARY, ServiceChange(forced_down=True))
        store.revert_migration(migrations[0].uuid)
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(forced_down=False))
        migrations.append(move(store, ask_move(source)))
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(forced_down=True))
        store.confirm_migration(migrations[1].uuid)
        assert [m.status for m in store.list_migrations()] == ["reverted", "confirmed"]

    def test_a_missing_object_is_not_found(self, store: Store, source: Claim) -> None:
        calls: tuple[Callable[[str], Migration], ...] = (
            store.confirm_migration,
            store.revert_migration,
            lambda name: store.set_migration_status(name, MigrationStatus.ERROR),
        )
        for call in calls:
            with pytest.raises(NotFoundError, match="no such migration: ghost"):
                call("ghost")


class TestCellsAndDevices:
    """A pinned workload with a VF: each end returns the resources of the released side."""

    ALIAS = Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)
    ADMISSION_POLICY = AdmissionPolicy(60, 600, aliases={"nic": ALIAS})
    VFS = tuple(make_device(f"10000:81:00.{number}", numa_node=number - 1) for number in (1, 2))
    ASKED: ClassVar[dict[str, Any]] = {
        "resources": {"VCPU": 0, "PCPU": 1},
        "pci_requests": [{"alias": "nic"}],
    }

    @pytest.fixture
    def pinned(self, store: Store) -> Claim:
        make_node(store, devices=self.VFS)
        make_node(store, host="beta", devices=self.VFS)
        held = store.create_claim(ask(**self.ASKED), "alpha", "node-1", self.ADMISSION_POLICY)
        return store.confirm_claim(held.uuid)

    def move(self, store: Store, source: Claim, kind: str, host: str) -> Migration:
        request = ask_move(source, kind, **self.ASKED)
        return store.create_migration(request, host, "node-1", self.ADMISSION_POLICY)

    def taken(self, store: Store, host: str) -> tuple[int, dict[str, str | None], int]:
        """Return how many CPUs are pinned, the claim of each device in use, and how many are free."""
        record = node(store, host)
        pinned = [
            cpu for cell in record.values.numa_topology["cells"] for cpu in cell["pinned_cpus"]
        ]
        assert len(pinned) == record.values.pcpus_used
        devices = {
            device.status.value: device.claim_uuid
            for device in record.devices.values()
            if device.claim_uuid is not None
        }
        return len(pinned), devices, sum(pool["count"] for pool in record.values.pci_stats)

    def test_confirming_allocates_at_the_destination_and_frees_the_source(
        self, store: Store, pinned: Claim
    ) -> None:
        migration = self.move(store, pinned, "migration", "beta")
        dest = migration.dest_claim
        assert self.taken(store, "alpha") == (1, {"allocated": pinned.uuid}, 1)
        assert self.taken(store, "beta") == (1, {"claimed": dest}, 1)
        store.confirm_migration(migration.uuid)
        assert self.taken(store, "alpha") == (0, {}, 2)
        assert self.taken(store, "beta") == (1, {"allocated": dest}, 1)

    def test_reverting_frees_the_destination(self, store: Store, pinned: Claim) -> None:
        before = node(store, "beta")
        migration = self.move(store, pinned, "migration", "beta")
        store.revert_migration(migration.uuid)
        assert self.taken(store, "alpha") == (1, {"allocated": pinned.uuid}, 1)
        assert self.taken(store, "beta") == (0, {}, 2)
        assert node(store, "beta").devices == before.devices

    @pytest.mark.parametrize("is_confirmed", [True, False])
    def test_on_one_node_both_sides_hold_resources_until_the_end(
        self, store: Store, pinned: Claim, is_confirmed: bool
    ) -> None:
        migration = self.move(store, pinned, "resize", "alpha")
        dest = migration.dest_claim
        assert self.taken(store, "alpha") == (2, {"allocated": pinned.uuid, "claimed": dest}, 0)
        with pytest.raises(ClaimRefusedError, match="nic"):
            store.create_claim(
                ask(str(uuid.uuid4()), **self.ASKED), "alpha", "node-1", self.ADMISSION_POLICY
            )
        end = store.confirm_migration if is_confirmed else store.revert_migration
        end(migration.uuid)
        stays = dest if is_confirmed else pinned.uuid
        assert self.taken(store, "alpha") == (1, {"allocated": stays}, 1)
        (kept,) = (claim for claim in store.list_claims() if claim.is_active)
        assert kept.numa is not None
        pins = [cell["pinned_cpus"] for cell in node(store).values.numa_topology["cells"]]
        assert sorted(pins) == [[], list(kept.numa.cells[0].pins.values())]
        assert node(store).devices[kept.devices[0]].claim_uuid == stays

    def test_aborting_the_destination_frees_its_resources(
        self, store: Store, pinned: Claim
    ) -> None:
        migration = self.move(store, pinned, "migration", "beta")
        store.abort_claim(migration.dest_claim)
        assert self.taken(store, "beta") == (0, {}, 2)
        assert self.taken(store, "alpha") == (1, {"allocated": pinned.uuid}, 1)


class TestAborting:
    def test_aborting_the_destination_cancels_the_migration(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source))
        store.abort_claim(migration.dest_claim)
        (found,) = store.list_migrations()
        assert found.status is MigrationStatus.CANCELLED
        assert used(store) == (3, 1)
        for end in (store.confirm_migration, store.revert_migration):
            with pytest.raises(RefusedError, match="is cancelled"):
                end(migration.uuid)
        assert store.abort_claim(source.uuid).reason == "aborted"

    def test_the_source_of_a_running_migration_is_not_aborted(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source))
        before = node(store)
        with pytest.raises(RefusedError, match=f"source of migration {migration.uuid}"):
            store.abort_claim(source.uuid)
        assert node(store) == before
        store.confirm_migration(migration.uuid)
        assert store.abort_claim(source.uuid).reason == "moved"

    def test_a_confirmed_destination_is_an_ordinary_claim(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source))
        store.confirm_migration(migration.uuid)
        assert store.abort_claim(migration.dest_claim).reason == "aborted"
        assert store.list_migrations()[0].status is MigrationStatus.CONFIRMED


class TestStatus:
    def test_a_status_only_advances_to_an_error_or_an_end(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source))
        for status in (MigrationStatus.MIGRATING, MigrationStatus.FINISHED):
            assert store.set_migration_status(migration.uuid, status).status is status
            assert store.set_migration_status(migration.uuid, status).status is status
        for status in (MigrationStatus.PRE_MIGRATING, MigrationStatus.CONFIRMED):
            with pytest.raises(RefusedError, match=f"is finished and cannot become {status}"):
                store.set_migration_status(migration.uuid, status)
        store.set_migration_status(migration.uuid, MigrationStatus.ERROR)
        assert used(store) == (3, 3)
        assert store.revert_migration(migration.uuid).status is MigrationStatus.REVERTED
        with pytest.raises(RefusedError, match="is reverted"):
            store.set_migration_status(migration.uuid, MigrationStatus.ERROR)

    def test_migrations_are_listed_by_either_host_and_by_status(
        self, store: Store, source: Claim
    ) -> None:
        make_node(store, host="gamma")
        first = store.revert_migration(move(store, ask_move(source)).uuid)
        second = move(store, ask_move(source), "gamma")
        assert store.list_migrations() == [first, second]
        assert store.list_migrations("alpha") == [first, second]
        assert store.list_migrations("gamma") == [second]
        assert store.list_migrations(status=MigrationStatus.REVERTED) == [first]
        (alpha,) = store.list_services("alpha")
        store.rename_host("alpha", "omega", COMPUTE_BINARY, alpha)
        assert [m.source_host for m in store.list_migrations("omega")] == ["omega", "omega"]


class TestPurging:
    def test_a_claim_of_a_migration_is_purged_with_it(self, store: Store, source: Claim) -> None:
        migration = move(store, ask_move(source))
        store.abort_claim(
            store.create_claim(ask(str(uuid.uuid4())), "beta", "node-1", ADMISSION_POLICY).uuid
        )
        later = store.now() + timedelta(seconds=1)
        assert store.purge(later, ("migrations",), is_part=True) == {"migrations": 0}
        assert store.purge(later, ("migrations", "claims"), is_part=True) == {
            "migrations": 0,
            "claims": 1,
        }
        store.confirm_migration(migration.uuid)
        assert counted(store.purge(store.now() - timedelta(days=1))) == (0, 0)
        assert counted(store.purge(store.now() + timedelta(seconds=1))) == (1, 1)
        assert [found.uuid for found in store.list_claims()] == [migration.dest_claim]
        assert store.list_migrations() == []


def counted(deleted: Mapping[str, int]) -> tuple[int, int]:
    return deleted["migrations"], deleted["claims"]


class TestSplitBrains:
    def test_claims_on_two_nodes_without_an_open_migration_are_reported_on_both(
        self, store: Store, source: Claim
    ) -> None:
        migration = move(store, ask_move(source))
        assert store.list_split_brains("alpha") == []
        store.revert_migration(migration.uuid)
        other = claim(store, ask(), "beta")
        assert store.list_split_brains("alpha") == [
            SplitBrain("node-1", WORKLOAD, "beta", "node-1")
        ]
        assert store.list_split_brains("beta") == [
            SplitBrain("node-1", WORKLOAD, "alpha", "node-1")
        ]
        store.abort_claim(other.uuid)
        assert store.list_split_brains("alpha") == store.list_split_brains("beta") == []

    def test_a_claim_on_a_third_node_is_reported_with_both_ends_of_an_open_migration(
        self, store: Store, source: Claim
    ) -> None:
        make_node(store, host="gamma")
        move(store, ask_move(source))
        claim(store, ask(), "gamma")
        found = {host: store.list_split_brains(host) for host in ("alpha", "beta", "gamma")}
        gamma = SplitBrain("node-1", WORKLOAD, "gamma", "node-1")
        assert found == {
            "alpha": [gamma],
            "beta": [gamma],
            "gamma": [SplitBrain("node-1", WORKLOAD, host, "node-1") for host in ("alpha", "beta")],
        }

    def test_other_workloads_and_their_migrations_do_not_matter(
        self, store: Store, source: Claim
    ) -> None:
        make_node(store, (GUEST,), CHARGE, host="gamma")
        move(store, ask_move(claim(store, ask(str(uuid.uuid4())), "beta")), "alpha")
        assert store.list_split_brains("alpha") == store.list_split_brains("beta") == []
        running = [SplitBrain("node-1", WORKLOAD, source.host, "node-1", is_claimed=False)]
        assert store.list_split_brains("gamma") == running

    @pytest.mark.parametrize(
        ("changes", "is_reported"),
        [({}, True), ({"power_state": PowerState.SHUTDOWN}, False)],
        ids=["running", "off"],
    )
    def test_a_guest_that_runs_on_another_node_than_its_claim_is_reported_there(
        self, store: Store, source: Claim, changes: dict[str, Any], is_reported: bool
    ) -> None:
        found = dataclasses.replace(GUEST, **changes)
        make_node(store, (found,), CHARGE, host="gamma")
        expected = [SplitBrain("node-1", WORKLOAD, "alpha", "node-1", is_claimed=False)]
        assert store.list_split_brains("gamma") == (expected if is_reported else [])
        assert store.list_split_brains("alpha") == store.list_split_brains("beta") == []
        migration = move(store, ask_move(source))
        assert store.list_split_brains("gamma") == []
        store.revert_migration(migration.uuid)
        assert store.list_split_brains("gamma") == (expected if is_reported else [])


class TestAudits:
    def test_an_error_that_an_audit_found_is_written_unless_the_migration_has_ended(
        self, store: Store
    ) -> None:
        alpha = make_node(store)
        make_node(store, host="beta")
        held = claim(store, ask())
        for is_ended in (False, True):
            migration = move(store, ask_move(held))
            record = node(store)
            error = dataclasses.replace(migration, status=MigrationStatus.ERROR)
            if is_ended:
                store.abort_claim(migration.dest_claim)
            change = dataclasses.replace(
                update(record), moves=(dataclasses.replace(record.moves[0], migration=error),)
            )
            result = store.apply_changes(alpha, [change], 60)
            (found,) = store.list_migrations(uuid=migration.uuid)
            if is_ended:
                assert result.conflicts == ("node-1",)
                assert found.status is MigrationStatus.CANCELLED
            else:
                assert found.status is MigrationStatus.ERROR
                assert result.records == {"node-1": node(store)}
                store.revert_migration(migration.uuid)

    def test_an_expired_destination_is_reverted_for_good_and_not_confirmed(
        self, store: Store
    ) -> None:
        make_node(store)
        beta = make_node(store, host="beta")
        migration = move(store, ask_move(claim(store, ask())))
        record = node(store, "beta")
        expired = dataclasses.replace(
            record.claims[migration.dest_claim], state=ClaimState.RELEASED, reason="expired"
        )
        error = dataclasses.replace(
            record.moves[0],
            migration=dataclasses.replace(migration, status=MigrationStatus.ERROR),
            is_dest_active=False,
        )
        change = dataclasses.replace(
            update(record, vcpus_used=1, cpu_used=0.0), claims=(expired,), moves=(error,)
        )
        result = store.apply_changes(beta, [change], 60)
        assert result.records == {"node-1": node(store, "beta")}
        with pytest.raises(RefusedError, match=r"is released \(expired\); revert it"):
            store.confirm_migration(migration.uuid)
        store.revert_migration(migration.uuid)
        assert find(store, migration.dest_claim).reason == "reverted"
        assert node(store, "beta").claims == {}
        assert node(store, "beta").values.vcpus_used == 1

    def test_a_move_whose_destination_s_node_was_deleted_is_reverted(self, store: Store) -> None:
        make_node(store)
        beta = make_node(store, host="beta")
        migration = move(store, ask_move(claim(store, ask())))
        record = node(store, "beta")
        expired = dataclasses.replace(
            record.claims[migration.dest_claim], state=ClaimState.RELEASED, reason="expired"
        )
        change = update(record, vcpus_used=1, cpu_used=0.0)
        store.apply_changes(beta, [dataclasses.replace(change, claims=(expired,))], 60)
        store.delete_node("beta", "node-1")
        with pytest.raises(RefusedError, match="its destination claim .* no longer exists"):
            store.confirm_migration(migration.uuid)
        ended = store.revert_migration(migration.uuid)
        assert (ended.status, ended.dest_host) == (MigrationStatus.REVERTED, "beta")
        assert store.list_migrations() == [ended]
        assert find(store, migration.source_claim).is_active


class TestMeeting:
    def test_one_of_a_concurrent_confirm_and_abort_prevails(self, stores: StoreMaker) -> None:
        store = stores.open()
        make_node(store, (GUEST,), CHARGE)
        make_node(store, host="beta")
        held = claim(store, ask())
        for _ in range(4):
            migration = move(store, ask_move(held))
            calls = (
                lambda m=migration: stores.open().confirm_migration(m.uuid).status,
                lambda m=migration: stores.open().abort_claim(m.dest_claim).reason,
            )
            answers = at_once(*calls)
            (found,) = store.list_migrations(uuid=migration.uuid)
            if (
                found.status is MigrationStatus.CONFIRMED
            ):  # and the destination was aborted afterwards
                assert answers == ["confirmed", "aborted"]
                assert used(store) == (3, 1)
                held = claim(store, ask())
            else:
                assert found.status is MigrationStatus.CANCELLED
                assert answers[1] == "aborted"
                assert isinstance(answers[0], RefusedError)
                assert used(store) == (3, 1)

    def test_two_concurrent_confirmations_agree(self, stores: StoreMaker) -> None:
        store = stores.open()
        make_node(store, (GUEST,), CHARGE)
        make_node(store, host="beta")
        migration = move(store, ask_move(claim(store, ask())))
        calls = [lambda: stores.open().confirm_migration(migration.uuid)] * 4
        first, *others = at_once(*calls)
        assert others == [first] * 3
        assert used(store) == (3, 3)
        assert node(store, "beta").generation == 3

    def test_concurrent_confirm_and_revert_leave_one_claim(self, stores: StoreMaker) -> None:
        store = stores.open()
        make_node(store)
        make_node(store, host="beta")
        migration = move(store, ask_move(claim(store, ask())))
        answers = at_once(
            lambda: stores.open().confirm_migration(migration.uuid),
            lambda: stores.open().revert_migration(migration.uuid),
        )
        assert sum(isinstance(answer, RefusedError) for answer in answers) == 1
        assert sum(c.is_active for c in store.list_claims()) == 1
        assert sum(used(store)) == 4

    def test_concurrent_identical_requests_are_granted_once(self, stores: StoreMaker) -> None:
        store = stores.open()
        make_node(store)
        make_node(store, host="beta")
        held, name = claim(store, ask()), str(uuid.uuid4())
        calls = [lambda: move(stores.open(), ask_move(held, uuid=name))] * 4
        first, *others = at_once(*calls)
        assert others == [first] * 3
        assert used(store) == (3, 3)

    def test_eight_concurrent_moves_in_both_directions_neither_deadlock_nor_lose_usage(
        self, stores: StoreMaker
    ) -> None:
        store = stores.open()
        make_node(store)
        make_node(store, host="beta")
        tiny = {"VCPU": 0, "MEMORY_MB": 10, "DISK_GB": 1}

        def carry(number: int) -> None:
            mine = stores.open()
            here, there = ("alpha", "beta") if number % 2 else ("beta", "alpha")
            held = claim(mine, ask(str(uuid.uuid4()), resources=tiny), here)
            for turn in range(4):
                migration = move(mine, ask_move(held, resources=tiny), there)
                if turn % 2:
                    mine.revert_migration(migration.uuid)
                else:
                    mine.confirm_migration(migration.uuid)
                    held = find(mine, migration.dest_claim)
                    here, there = there, here

        answers = at_once(*[lambda number=number: carry(number) for number in range(8)])
        assert answers == [None] * 8
        memory = [node(store, host).values.memory_mb_used for host in ("alpha", "beta")]
        assert sum(memory) == 2 * 512 + 8 * 10
        for host in ("alpha", "beta"):
            record = node(store, host)
            assert record.values.memory_mb_used == 512 + 10 * len(record.claims)
            assert record.moves == ()


def at_once(*calls: Any) -> list[Any]:
    """Call everything in separate threads; return what each returned or raised."""

    def answer(call: Any) -> Any:
        try:
            return call()
        except RefusedError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(answer, calls))


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize("guests", [0, 100])
def test_statements_are_bounded_however_many_guests_there_are(store: SqlStore, guests: int) -> None:
    below = tuple(make_guest(f"guest-{number}") for number in range(guests))
    make_node(store, (GUEST, *below), CHARGE)
    make_node(store, below, host="beta")
    held = claim(store, ask())
    with count_statements(store) as began:
        migration = move(store, ask_move(held))
    with count_statements(store) as read:
        store.load_nodes("alpha")
    with count_statements(store) as ended:
        store.confirm_migration(migration.uuid)
    with count_statements(store) as again:
        store.confirm_migration(migration.uuid)
    # The remaining guest is charged like its claim: usage does not change at the end.
    assert (len(began), len(read), len(ended), len(again)) == (10, 5, 11, 5)


def test_a_destination_without_heartbeats_refuses(store: Store, source: Claim) -> None:
    silent = AdmissionPolicy(service_down_time=-1, claim_timeout=600)
    with pytest.raises(ClaimRefusedError, match="host beta is down"):
        store.create_migration(ask_move(source), "beta", "node-1", silent)


@pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)
def test_a_move_waits_for_no_node_but_its_own_two(store: SqlStore, rival: sa.Connection) -> None:
    nodes = tables.compute_nodes.c
    for host in ("alpha", "beta", "gamma"):
        make_node(store, host=host)
    source = claim(store, ask())
    rival.execute(sa.select(nodes.id).where(nodes.host == "gamma").with_for_update())
    for end in (store.revert_migration, store.confirm_migration):
        end(move(store, ask_move(source)).uuid)
