"""In any order of events a deleted guest releases its claims, and no claim that is newer."""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.model.audit import EventKind, NodeEvent
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.fact import fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.node import NodeListing
from nodetracker.model.settings import Policy
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.clock import Timer
from tests.builders import ask, make_guest, make_snapshot
from tests.settled import check_settled
from tests.stores import SqliteStore
from tests.unit.ledger.agent_machine import HOST, AgentMachine

TIMEOUT = 600
GUEST = make_guest(1)

steps = st.lists(st.sampled_from(["define", "delete", "claim", "confirm"]), max_size=3)
claim_steps = st.lists(st.sampled_from(["claim", "confirm"]), max_size=2)


class SteppingDriver:
    """One node with or without the guest; steps run before and after it is listed."""

    capabilities = frozenset()

    def __init__(self, machine):
        self.machine = machine
        self.before = self.after = ()
        self.unreadable = ()

    def get_available_nodes(self):
        return NodeListing(("node-1",))

    def get_available_resource(self, nodename):
        self.machine.run(self.before)
        guests = (GUEST,) if self.machine.is_defined else ()
        snapshot = make_snapshot(
            nodename, guests=fresh("test", GuestListing(guests, self.unreadable))
        )
        self.machine.run(self.after)
        return snapshot


class SteppingStore:
    """A store of which steps run before the changes of an audit are applied."""

    def __init__(self, machine, store):
        self.machine = machine
        self.store = store
        self.steps = ()

    def __getattr__(self, name):
        return getattr(self.store, name)

    def apply_changes(self, *arguments):
        steps, self.steps = self.steps, ()
        self.machine.run(steps)
        return self.store.apply_changes(*arguments)


class SteadyQueue(AuditQueue):
    """Leaves events to the next audit, so that one reads its node once, whatever threads do."""

    def take(self, until, is_wanted):
        return super().take(until, lambda *_: False)


class MachineTimer(Timer):
    def __init__(self, machine):
        self.now = lambda: machine.seconds


class DeletionMachine(AgentMachine):
    """A guest that comes and goes, claims for it, and an agent that audits and restarts."""

    def __init__(self, open_store=SqliteStore):
        super().__init__(open_store)
        self.store = SteppingStore(self, self.store)
        self.driver = SteppingDriver(self)
        self.is_defined = False
        self.deleted_at = None  # since its last definition
        self.is_known = False  # to the agent that runs
        self.released = set()
        self.restart()
        self.audit(before=(), after=(), at_write=())

    def run(self, names):
        for name in names:
            self.seconds += 1
            getattr(self, name)()

    def define(self):
        self.is_defined, self.deleted_at = True, None
        self.send(EventKind.CHANGED)

    def delete(self):
        if self.is_defined:
            self.is_defined, self.deleted_at, self.is_known = False, self.now(), True
            self.send(EventKind.GONE)

    def claim(self):
        policy = AdmissionPolicy(service_down_time=10**9, claim_timeout=TIMEOUT)
        with suppress(ClaimRefusedError):  # while a guest was never read
            self.store.create_claim(ask(GUEST.uuid, MEMORY_MB=1), HOST, "node-1", policy)

    def confirm(self):
        for claim in self.store.list_claims():
            if claim.is_active:
                self.store.confirm_claim(claim.uuid)

    def send(self, kind):
        self.queue.put_event(NodeEvent("node-1", kind, GUEST.uuid))

    @rule(names=steps)
    def go_on(self, names):
        self.run(names)

    @rule(before=steps, after=steps, at_write=claim_steps)
    def audit(self, before, after, at_write):
        self.driver.before, self.driver.after, self.store.steps = before, after, at_write
        report = self.tracker.audit(self.key)
        assert not report.errors or self.driver.unreadable
        self.driver.before = self.driver.after = self.store.steps = ()

    @rule(before=steps, after=steps)
    def audit_of_a_part(self, before, after):
        self.driver.unreadable = ("one: unreadable",)
        self.audit(before, after, ())
        self.driver.unreadable = ()

    @rule()
    def restart(self):
        self.queue = SteadyQueue(MachineTimer(self))
        self.is_known = False
        self.start_agent(self.driver, Policy(), queue=self.queue)
        check_settled(self.tracker)

    @invariant()
    def only_claims_that_are_older_than_the_deletion_were_released(self):
        for claim in self.store.list_claims():
            if claim.reason == "deleted" and claim.uuid not in self.released:
                assert claim.created_at < self.deleted_at
                self.released.add(claim.uuid)

    def teardown(self):
        """In the end no older claim is left, unless a restart lost the deletion."""
        self.audit((), (), ())
        self.seconds += TIMEOUT + 1
        self.audit((), (), ())
        self.only_claims_that_are_older_than_the_deletion_were_released()
        left = [claim for claim in self.store.list_claims() if claim.is_active]
        if self.is_known and self.deleted_at is not None:
            assert all(claim.created_at > self.deleted_at for claim in left)


TestDeletions = DeletionMachine.TestCase
TestDeletions.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
