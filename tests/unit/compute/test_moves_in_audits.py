"""Moves as audits see them: guests that come and go, expiry, agents that start again, quarantine."""

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.compute.host_rows import FULL_LOAD_SECONDS
from nodetracker.db.schema.tables import claims
from nodetracker.model.audit import EventKind, NodeEvent
from nodetracker.model.claim import ClaimState, MigrationStatus
from nodetracker.model.service import AuditState
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AdmissionPolicy
from tests.stores import SqliteStore
from tests.unit.compute.tracked_host import ClockTimer, TrackedHost, guest, node

ADMISSION_POLICY = AdmissionPolicy(service_down_time=10**9, claim_timeout=600)
UUID = guest(1)["uuid"]


class TwoHosts:
    """Two hosts of one node each, the workload on the first of them."""

    def __init__(self, clock, tmp_path):
        self.clock = clock
        self.store = SqliteStore(clock.now)
        self.paths = {host: tmp_path / f"{host}.yaml" for host in ("alpha", "beta")}
        self.agents = {}
        self.queues = {}
        for number, host in enumerate(self.paths, 1):
            self.restart(host)
            self.store.report_state(self.agents[host].key, 1, AuditState())
            self.agents[host].audit(node(number))
        self.source = self.store.create_claim(self.ask(), "alpha", "node-1", ADMISSION_POLICY)
        self.alpha(guest(1))

    def restart(self, host):
        """Restart a host's agent: it remembers nothing."""
        path = self.paths[host]
        if not path.exists():
            path.write_text("nodes: []")
        number = list(self.paths).index(host)
        agent_id = f"00000000-0000-4000-9000-{number:012d}"
        self.queues[host] = AuditQueue(ClockTimer(self.clock))
        self.agents[host] = TrackedHost(
            self.store, path, self.clock, host=host, agent_id=agent_id, queue=self.queues[host]
        )

    def ask(self, **more):
        return parse_claim_request({"workload": {"uuid": UUID}, "resources": {"VCPU": 2}} | more)

    def move(self, host="beta", kind="migration", **more):
        migration = {"type": kind, "source_claim": self.source.uuid}
        name = {"alpha": "node-1", "beta": "node-2"}[host]
        return self.store.create_migration(
            self.ask(migration=migration, **more), host, name, ADMISSION_POLICY
        )

    def alpha(self, *guests):
        return self.agents["alpha"].audit(node(1, *guests))

    def beta(self, *guests):
        return self.agents["beta"].audit(node(2, *guests))

    def find(self, uuid):
        (found,) = self.store.list_claims(uuid=uuid)
        return found

    def status(self, migration):
        (found,) = self.store.list_migrations(uuid=migration.uuid)
        return found.status

    @property
    def used(self):
        return tuple(
            record.values.vcpus_used
            for host in self.paths
            for record in self.store.load_nodes(host)
        )

    def warnings(self, host, kind=WarningKind.MIGRATION_ERROR):
        return [
            record.warning.message
            for record in self.store.list_warnings(host)
            if record.warning.kind is kind and record.resolved_at is None
        ]


@pytest.fixture
def two_hosts(clock, tmp_path):
    return TwoHosts(clock, tmp_path)


def test_a_live_migration_from_start_to_end(two_hosts):
    migration = two_hosts.move(kind="live-migration")
    assert two_hosts.used == (2, 2)
    two_hosts.beta(guest(1))
    assert two_hosts.find(migration.dest_claim).state is ClaimState.CONFIRMED
    assert two_hosts.alpha(guest(1)).warnings == ()
    assert two_hosts.used == (2, 2)
    two_hosts.store.confirm_migration(migration.uuid)
    assert two_hosts.used == (2, 2)  # the source's guest counts by itself
    two_hosts.alpha()
    assert two_hosts.used == (0, 2)
    assert two_hosts.alpha().changes == two_hosts.beta(guest(1)).changes == ()


def test_a_guest_that_left_for_its_destination_has_not_vanished(two_hosts):
    migration = two_hosts.move()
    for _ in range(4):
        two_hosts.alpha()
    assert two_hosts.warnings("alpha", WarningKind.GUEST_VANISHED) == []
    assert two_hosts.used == (2, 2)
    two_hosts.store.confirm_migration(migration.uuid)
    assert two_hosts.used == (0, 2)
    two_hosts.alpha()
    assert two_hosts.used == (0, 2)


def test_the_host_that_changed_last_sees_a_split_brain_until_it_ends(two_hosts):
    two_hosts.beta(guest(1, name="web"))
    two_hosts.beta(guest(1, name="web"))
    (message,) = two_hosts.warnings("beta", WarningKind.SPLIT_BRAIN)
    assert "workload web runs here without a claim" in message
    two_hosts.store.abort_claim(two_hosts.source.uuid)
    two_hosts.beta()
    assert two_hosts.warnings("beta", WarningKind.SPLIT_BRAIN) == []


def test_a_claim_that_makes_a_split_brain_is_seen_by_the_host_it_is_on(two_hosts):
    two_hosts.store.create_claim(two_hosts.ask(), "beta", "node-2", ADMISSION_POLICY)
    two_hosts.agents["beta"].tracker.audit_nodes(two_hosts.agents["beta"].key, ["node-2"])
    two_hosts.beta()
    (message,) = two_hosts.warnings("beta", WarningKind.SPLIT_BRAIN)
    assert "another on node node-1 of host alpha" in message


def test_a_guest_that_was_undefined_at_the_source_of_a_move_keeps_its_claim(two_hosts):
    migration = two_hosts.move()
    two_hosts.clock.seconds += 1
    two_hosts.queues["alpha"].put_event(NodeEvent("node-1", EventKind.GONE, UUID))
    two_hosts.alpha()
    assert two_hosts.status(migration) is MigrationStatus.ACCEPTED
    two_hosts.store.revert_migration(migration.uuid)
    two_hosts.alpha()  # before it is defined there again
    assert two_hosts.find(two_hosts.source.uuid).state is ClaimState.CONFIRMED


def test_a_resize_on_one_node_keeps_both_amounts_over_audits(two_hosts):
    migration = two_hosts.move("alpha", "resize", resources={"VCPU": 4})
    for _ in range(2):
        two_hosts.alpha(guest(1))
        assert two_hosts.used == (6, 0)
    two_hosts.store.revert_migration(migration.uuid)
    two_hosts.alpha(guest(1))
    assert two_hosts.used == (2, 0)
    assert two_hosts.alpha(guest(1)).changes == ()


@pytest.mark.parametrize("step", ["held", "seen", "confirmed", "reverted"])
def test_agents_that_were_killed_between_steps_recover(two_hosts, step):
    migration = two_hosts.move(resources={"VCPU": 4})
    at_beta = [guest(1)] if step in ("seen", "confirmed") else []
    if step == "seen":
        two_hosts.beta(guest(1))
    for host in two_hosts.paths:
        two_hosts.restart(host)
    if step == "confirmed":
        two_hosts.store.confirm_migration(migration.uuid)
    if step == "reverted":
        two_hosts.store.revert_migration(migration.uuid)
    two_hosts.alpha(*([] if step == "confirmed" else [guest(1)]))
    two_hosts.beta(*at_beta)
    expected = {"held": (2, 4), "seen": (2, 4), "confirmed": (0, 4), "reverted": (2, 0)}
    assert two_hosts.used == expected[step]
    assert two_hosts.alpha(*([] if step == "confirmed" else [guest(1)])).changes == ()
    assert two_hosts.beta(*at_beta).changes == ()
    assert two_hosts.warnings("alpha") == two_hosts.warnings("beta") == []


class TestErrors:
    def test_a_destination_that_expires_makes_its_migration_an_error(self, two_hosts, clock):
        migration = two_hosts.move()
        clock.seconds += 700
        report = two_hosts.beta()
        assert two_hosts.find(migration.dest_claim).reason == "expired"
        assert two_hosts.status(migration) is MigrationStatus.ERROR
        assert report.is_good
        assert two_hosts.used == (2, 0)
        (warning,) = two_hosts.warnings("beta")
        assert f"destination claim {migration.dest_claim} is no longer active" in warning
        assert two_hosts.beta().changes == ()
        two_hosts.store.revert_migration(migration.uuid)
        two_hosts.beta()
        assert two_hosts.warnings("beta") == []

    def test_a_late_guest_brings_the_destination_back_until_it_is_reverted(self, two_hosts, clock):
        migration = two_hosts.move()
        clock.seconds += 700
        two_hosts.beta()
        two_hosts.beta(guest(1))
        assert two_hosts.find(migration.dest_claim).state is ClaimState.CONFIRMED
        (warning,) = two_hosts.warnings("beta")
        assert "both of its claims are active" in warning
        assert two_hosts.beta(guest(1)).changes == ()
        two_hosts.store.confirm_migration(migration.uuid)
        two_hosts.alpha()
        two_hosts.beta(guest(1))
        assert two_hosts.used == (0, 2)
        assert two_hosts.warnings("beta") == two_hosts.warnings("alpha") == []

    def test_a_late_guest_of_a_reverted_move_is_unclaimed(self, two_hosts, clock):
        migration = two_hosts.move(resources={"VCPU": 4})
        clock.seconds += 700
        two_hosts.beta()
        two_hosts.store.revert_migration(migration.uuid)
        two_hosts.beta(guest(1))
        assert two_hosts.find(migration.dest_claim).reason == "reverted"
        assert two_hosts.used == (2, 2)

    @pytest.mark.parametrize("side", ["source", "dest"])
    @pytest.mark.parametrize("damage", ["released", "missing"])
    def test_claims_that_contradict_a_migration_quarantine_it(self, two_hosts, clock, side, damage):
        migration = two_hosts.move()
        two_hosts.store.confirm_claim(migration.dest_claim)
        uuid = migration.source_claim if side == "source" else migration.dest_claim
        spoil(two_hosts.store, uuid, damage)
        clock.seconds += FULL_LOAD_SECONDS
        reports = two_hosts.alpha(guest(1)), two_hosts.beta()
        assert [report.is_good for report in reports] == [True, True]
        assert two_hosts.status(migration) is MigrationStatus.ERROR
        warnings = two_hosts.warnings("alpha") + two_hosts.warnings("beta")
        assert warnings
        assert all(uuid in line for line in warnings)
        for path in two_hosts.paths:
            two_hosts.restart(path)
        assert two_hosts.alpha(guest(1)).is_good
        assert two_hosts.beta().is_good
        if side == "dest":
            two_hosts.store.revert_migration(migration.uuid)
        else:
            two_hosts.store.confirm_migration(migration.uuid)
        two_hosts.alpha(guest(1))
        two_hosts.beta()
        assert two_hosts.warnings("alpha") == two_hosts.warnings("beta") == []
        assert two_hosts.used == ((2, 0) if side == "dest" else (2, 2))

    def test_a_migration_without_its_source_is_not_reverted(self, two_hosts, clock):
        migration = two_hosts.move()
        spoil(two_hosts.store, migration.source_claim, "released")
        with pytest.raises(Exception, match=r"released \(aborted\); confirm it, or abort"):
            two_hosts.store.revert_migration(migration.uuid)
        two_hosts.store.abort_claim(migration.dest_claim)
        assert two_hosts.status(migration) is MigrationStatus.CANCELLED


def spoil(store, uuid, damage):
    """Change a claim as no call of the store would."""
    of_claim = claims.c.uuid == uuid
    released = {"state": ClaimState.RELEASED.value, "reason": "aborted"}
    with store.engine.begin() as connection:
        if damage == "missing":
            connection.execute(sa.delete(claims).where(of_claim))
        else:
            connection.execute(sa.update(claims).where(of_claim).values(released))
