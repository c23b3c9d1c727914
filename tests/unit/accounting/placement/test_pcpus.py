"""Placement offers as many PCPU as the ledger grants, whatever guests name or claims keep free."""

import dataclasses
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.claims import decide_grant
from nodetracker.accounting.ledger.node_claims import add_claim
from nodetracker.accounting.ledger.transaction import LockedNode
from nodetracker.accounting.numa.cells import list_guest_assignments
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.fact import FactEntry, FactState, fresh
from nodetracker.model.guest import CpuAffinity, GuestPins
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import CellAssignment, NumaCell, NumaTopology
from nodetracker.model.service import ServiceAvailability
from nodetracker.model.settings import AdmissionPolicy, Policy
from tests.builders import NOW, admission_values, ask, later, make_guest, make_record, make_snapshot

CPUS = frozenset(range(16))
CORES = tuple(frozenset({cpu, cpu + 1}) for cpu in range(0, 16, 2))
CELLS = NumaTopology(
    tuple(
        NumaCell(
            cell, frozenset(range(first, first + 8)), 65536, CORES[first // 2 : first // 2 + 4]
        )
        for cell, first in ((0, 0), (1, 8))
    )
)
ADMISSION = AdmissionPolicy(service_down_time=60, claim_timeout=600)


def choose(rng, most):
    return frozenset(rng.sample(sorted(CPUS), rng.randint(1, most)))


def make_pins(rng):
    pins = {}
    if rng.random() < 0.4:
        pins = dict(enumerate(rng.sample(range(8), rng.randint(1, 2))))
    affinities = tuple(
        CpuAffinity(choose(rng, 8), rng.choice((0, 500, 1000, 3000)))
        for _ in range(rng.randint(0, 2))
    )
    cells = (CellAssignment(0, pins=pins),) if pins else ()
    return GuestPins(cells, affinities=affinities)


def look(guests, policy, claims=(), stored=None):
    """Return the row after an audit."""
    before = None
    if stored is not None:
        known = {claim.uuid: claim for claim in claims}
        before = make_record(stored.values, guests=stored.guests, claims=known)
    snapshot = make_snapshot(
        "node-1", *guests, numa=fresh("t", CELLS), cpu=fresh("t", CpuInfo(CPUS, siblings=CORES))
    )
    view = account(snapshot, before, policy, NOW)
    return make_record(view.values, guests=view.guests, claims=view.claims)


def lock(record, workload):
    claims = record.claims.values()
    return LockedNode(
        id=record.id,
        host=record.host,
        nodename=record.nodename,
        values=admission_values(record.values),
        service=ServiceAvailability(NOW, NOW, False, None, False, False),
        guest=record.guests.get(workload),
        now=later(10),
        claim_assignments={claim.uuid: claim.numa for claim in claims if claim.numa is not None},
        guest_assignments=list_guest_assignments(record.guests.values()),
    )


def grant(record, request):
    """Return the claim, and the node as the transaction leaves it."""
    node = lock(record, request.workload.uuid)
    claim = decide_grant(request, node, ADMISSION).answer
    return claim, add_claim(node, claim)


def offered(record):
    """Return how many PCPU placement would allocate beside the consumers that it has."""
    tree = describe_tree(record, False)
    ledger = tree.root.classes.get("PCPU")
    if ledger is None:
        return 0
    held = {
        consumer.workload_uuid: amounts.get("PCPU", 0)
        for consumer in tree.consumers.values()
        for amounts in consumer.resources.values()
    }
    return ledger.inventory(ledger.reserved_for(held)).capacity - sum(held.values())


def count_grants(record, guests, policy):
    """Return how many PCPU the ledger grants, one after the other; each row is audited."""
    for number in range(len(CPUS) + 1):
        try:
            claim, node = grant(record, ask(PCPU=1, MEMORY_MB=1))
        except ClaimRefusedError:
            return number
        record = look(guests, policy, [*record.claims.values(), claim], record)
        assert node.values.pcpus_used == record.values.pcpus_used
        assert node.values.numa_topology == record.values.numa_topology
    raise AssertionError("more was granted than the node has")


@settings(max_examples=150, deadline=None, database=None)
@given(st.integers(0, 2**32))
def test_placement_offers_as_many_pcpus_as_the_ledger_grants(seed):
    rng = random.Random(seed)
    policy = Policy(cpu_shared_set=frozenset({0}), cpu_dedicated_set=choose(rng, 12) - {0})
    guests = [
        make_guest(n, vcpu_milli=3000, memory_mb=64, disk_mb=0, pins=make_pins(rng))
        for n in range(rng.randint(0, 3))
    ]
    record = look(guests, policy)
    for _ in range(rng.randint(0, 3)):
        workload = rng.choice([guest.uuid for guest in guests] + [None, None])
        numa = {"cpu_policy": "dedicated", "cpu_thread_policy": rng.choice(("isolate", "prefer"))}
        try:
            claim, _ = grant(record, ask(workload, PCPU=rng.randint(1, 2), MEMORY_MB=1, numa=numa))
        except ClaimRefusedError:
            continue
        record = look(guests, policy, [*record.claims.values(), claim], record)
    assert max(0, offered(record)) == count_grants(record, guests, policy)


def test_siblings_that_a_claim_keeps_free_are_reserved():
    policy = Policy(cpu_shared_set=frozenset({0}), cpu_dedicated_set=frozenset(range(4, 8)))
    record = look([], policy)
    isolated = {"cpu_policy": "dedicated", "cpu_thread_policy": "isolate"}
    claim, _ = grant(record, ask(PCPU=1, MEMORY_MB=1, numa=isolated))
    record = look([], policy, [claim], record)
    assert (record.values.pcpus_used, offered(record)) == (1, 2)


def test_without_cells_no_pcpu_is_offered():
    policy = Policy(cpu_shared_set=frozenset({0}), cpu_dedicated_set=frozenset(range(4, 8)))
    record = look([], policy)
    assert offered(record) == 4
    unknown = FactEntry(FactState.UNKNOWN, "t", NOW, "boom")
    for changes in ({"numa_topology": {}}, {"facts": {**record.values.facts, "numa": unknown}}):
        values = dataclasses.replace(record.values, **changes)
        assert offered(dataclasses.replace(record, values=values)) == 0
