"""In any order of events memory is granted within two limits: all of it, and that outside pages.

What is granted is compared with sums over lists that the test keeps itself.
"""

from fractions import Fraction
from math import floor

import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from nodetracker.accounting.ledger.node_limits import limits_of
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.db.schema.tables import compute_nodes
from nodetracker.model.amounts import MEMORY, ORDINARY
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.fact import fresh
from nodetracker.model.guest import GuestListing, GuestPins, LoosePages
from nodetracker.model.host import CpuInfo, MemoryInfo
from nodetracker.model.node import NodeListing
from nodetracker.model.numa import CellAssignment, NumaCell, NumaTopology, PagePool
from nodetracker.model.settings import AllocationRatios, Policy
from nodetracker.ports import AdmissionPolicy, CandidatePolicy
from tests.builders import make_guest, make_snapshot
from tests.refusals import list_short
from tests.unit.ledger.agent_machine import HOST, AgentMachine

NODENAME = "node-1"
POLICY = AdmissionPolicy(service_down_time=10**9, claim_timeout=10**9)
TOTAL_MB, RESERVED_MB, PAGE_MB = 16384, 512, 1024
CELL_PAGES = 5  # of 1 GiB, in each of two cells of 8 GiB
HUGE_MB = 2 * CELL_PAGES * PAGE_MB
SIZES = st.sampled_from([512, 1024, 2048, 3000, 5376])
NUMBERS = st.integers(1, 6)
GUESTS = {
    1: make_guest(1, memory_mb=1024),
    2: make_guest(2, memory_mb=3000),
    3: make_guest(
        3, memory_mb=2048, pins=GuestPins((CellAssignment(0, 0, 2048, PAGE_MB * 1024, 2),))
    ),
    4: make_guest(4, memory_mb=3072, pins=GuestPins(pages=(LoosePages(PAGE_MB * 1024, 3),))),
    5: make_guest(
        5,
        memory_mb=2560,  # half a GiB outside pages
        pins=GuestPins((CellAssignment(1, 0, 2048, PAGE_MB * 1024, 2),)),
    ),
    6: make_guest(6, memory_mb=512, vcpu_milli=0),
}
PAGES_OF_GUEST = {3: 2048, 4: 3072, 5: 2048}  # MiB


def cell(number):
    pages = (PagePool(4, (8192 - CELL_PAGES * PAGE_MB) * 256), PagePool(1048576, CELL_PAGES))
    return NumaCell(number, frozenset({2 * number, 2 * number + 1}), 8192, pages=pages)


class PageMachine(AgentMachine):
    """Claims with and without page size on a host with pages, while guests come and go."""

    @initialize(ratio=st.sampled_from([0.9, 1.0, 1.5]), withholds=st.booleans())
    def start(self, ratio, withholds):
        self.claims, self.running = {}, set()
        self.ratio, self.listing = ratio, GuestListing()
        policy = Policy(
            reserved_memory_mb=RESERVED_MB,
            configured_ratios=AllocationRatios(64.0, ratio, 1.0),
            held_fact_expiry=10**9,
            limits_numa_cells=False,
            withholds_huge_pages=withholds,
        )
        self.withholds = withholds
        self.start_agent(self, policy)
        self.audit()

    # The driver.

    capabilities = frozenset()

    def get_available_nodes(self):
        return NodeListing((NODENAME,))

    def get_available_resource(self, nodename):
        return make_snapshot(
            nodename,
            cpu=fresh("test", CpuInfo(online=frozenset(range(4)), cores=4, architecture="x86_64")),
            memory=fresh("test", MemoryInfo(TOTAL_MB, TOTAL_MB)),
            numa=fresh("test", NumaTopology((cell(0), cell(1)))),
            guests=fresh("test", self.listing),
        )

    # The second implementation.

    def charged(self, claims, seen):
        """Return MiB that workloads are charged: all, and those that are not on pages."""
        total = ordinary = 0
        for number in range(1, 7):
            held = [claim for claim in claims if claim[0] == number]
            claimed, on_pages = sum(c[1] for c in held), sum(c[1] for c in held if c[2])
            if number in seen:
                claimed = max(claimed, GUESTS[number].memory_mb)
                on_pages = max(on_pages, PAGES_OF_GUEST.get(number, 0))
            total += claimed
            ordinary += claimed - on_pages
        return total, ordinary

    def free(self, claims, seen):
        total, ordinary = self.charged(claims, seen)
        ratio = Fraction(str(self.ratio))
        return (
            floor((TOTAL_MB - RESERVED_MB) * ratio) - total,
            floor((TOTAL_MB - HUGE_MB - RESERVED_MB) * ratio) - ordinary,
        )

    # What happens.

    @rule(number=NUMBERS, size=SIZES, name=st.uuids(version=4))
    def claim_ordinary_memory(self, number, size, name):
        request = parse_claim_request(self.make_body(number, size, name))
        before = list(self.claims.values())
        lacking = set()
        for limit, free, free_after in zip(
            (MEMORY, ORDINARY),
            self.free(before, self.seen),
            self.free([*before, (number, size, False)], self.seen),
            strict=True,
        ):
            if free_after < free and free_after < 0:
                lacking.add(limit)
        total, ordinary = self.free(before, self.seen)
        if ordinary >= total:  # the memory as a whole is short before it
            lacking.discard(ORDINARY)
        found = self.store.find_candidates(request, CandidatePolicy(10**9), 10).nodes
        if number in self.stored:  # its guest's own node is left to the rule
            pass
        elif lacking:
            assert found == ()
        else:
            (node,) = found
            assert node.free.memory_mb == min(self.free(before, self.seen))
        try:
            self.store.create_claim(request, HOST, NODENAME, POLICY)
        except ClaimRefusedError as error:
            assert list_short(error).keys() == lacking
        else:
            assert not lacking
            self.claims[str(name)] = (number, size, False)

    @rule(number=st.sampled_from([1, 3, 4, 6]), count=st.integers(1, 3), name=st.uuids(version=4))
    def claim_pages(self, number, count, name):
        body = self.make_body(number, count * PAGE_MB, name)
        body |= {"numa": {"nodes": 1, "page_size": "large"}}
        claims = list(self.claims.values())
        _, before = self.free(claims, self.seen)
        # Pages of the guest that covered another claim of the workload may cover this one.
        _, after = self.free([*claims, (number, count * PAGE_MB, True)], self.seen)
        try:
            self.store.create_claim(parse_claim_request(body), HOST, NODENAME, POLICY)
        except ClaimRefusedError as error:
            if ORDINARY in list_short(error):
                assert after < min(before, 0)
        else:
            self.claims[str(name)] = (number, count * PAGE_MB, True)
            assert after >= min(before, 0)

    def make_body(self, number, size, name):
        return {
            "uuid": str(name),
            "workload": {"uuid": GUESTS[number].uuid},
            "resources": {"VCPU": 1, "MEMORY_MB": size},
        }

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 10**6))
    def abort(self, pick):
        uuid = sorted(self.claims)[pick % len(self.claims)]
        self.store.abort_claim(uuid)
        del self.claims[uuid]

    @rule(number=NUMBERS)
    def guest_comes(self, number):
        self.running.add(number)

    @rule(number=NUMBERS)
    def guest_goes(self, number):
        self.running.discard(number)

    @rule()
    def audit(self):
        self.listing = GuestListing(tuple(GUESTS[number] for number in sorted(self.running)))
        assert self.tracker.audit(self.key).is_good
        (record,) = self.store.load_nodes(HOST)
        names = {guest.uuid: number for number, guest in GUESTS.items()}
        self.stored = {names[uuid] for uuid in record.guests}
        self.seen = {names[u] for u, g in record.guests.items() if g.missing_since is None}

    # What is true.

    @invariant()
    def the_row_shows_both(self):
        (record,) = self.store.load_nodes(HOST)
        total, ordinary = self.free(list(self.claims.values()), self.seen)
        unused = limits_of(record.values).huge_mb_unused
        assert unused == max(0, total - ordinary)
        assert not record.has_stale_limits
        with self.store.engine.connect() as connection:
            row = connection.execute(sa.select(compute_nodes)).mappings().one()
        assert (row["memory_mb_free"], row["ordinary_mb_free"]) == (total, total - unused)

    @invariant()
    def placement_offers_no_more(self):
        (record,) = self.store.load_nodes(HOST)
        total, ordinary = self.free(list(self.claims.values()), self.seen)
        offered = describe_tree(record, False).root.classes[MEMORY].grantable
        assert offered == (min(total, ordinary) if self.withholds else total)


TestPages = PageMachine.TestCase
TestPages.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
