"""A machine of random moves, on any store."""

import dataclasses
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.claim import MigrationStatus, MigrationType
from nodetracker.model.errors import ClaimRefusedError, RefusedError
from nodetracker.model.fact import fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.host import CpuInfo, Filesystem, MemoryInfo, StorageInfo
from nodetracker.model.node import NodeListing
from nodetracker.model.settings import AllocationRatios, Policy
from nodetracker.ports import AdmissionPolicy
from tests.builders import make_guest, make_snapshot
from tests.oracle import COUNTING, check_usage
from tests.settled import check_settled
from tests.stores import SqliteStore
from tests.unit.ledger.agent_machine import HOST, AgentMachine

NODES = ("node-1", "node-2")
ADMISSION_POLICY = AdmissionPolicy(service_down_time=10**9, claim_timeout=600)
POLICY = Policy(
    reserved_cpus=0,
    reserved_memory_mb=0,
    reserved_disk_mb=0,
    configured_ratios=AllocationRatios(1.0, 1.0, 1.0),
    held_fact_expiry=10**9,
)
CPUS = 8
GUESTS = {number: make_guest(number, vcpu_milli=2000, memory_mb=512) for number in (1, 2, 3)}
OPEN = frozenset({"accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"})
ENDED = frozenset({"confirmed", "done", "reverted", "cancelled"})
numbers = st.sampled_from(sorted(GUESTS))
nodes = st.sampled_from(NODES)
picks = st.integers(0, 10**6)


class StubDriver:
    """Two nodes with the guests that a test places on them."""

    capabilities = frozenset()

    def __init__(self):
        self.running = {name: set() for name in NODES}

    def get_available_nodes(self):
        return NodeListing(NODES)

    def get_available_resource(self, nodename):
        guests = tuple(GUESTS[number] for number in sorted(self.running[nodename]))
        return dataclasses.replace(
            make_snapshot(
                nodename,
                cpu=fresh(
                    "test",
                    CpuInfo(online=frozenset(range(CPUS)), cores=CPUS, architecture="x86_64"),
                ),
                memory=fresh("test", MemoryInfo(65536, 65536)),
                storage=fresh("test", StorageInfo(Filesystem("/srv", 61440, 0, 61440))),
            ),
            guests=fresh("test", GuestListing(guests)),
        )


class MoveMachine(AgentMachine):
    """Workloads are claimed and moved while guests appear and vanish and agents restart."""

    def __init__(self, open_store=SqliteStore):
        super().__init__(open_store)
        self.driver = StubDriver()
        self.last_uuid = 0
        self.restart()
        self.audit()

    def make_uuid(self):
        self.last_uuid += 1
        return str(UUID(int=self.last_uuid))

    def claims(self):
        return {claim.uuid: claim for claim in self.store.list_claims()}

    def migrations(self):
        return self.store.list_migrations()

    def state(self):
        return self.store.load_nodes(HOST), self.store.list_claims(), self.migrations()

    def counting(self, uuid):
        claim = self.claims().get(uuid)
        return claim is not None and claim.state.value in COUNTING

    # Callers.

    @rule(number=numbers, node=nodes, cpus=st.integers(1, 5))
    def claim(self, number, node, cpus):
        body = {"workload": {"uuid": GUESTS[number].uuid}, "resources": {"VCPU": cpus}}
        request = parse_claim_request(body, self.make_uuid)
        self.grant(lambda: self.store.create_claim(request, HOST, node, ADMISSION_POLICY))

    @precondition(lambda self: self.claims())
    @rule(
        pick=picks,
        node=nodes,
        cpus=st.integers(1, 5),
        kind=st.sampled_from([kind.value for kind in MigrationType]),
    )
    def move(self, pick, node, cpus, kind):
        source = sorted(self.claims().values(), key=lambda claim: claim.uuid)
        source = source[pick % len(source)]
        body = {
            "workload": {"uuid": source.workload.uuid},
            "resources": {"VCPU": cpus},
            "migration": {"type": kind, "source_claim": source.uuid},
        }
        taken = {
            uuid
            for migration in self.migrations()
            if migration.status.value in OPEN
            for uuid in (migration.source_claim, migration.dest_claim)
        }
        request = parse_claim_request(body, self.make_uuid)
        made = self.grant(
            lambda: self.store.create_migration(request, HOST, node, ADMISSION_POLICY)
        )
        if made is not None:
            assert source.state.value in COUNTING
            assert source.uuid not in taken
            assert self.claims()[made.dest_claim].nodename == node

    def grant(self, ask):
        """Return what was granted, None when it was refused; only claims fill a node."""
        before = self.state()
        try:
            granted = ask()
        except ClaimRefusedError:
            assert self.state() == before
            return None
        for record in self.store.load_nodes(HOST):
            grown = record.values.vcpus_used > next(
                old.values.vcpus_used for old in before[0] if old.id == record.id
            )
            assert not grown or record.values.vcpus_used <= CPUS
        return granted

    @precondition(lambda self: self.migrations())
    @rule(pick=picks, end=st.sampled_from(["confirm", "revert"]))
    def end(self, pick, end):
        migration = self.migrations()[pick % len(self.migrations())]
        before = self.state()
        source, dest = migration.source_claim, migration.dest_claim
        call = self.store.confirm_migration if end == "confirm" else self.store.revert_migration
        had_dest, had_source = self.counting(dest), self.counting(source)
        try:
            ended = call(migration.uuid)
        except RefusedError:
            assert self.state() == before
            return
        if migration.status.value in ENDED:
            assert (ended, self.state()) == (migration, before)
        elif end == "confirm":
            assert had_dest
            assert (self.counting(source), self.counting(dest)) == (False, True)
        else:
            assert had_source or not had_dest
            assert (self.counting(source), self.counting(dest)) == (had_source, False)
        assert call(migration.uuid) == ended

    @precondition(lambda self: self.migrations())
    @rule(pick=picks, status=st.sampled_from(list(MigrationStatus)))
    def set_status(self, pick, status):
        migration = self.migrations()[pick % len(self.migrations())]
        claims = self.store.list_claims()
        try:
            self.store.set_migration_status(migration.uuid, status)
            assert status.value in OPEN or migration.status is status
        except RefusedError:
            pass
        assert self.store.list_claims() == claims

    @precondition(lambda self: self.claims())
    @rule(pick=picks)
    def abort(self, pick):
        uuid = sorted(self.claims())[pick % len(self.claims())]
        before = self.state()
        is_source = self.counting(uuid) and any(
            migration.source_claim == uuid and migration.status.value in OPEN - {"error"}
            for migration in self.migrations()
        )
        try:
            self.store.abort_claim(uuid)
            assert not is_source
            assert not self.counting(uuid)
        except RefusedError:
            assert is_source
            assert self.state() == before

    # Guests, time and the agent.

    @rule(number=numbers, node=nodes)
    def guest_comes(self, number, node):
        self.driver.running[node].add(number)

    @rule(number=numbers, node=nodes)
    def guest_goes(self, number, node):
        self.driver.running[node].discard(number)

    @rule(seconds=st.sampled_from([1, 599, 700]))
    def wait(self, seconds):
        self.seconds += seconds

    @rule()
    def restart(self):
        self.start_agent(self.driver, POLICY)
        check_settled(self.tracker)

    @rule()
    def audit(self):
        report = self.tracker.audit(self.key)
        assert report.is_good, report.errors
        for record in self.store.load_nodes(HOST):
            listed = {GUESTS[number].uuid for number in self.driver.running[record.nodename]}
            assert listed <= record.guests.keys()

    # Invariants.

    @invariant()
    def usage_is_what_there_is(self):
        check_usage(self.store, HOST)

    @invariant()
    def each_migration_has_the_claims_of_its_status(self):
        claims = self.claims()
        in_open = []
        for migration in self.migrations():
            assert {migration.source_claim, migration.dest_claim} <= claims.keys()
            if migration.status.value in OPEN:
                in_open += [migration.source_claim, migration.dest_claim]
            elif migration.status.value in ("reverted", "cancelled"):
                assert not self.counting(migration.dest_claim)
            else:
                assert not self.counting(migration.source_claim)
        assert len(in_open) == len(set(in_open))
