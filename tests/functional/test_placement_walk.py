"""A random walk of two hosts against the real placement."""

import itertools
import math
import os
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import OWN_TYPES
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.settings import AllocationRatios, Policy
from nodetracker.ports import AdmissionPolicy
from tests.functional.placement_host import ReportedHost
from tests.functional.servers.placement import Placement
from tests.stores import SqliteStore
from tests.unit.compute.tracked_host import TickingClock

STEPS = int(os.environ.get("NODETRACKER_PLACEMENT_STEPS", "12"))
SEEDS = [int(seed) for seed in os.environ.get("NODETRACKER_PLACEMENT_SEEDS", "1").split(",")]
POLICY = AdmissionPolicy(service_down_time=10**6, claim_timeout=600)


@dataclass
class WalkNode:
    """A node of one of the hosts; it has this size and these guests now."""

    host: ReportedHost
    name: str
    size: dict
    guests: dict = field(default_factory=dict)

    def entry(self):
        return {"nodename": self.name, "guests": list(self.guests.values())} | self.size


class Walk:
    """Two hosts, one of them with two nodes, the workloads on them, and random changes."""

    def __init__(self, tmp_path, placement, seed):
        self.rng = random.Random(seed)
        self.placement = placement
        self.clock = TickingClock()
        self.store = SqliteStore(self.clock.now)
        self.prefix = uuid.uuid4().hex[:8]
        self.names = itertools.count()
        self.hosts = [
            ReportedHost(tmp_path, placement.configuration(), self.store, self.clock, name)
            for name in ("host-1", "host-2")
        ]
        small = {"vcpus": 4, "memory_mb": 8192, "disk_gb": 40}
        self.nodes = [
            WalkNode(self.hosts[0], f"{self.prefix}-1", small | {"vcpus": 8}),
            WalkNode(self.hosts[0], f"{self.prefix}-2", dict(small)),
            WalkNode(self.hosts[1], f"{self.prefix}-3", dict(small)),
        ]
        self.moves = []

    def new_uuid(self):
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def audit(self):
        for host in self.hosts:
            host.audit(*(node.entry() for node in self.nodes if node.host is host))

    def settle(self):
        """Audit until no row changes any more: an audit of one host may end a claim of the other."""
        before = None
        while (now := self.versions()) != before:
            before = now
            self.audit()
        for host in self.hosts:
            host.wait()

    def versions(self):
        return [r.generation for host in self.hosts for r in host.tracked.records().values()]

    def active(self):
        return [claim for claim in self.store.list_claims() if claim.is_active]

    # The changes.

    def claim(self, migration=None, workload=None, node=None):
        rng = self.rng
        node = node or rng.choice(self.nodes)
        kind = rng.choice(("instance", "container"))
        cpus = rng.choice((1, 2, 4, 0.5, 1.5) if kind == "container" else (1, 2, 4))
        guest_uuids = [u for other in self.nodes for u in other.guests]
        body = {
            "uuid": self.new_uuid(),
            "workload": {
                "uuid": workload or rng.choice([self.new_uuid(), *guest_uuids[:2]]),
                "kind": kind,
                **rng.choice(({}, {"project_id": "p1", "user_id": "u1"})),
            },
            "resources": {"VCPU": cpus, "MEMORY_MB": rng.choice((64, 500, 3000))},
            "disk": {"root_gb": rng.choice((0, 1, 9)), "swap_mb": rng.choice((0, 300))},
        }
        if migration is not None:
            body["migration"] = migration
        request = parse_claim_request(body, self.new_uuid)
        create = self.store.create_claim if migration is None else self.store.create_migration
        return create(request, node.host.tracked.key.host, node.name, POLICY)

    def end_claim(self):
        claims = self.active()
        if claims:
            claim = self.rng.choice(claims)
            self.rng.choice((self.store.abort_claim, self.store.confirm_claim))(claim.uuid)

    def move(self):
        claims = self.active()
        if claims:
            claim = self.rng.choice(claims)
            kind = self.rng.choice(("resize", "migration", "evacuation"))
            migration = {"type": kind, "source_claim": claim.uuid}
            self.moves.append(self.claim(migration, claim.workload.uuid).uuid)

    def end_move(self):
        if self.moves:
            uuid = self.moves.pop(self.rng.randrange(len(self.moves)))
            self.rng.choice((self.store.confirm_migration, self.store.revert_migration))(uuid)

    def change_guests(self):
        guests, rng = self.rng.choice(self.nodes).guests, self.rng
        if guests and rng.random() < 0.4:
            del guests[rng.choice(sorted(guests))]
        else:
            claimed = [claim.workload.uuid for claim in self.active()]
            name = rng.choice([self.new_uuid(), *claimed])
            guests[name] = {
                "uuid": name, "vcpus": rng.choice((1, 3)), "memory_mb": rng.choice((100, 2000)),
                "disk_gb": rng.choice((0, 5)),
            }  # fmt: skip

    def resize_node(self):
        size = self.rng.choice(self.nodes).size
        size["vcpus"] = self.rng.choice((2, 4, 8))
        size["memory_mb"] = self.rng.choice((4096, 16384))

    def change_ratios(self):
        ratios = AllocationRatios(
            self.rng.choice((1.0, 4.0, 0.7, 1.1)), self.rng.choice((1.0, 1.5, 0.9)), None
        )
        for host in self.hosts:
            tracker = host.tracked.tracker
            tracker.reconfigure(_with_ratios(tracker._settings, ratios))

    def restart(self):
        self.rng.choice(self.hosts).restart()

    def step(self):
        changes = [self.claim] * 5 + [self.end_claim] * 3 + [self.move] * 2 + [self.end_move] * 2
        changes += [self.change_guests] * 3 + [self.resize_node, self.change_ratios, self.restart]
        try:
            self.rng.choice(changes)()
        except NodetrackerError:  # refused, as in real life
            pass

    # What must hold.

    def check(self):
        for host in self.hosts:
            for record in host.tracked.records().values():
                self.check_node(host, record)

    def check_node(self, host, record):
        tree = describe_tree(record, False)
        path = f"/resource_providers/{record.uuid}"
        inventories = self.placement.get(f"{path}/inventories")["inventories"]
        usages = self.placement.get(f"{path}/usages")["usages"]
        allocations = self.placement.get(f"{path}/allocations")["allocations"]
        assert inventories.keys() == tree.root.classes.keys()
        refused = host.reporter._slots._slots[record.nodename].state.refused
        for name, entry in tree.root.classes.items():
            found = inventories[name]
            assert (found["total"], found["max_unit"]) == (entry.total, entry.max_unit)
            assert found["allocation_ratio"] == pytest.approx(entry.allocation_ratio)
            offered = (found["total"] - found["reserved"]) * found["allocation_ratio"]
            offered -= usages[name]
            granted = max(0, entry.grantable) / entry.parts
            assert math.floor(offered) <= granted
            if found["reserved"] < found["total"]:
                assert granted - max(0, offered) < 1 + entry.allocation_ratio, name
        for consumer in tree.consumers.values():
            if consumer.uuid not in refused:
                held = allocations[consumer.uuid]["resources"]
                assert held == consumer.resources[record.uuid]
        assert allocations.keys() <= tree.consumers.keys()
        self.check_candidates(host, record)

    def check_candidates(self, host, record):
        """Placement's candidates are a subset of those that the ledger would grant."""
        amounts = {"VCPU": self.rng.randrange(1, 6), "MEMORY_MB": self.rng.choice((64, 1024, 4096))}
        resources = ",".join(f"{name}:{amount}" for name, amount in amounts.items())
        path = f"/allocation_candidates?resources={resources}&in_tree={record.uuid}"
        if not self.placement.get(path)["allocation_requests"]:
            return
        body = {"workload": {"uuid": self.new_uuid()}, "resources": amounts}
        request = parse_claim_request(body)
        node = record.nodename
        admission = self.store.try_claim(request, host.tracked.key.host, node, POLICY)
        assert admission.reasons == ()

    def check_types(self):
        for claim in self.active():
            found = self.placement.get(f"/allocations/{claim.workload.uuid}")
            assert found.get("consumer_type", next(iter(OWN_TYPES))) in OWN_TYPES


def _with_ratios(settings, ratios):
    return replace(settings, policy=replace(settings.policy or Policy(), configured_ratios=ratios))


@pytest.mark.parametrize("seed", SEEDS)
def test_after_each_change_placement_agrees_with_the_ledger(tmp_path, placement, seed) -> None:
    walk = Walk(tmp_path, placement, seed)
    try:
        for _ in range(STEPS):
            for _ in range(walk.rng.randrange(1, 4)):
                walk.step()
            walk.settle()
            walk.check()
        walk.check_types()
        before = [host.count() for host in walk.hosts]
        walk.settle()
        assert [host.count() for host in walk.hosts] == before
    finally:
        for host in walk.hosts:
            host.stop()


def test_a_move_between_two_nodes_of_a_host_is_one_request(tmp_path, placement) -> None:
    walk = Walk(tmp_path, placement, 1)
    first, second, _ = walk.nodes
    try:
        walk.settle()
        source = walk.claim(node=first)
        walk.settle()
        before = walk.hosts[0].client.count_requests()
        move = {"type": "migration", "source_claim": source.uuid}
        migration = walk.claim(move, source.workload.uuid, second)
        walk.settle()
        walk.check()
        sent = Counter(walk.hosts[0].client.count_requests()) - Counter(before)
        assert {key[0]: count for key, count in sent.items() if key[0] == "POST"} == {"POST": 1}
        held = walk.placement.get(f"/allocations/{migration.uuid}")
        assert held["consumer_type"] == "NODETRACKER_MIGRATION"
        walk.store.confirm_migration(migration.uuid)
        walk.settle()
        walk.check()
    finally:
        for host in walk.hosts:
            host.stop()


def test_ratios_of_which_mariadb_keeps_six_digits_are_written_once(tmp_path, mariadb) -> None:
    placement = Placement(mariadb.create_database("nt_placement"))
    walk = Walk(tmp_path, placement, 1)
    try:
        ratios = AllocationRatios(1.123456789, 2 / 3, 1 / 3)
        for host in walk.hosts:
            tracker = host.tracked.tracker
            tracker.reconfigure(_with_ratios(tracker._settings, ratios))
        walk.settle()
        walk.claim()
        walk.settle()
        walk.check()
        for host in walk.hosts:
            host.restart()
        walk.settle()
        assert {kind for host in walk.hosts for kind, _ in host.client.count_requests()} == {"GET"}
    finally:
        for host in walk.hosts:
            host.stop()
        placement.remove()
