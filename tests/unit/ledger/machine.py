"""A machine of random claims, on any store."""

import dataclasses
import json
from fractions import Fraction
from math import floor

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    DriverUnavailableError,
    RefusedError,
    RequestError,
)
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import GuestListing, WorkloadKind
from nodetracker.model.host import CpuInfo, Filesystem, MemoryInfo, StorageInfo
from nodetracker.model.node import NodeListing
from nodetracker.model.settings import AllocationRatios, Policy
from nodetracker.ports import AdmissionPolicy
from tests.builders import make_guest, make_snapshot
from tests.oracle import COUNTING, check_usage, expected_usage
from tests.settled import check_settled
from tests.stores import SqliteStore
from tests.unit.ledger.agent_machine import HOST, AgentMachine

ADMISSION_POLICY = AdmissionPolicy(service_down_time=10**9, claim_timeout=600)
POLICY = Policy(
    reserved_cpus=1,
    reserved_memory_mb=512,
    reserved_disk_mb=700,
    configured_ratios=AllocationRatios(1.5, 1.0, 1.25),
    cpu_shared_set=frozenset(range(6)),
    cpu_dedicated_set=frozenset({6, 7}),
    held_fact_expiry=10**9,
)
NODE = make_snapshot(
    "node-1",
    cpu=fresh("test", CpuInfo(online=frozenset(range(8)), cores=8, architecture="x86_64")),
    memory=fresh("test", MemoryInfo(8192, 8000)),
    storage=fresh("test", StorageInfo(Filesystem("/srv", 61440, 0, 61440))),
    overhead_mb=30,
)
OWN_LIMITS = {  # (total - reserved) x ratio + reserved, in thousandths and MiB
    "vcpu": floor((6000 - 1000) * Fraction("1.5")) + 1000,
    "memory": 8192,
    "disk": floor((61440 - 700) * Fraction("1.25")) + 700,
}
TOTALS = {"vcpu": 6000, "memory": 8192, "disk": 61440}  # no claim is larger
CONTAINER = WorkloadKind.CONTAINER
GUESTS = {
    1: make_guest(1, vcpu_milli=2000, memory_mb=1024, disk_mb=10 * 1024 + 512),
    2: make_guest(2, kind=CONTAINER, vcpu_milli=333, memory_mb=100, disk_mb=1),
    3: make_guest(3, vcpu_milli=4000, memory_mb=4096, disk_mb=30 * 1024),
    4: make_guest(4, kind=CONTAINER, vcpu_milli=1, memory_mb=0, disk_mb=512),
    5: make_guest(5, vcpu_milli=1000, memory_mb=2048, disk_mb=0),
}
numbers = st.sampled_from(sorted(GUESTS))
some_numbers = st.sets(numbers)
picks = st.integers(0, 10**6)


@st.composite
def resources(draw):
    """Draw the amounts of a request, disk in parts; small ones, so that several fit."""
    return {
        "milli": draw(st.integers(0, 5000) | st.sampled_from([6000, 6001, 7000])),
        "MEMORY_MB": draw(st.sampled_from([0, 1, 500, 1024, 4000, 7650, 7681])),
        "root_gb": draw(st.integers(0, 40)),
        "swap_mb": draw(st.sampled_from([0, 1, 512, 1024, 1535])),
    }


def make_body(number, drawn, claim_uuid):
    guest = GUESTS[number]
    milli = drawn["milli"]
    return {
        "uuid": claim_uuid,
        "workload": {"uuid": guest.uuid, "kind": guest.kind.value},
        "resources": {
            "VCPU": milli / 1000 if guest.kind is CONTAINER else milli // 1000,
            "MEMORY_MB": drawn["MEMORY_MB"],
        },
        "disk": {"root_gb": drawn["root_gb"], "swap_mb": drawn["swap_mb"]},
    }


class StubDriver:
    """One node that reports what a test sets."""

    capabilities = frozenset()

    def __init__(self):
        self.guests = fresh("test", GuestListing())
        self.is_there = True

    def get_available_nodes(self):
        if not self.is_there:
            raise DriverUnavailableError("test", "away")
        return NodeListing(("node-1",))

    def get_available_resource(self, nodename):
        return dataclasses.replace(NODE, guests=self.guests)


class LedgerMachine(AgentMachine):
    """Claims while guests appear and vanish and the agent restarts."""

    def __init__(self, open_store=SqliteStore):
        super().__init__(open_store)
        self.driver = StubDriver()
        self.running = set()  # numbers of guests that the hypervisor has
        self.bodies = {}  # claim uuid -> the request that was granted
        self.aborted = set()
        self.restart()
        self.audit()

    # Observations.

    def record(self):
        (record,) = self.store.load_nodes(HOST)
        return record

    def claims(self):
        return {claim.uuid: claim for claim in self.store.list_claims()}

    def used(self):
        """Compute the usage, reserved included, in thousandths and MiB, from all claims and guests."""
        expected = expected_usage(self.record(), self.store.list_claims())
        return {
            "vcpu": 1000 + round(expected["cpu_used"] * 1000),
            "memory": expected["memory_mb_used"],
            "disk": 700 + round(expected["disk_used"] * 1024),
        }

    def pick(self, pick):
        """Return some claim's uuid."""
        return sorted(self.bodies)[pick % len(self.bodies)]

    # Claims.

    def create(self, body):
        return self.store.create_claim(parse_claim_request(body), HOST, "node-1", ADMISSION_POLICY)

    def asked(self, body):
        """Return the amounts that a body requests, in thousandths and MiB."""
        wanted, disk = body["resources"], body["disk"]
        is_instance = body["workload"]["kind"] == "instance"
        return {
            "vcpu": round(wanted["VCPU"] * 1000),
            "memory": wanted["MEMORY_MB"] + (30 if is_instance else 0),
            "disk": disk["root_gb"] * 1024 + disk["swap_mb"],
        }

    def lacking(self, number, body):
        """Return the second word of each reason that a claim must be refused for."""
        room = self.room(GUESTS[number].uuid)
        used = self.used()
        overhead = {"memory": 30 if GUESTS[number].kind is WorkloadKind.INSTANCE else 0}
        unseen = self.record().values.facts["guests"].unseen_kinds
        return {"have" for kind in unseen if kind is GUESTS[number].kind} | {  # "… have not been"
            name
            for name, amount in self.asked(body).items()
            if amount > room[name]  # else its guest is charged as much already
            and (
                amount > OWN_LIMITS[name] - used[name] + room[name]
                or amount - overhead.get(name, 0) > TOTALS[name]
            )
        }

    def refuse_empty(self, body):
        """Return whether a body requests nothing; the ledger must refuse it then."""
        if any([*body["resources"].values(), *body["disk"].values()]):
            return False
        before = self.record()
        try:
            self.create(body)
            raise AssertionError("a claim that holds nothing was granted")
        except RequestError:
            assert self.record() == before
        return True

    def room(self, workload):
        """Return what a workload is charged beyond its claims, because its guest is larger."""
        stored = self.record().guests.get(workload)
        if stored is None or stored.missing_since is not None:
            return dict.fromkeys(OWN_LIMITS, 0)
        overhead = 30 if stored.kind is WorkloadKind.INSTANCE else 0
        size = {"vcpu": stored.vcpu_milli, "memory": stored.memory_mb + overhead}
        size["disk"] = stored.disk_mb
        claimed = [
            self.asked(self.bodies[uuid])
            for uuid, claim in self.claims().items()
            if claim.workload.uuid == workload and claim.state.value in COUNTING
        ]
        return {
            name: max(0, amount - sum(asked[name] for asked in claimed))
            for name, amount in size.items()
        }

    @rule(number=numbers, drawn=resources(), name=st.uuids())
    def claim(self, number, drawn, name):
        body = make_body(number, drawn, str(name))
        if body["uuid"] in self.bodies or self.refuse_empty(body):
            return
        before, lacking, had = self.record(), self.lacking(number, body), self.used()
        try:
            granted = self.create(body)
        except ClaimRefusedError as error:
            assert {reason.split()[1] for reason in error.reasons} == lacking
            assert self.record() == before
            return
        assert lacking == set()
        assert granted.uuid == body["uuid"]
        used = self.used()
        for name, amount in self.asked(body).items():
            assert not amount or used[name] <= max(OWN_LIMITS[name], had[name])
        self.bodies[granted.uuid] = body

    @precondition(lambda self: self.bodies)
    @rule(pick=picks)
    def claim_again(self, pick):
        uuid = self.pick(pick)
        before, known = self.record(), self.claims()[uuid]
        assert self.create(self.bodies[uuid]) == known
        other = json.loads(json.dumps(self.bodies[uuid]))
        other["disk"]["swap_mb"] += 1
        try:
            self.create(other)
            raise AssertionError("another body was granted under the same uuid")
        except ClaimConflictError:
            pass
        assert self.record() == before

    @rule(number=numbers, drawn=resources(), name=st.uuids())
    def claim_and_abort(self, number, drawn, name):
        before = self.record()
        body = make_body(number, drawn, str(name))
        if body["uuid"] in self.bodies or self.refuse_empty(body):
            return
        try:
            granted = self.create(body)
        except ClaimRefusedError:
            return
        self.store.abort_claim(granted.uuid)
        self.bodies[granted.uuid] = body
        self.aborted.add(granted.uuid)
        after = self.record()
        assert after.values == before.values
        assert after.guests == before.guests
        assert after.claims == before.claims

    @precondition(lambda self: self.bodies)
    @rule(pick=picks)
    def abort(self, pick):
        uuid = self.pick(pick)
        before = self.claims()[uuid]
        released = self.store.abort_claim(uuid)
        assert released.state.value == "released"
        if before.state.value == "released":
            assert released == before
        else:
            self.aborted.add(uuid)

    @precondition(lambda self: self.bodies)
    @rule(pick=picks)
    def confirm(self, pick):
        uuid = self.pick(pick)
        before = self.claims()[uuid]
        self.change(before, lambda: self.store.confirm_claim(uuid))

    @precondition(lambda self: self.bodies)
    @rule(pick=picks)
    def renew(self, pick):
        uuid = self.pick(pick)
        before = self.claims()[uuid]
        self.change(before, lambda: self.store.renew_claim(uuid, ADMISSION_POLICY))

    def change(self, before, call):
        used = self.used()
        try:
            call()
            assert before.state.value in COUNTING
        except RefusedError:
            assert before.state.value == "released"
        assert self.used() == used

    @rule()
    def purge(self):
        used = self.used()
        self.store.purge(self.now())
        assert self.used() == used
        for uuid in self.bodies.keys() - self.claims().keys():
            del self.bodies[uuid]
            self.aborted.discard(uuid)
        assert all(claim.state.value in COUNTING for claim in self.claims().values())

    # Guests and time.

    @rule(number=numbers)
    def guest_comes(self, number):
        self.running.add(number)

    @rule(number=numbers)
    def guest_vanishes(self, number):
        self.running.discard(number)

    @rule(seconds=st.sampled_from([1, 599, 700, 4000]))
    def wait(self, seconds):
        self.seconds += seconds

    # The agent.

    @rule()
    def audit(self):
        before = self.claims()
        self.see(GuestListing(tuple(GUESTS[number] for number in sorted(self.running))))
        record, claims = self.record(), self.claims()
        counting = {c.workload.uuid for c in claims.values() if c.state.value in COUNTING}
        listed = {GUESTS[number].uuid for number in self.running}
        assert listed <= record.guests.keys() <= listed | counting
        for uuid, claim in claims.items():
            was = before[uuid]
            if was.state.value == "held" and claim.workload.uuid in listed:
                assert claim.state.value == "confirmed"
            elif was.state.value == "held" and claim.state.value != "held":
                assert claim.reason == "expired"
                assert was.expires_at < self.now()
            elif was.state.value == "confirmed":
                assert claim.state.value == "confirmed"

    @rule(lost=some_numbers)
    def audit_of_a_part(self, lost):
        rest = tuple(GUESTS[number] for number in sorted(self.running - lost))
        self.must_lower_nothing(lambda: self.see(GuestListing(rest, ("one: unreadable",))))

    @rule()
    def audit_without_a_listing(self):
        self.must_lower_nothing(lambda: self.see(None))

    @rule()
    def audit_without_the_driver(self):
        self.driver.is_there = False
        self.must_lower_nothing(lambda: self.tracker.audit(self.key))
        self.driver.is_there = True

    @rule()
    def restart(self):
        self.start_agent(self.driver, POLICY)
        check_settled(self.tracker)

    def see(self, listing):
        self.driver.guests = failed("test", "broken") if listing is None else fresh("test", listing)
        report = self.tracker.audit(self.key)
        if listing is not None and listing.is_complete:
            assert report.is_good, report.errors

    def must_lower_nothing(self, audit):
        before, claims = self.used(), self.claims()
        audit()
        after = self.used()
        assert all(after[name] >= before[name] for name in before)
        for uuid, claim in self.claims().items():
            assert claim.state.value in COUNTING or claim == claims[uuid]

    # Invariants.

    @invariant()
    def usage_is_what_there_is(self):
        check_usage(self.store, HOST)

    @invariant()
    def every_answered_claim_is_there(self):
        claims = self.claims()
        assert claims.keys() == self.bodies.keys()
        for uuid, claim in claims.items():
            body = self.bodies[uuid]
            asked = self.asked(body)
            assert claim.workload.uuid == body["workload"]["uuid"]
            assert (claim.amounts.vcpu_milli, claim.amounts.pcpus) == (asked["vcpu"], 0)
            assert claim.amounts.memory_mb == body["resources"]["MEMORY_MB"]
            assert claim.amounts.disk_mb == asked["disk"]

    @invariant()
    def what_was_aborted_never_counts_again(self):
        claims = self.claims()
        assert {claims[uuid].reason for uuid in self.aborted} <= {"aborted"}
