"""A model of placement in memory, with the methods of the client; and random nodes to report."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.placement.tree import (
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
    ProviderSummary,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimState,
    Migration,
    MigrationStatus,
    MigrationType,
    Move,
    Workload,
)
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
)
from nodetracker.model.guest import Guest, WorkloadKind
from nodetracker.model.node import NodeValues
from tests import builders
from tests.builders import NOW, later, make_record

NODE = "11111111-1111-4111-8111-111111111111"
STANDARD_TRAITS = {"COMPUTE_NODE", "COMPUTE_STATUS_DISABLED", "HW_CPU_X86_AVX"}


class PlacementModel:
    """What placement has, and how it answers; the errors are the client's.

    Attributes:
        requests: (method, path) of each request.
        fail: called before each request with method and subject; may raise.
    """

    def __init__(self) -> None:
        self.providers: dict[str, PlacedProvider] = {}
        self.consumers: dict[str, PlacedConsumer] = {}
        self.traits = set(STANDARD_TRAITS)
        self.classes: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.fail = lambda method, subject: None

    def tree(self, uuid: str = NODE) -> PlacedTree:
        """Return a node's providers and their consumers."""
        found = {key: p for key, p in self.providers.items() if self._root_of(key) == uuid}
        consumers = {
            key: c for key, c in self.consumers.items() if not found.keys().isdisjoint(c.resources)
        }
        return PlacedTree(found, consumers)

    def used(self, uuid: str) -> Counter:
        """Return what all consumers have of a provider."""
        total = Counter()
        for consumer in self.consumers.values():
            total.update(consumer.resources.get(uuid, {}))
        return total

    def count_requests(self) -> dict[tuple[str, str], int]:
        """Return nothing: the model counts nothing."""
        return {}

    def _note(self, method: str, subject: str) -> None:
        self.requests.append((method, subject))
        self.fail(method, subject)

    def _find(self, request: str, uuid: str) -> PlacedProvider:
        if uuid not in self.providers:
            raise PlacementNotFoundError(request, "not found")
        return self.providers[uuid]

    def _root_of(self, uuid: str) -> str:
        parent = self.providers[uuid].parent_uuid
        return uuid if parent is None else self._root_of(parent)

    def list_providers(self, uuid=None, name=None, tree=None):
        self._note("GET", f"providers {uuid or name or tree or 'all'}")
        return [
            ProviderSummary(p.uuid, p.name, p.generation, self._root_of(p.uuid), p.parent_uuid)
            for p in self.providers.values()
            if (uuid is None or p.uuid == uuid)
            and (name is None or p.name == name)
            and (tree is None or tree == self._root_of(p.uuid))
        ]

    def create_provider(self, uuid, name, parent_uuid=None):
        self._note("POST", f"provider {uuid}")
        if uuid in self.providers or any(p.name == name for p in self.providers.values()):
            raise PlacementNameError("POST", "exists")
        self.providers[uuid] = PlacedProvider(uuid, name, 0, parent_uuid)
        return 0

    def rename_provider(self, uuid, name):
        self._note("PUT", f"provider {uuid}")
        provider = self._find("PUT", uuid)
        if any(p.name == name and p.uuid != uuid for p in self.providers.values()):
            raise PlacementNameError("PUT", "exists")
        self.providers[uuid] = replace(provider, name=name)

    def delete_provider(self, uuid):
        self._note("DELETE", f"provider {uuid}")
        self._find("DELETE", uuid)
        if self.used(uuid) or any(p.parent_uuid == uuid for p in self.providers.values()):
            raise PlacementInUseError("DELETE", "in use")
        del self.providers[uuid]

    def read_inventories(self, uuid):
        self._note("GET", f"inventories {uuid}")
        provider = self._find("GET", uuid)
        return provider.generation, dict(provider.inventories)

    def _raise_generation(self, uuid, generation, **changes):
        provider = self._find("PUT", uuid)
        if provider.generation != generation:
            raise PlacementConflictError("PUT", "generation")
        self.providers[uuid] = replace(provider, generation=generation + 1, **changes)
        return generation + 1

    def set_inventories(self, uuid, generation, inventories):
        self._note("PUT", f"inventories {uuid}")
        if {name for name in inventories if name.startswith("CUSTOM_")} - self.classes:
            raise PlacementRefusedError("PUT", "unknown resource class")
        used = {name for name, amount in self.used(uuid).items() if amount}
        if used - inventories.keys():
            raise PlacementInUseError("PUT", "in use")
        return self._raise_generation(uuid, generation, inventories=dict(inventories))

    def read_traits(self, uuid):
        self._note("GET", f"traits {uuid}")
        provider = self._find("GET", uuid)
        return provider.generation, provider.traits

    def set_traits(self, uuid, generation, traits):
        self._note("PUT", f"traits {uuid}")
        if not set(traits) <= self.traits:
            raise PlacementRefusedError("PUT", "no such trait")
        return self._raise_generation(uuid, generation, traits=frozenset(traits))

    def read_allocations(self, uuid):
        self._note("GET", f"allocations {uuid}")
        provider = self._find("GET", uuid)
        return provider.generation, {
            key: PlacedConsumer(key, c.generation, {uuid: c.resources[uuid]})
            for key, c in self.consumers.items()
            if uuid in c.resources
        }

    def read_consumer(self, uuid):
        self._note("GET", f"consumer {uuid}")
        return self.consumers.get(uuid)

    def write_consumers(self, writes):
        self._note("POST", f"allocations {len(writes)}")
        for write in writes:
            known = self.consumers.get(write.uuid)
            if (None if known is None else known.generation) != write.generation:
                raise PlacementConflictError("POST", "consumer generation conflict")
        consumers = {k: c for k, c in self.consumers.items() if k not in {w.uuid for w in writes}}
        visited = set()
        for write in writes:
            visited |= (write.resources or self.consumers[write.uuid].resources).keys()
            if write.resources:
                consumers[write.uuid] = PlacedConsumer(
                    write.uuid, (write.generation or 0) + 1, write.resources, True, write.type,
                    write.project_id, write.user_id,
                )  # fmt: skip
        before = {uuid: self.used(uuid) for uuid in visited}
        kept, self.consumers = self.consumers, consumers
        for write in writes:
            for uuid, amounts in write.resources.items():
                if not self._has_room(uuid, amounts, before[uuid]):
                    self.consumers = kept
                    raise PlacementRefusedError("POST", "over capacity")
        for uuid in visited:
            provider = self.providers[uuid]
            self.providers[uuid] = replace(provider, generation=provider.generation + 1)

    def _has_room(self, uuid, amounts, before):
        inventories, used = self.providers[uuid].inventories, self.used(uuid)
        return all(
            name in inventories
            and amount <= inventories[name].max_unit
            and (used[name] <= inventories[name].capacity or used[name] <= before[name])
            for name, amount in amounts.items()
        )

    def list_traits(self, names):
        self._note("GET", "trait names")
        return frozenset(self.traits & set(names))

    def create_trait(self, name):
        self._note("PUT", f"trait {name}")
        self.traits.add(name)

    def create_resource_class(self, name):
        self._note("PUT", f"class {name}")
        self.classes.add(name)

    def allocate(self, consumer, resources, consumer_type="INSTANCE", uuid=NODE):
        """Allocate as another program does."""
        known = self.consumers.get(consumer)
        self.consumers[consumer] = PlacedConsumer(
            consumer, 1 if known is None else known.generation + 1, {uuid: resources}, True,
            consumer_type, "p", "u",
        )  # fmt: skip
        provider = self.providers[uuid]
        self.providers[uuid] = replace(provider, generation=provider.generation + 1)


def make_uuid(number: int, kind: int = 0) -> str:
    return f"00000000-0000-4000-8{kind:03d}-{number:012d}"


def make_claim(number, workload=None, state=ClaimState.HELD, kind=None, **amounts) -> Claim:
    """Build a claim of a workload, by default the one with its number."""
    amounts = amounts or {"vcpu_milli": 2000, "memory_mb": 2048, "disk_mb": 10240}
    which = number if workload is None else workload
    workload = Workload(
        make_uuid(which), name=f"vm-{which}", kind=kind or WorkloadKind.INSTANCE, project_id="p1", user_id="u1",
    )  # fmt: skip
    changes = {"workload": workload, "state": state, "amounts": Amounts(**amounts)}
    return builders.make_claim(make_uuid(number, 1), created_at=later(number), **changes)


def make_move(number: int, source: Claim, dest: Claim, status=MigrationStatus.MIGRATING) -> Move:
    """Build the move between two claims."""
    migration = Migration(
        make_uuid(number, 2), source.workload.uuid, MigrationType.RESIZE, status, source.host,
        source.nodename, dest.host, dest.nodename, source.uuid, dest.uuid, NOW, NOW,
    )  # fmt: skip
    return Move(migration, source.is_active, dest.is_active)


VALUES = {
    "vcpus": 16, "memory_mb": 65536, "local_gb": 500, "pcpus": 0, "cpu_allocation_ratio": 4.0,
    "ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0,
    "reserved": {"vcpus": 0, "memory_mb": 512, "disk_mb": 0}, "overhead": {"memory_mb": 0},
}  # fmt: skip


def make_node(claims=(), guests=(), moves=(), generation=1, **values):
    """Build a node whose usage follows from its claims and guests."""
    row = NodeValues(**(VALUES | values))
    by_uuid = {guest.uuid: guest for guest in guests}
    row = replace(row, **ledger_columns(row, claims, by_uuid, {}))
    return make_record(
        row, uuid=NODE, claims={claim.uuid: claim for claim in claims}, guests=by_uuid,
        moves=tuple(moves), generation=generation,
    )  # fmt: skip


def make_random_node(rng: random.Random):
    """Build a node with claims, guests and moves, seldom overcommitted."""
    values = {
        "vcpus": rng.randrange(0, 20),
        "pcpus": rng.choice((0, 4)),
        "memory_mb": rng.randrange(1024, 65536),
        "local_gb": rng.randrange(0, 500),
        "cpu_allocation_ratio": rng.choice((1.0, 4.0, 16.0, 0.7, 1.1, 1 / 3, 0.1)),
        "ram_allocation_ratio": rng.choice((1.0, 1.5, 0.9, 1.1)),
        "disk_allocation_ratio": rng.choice((1.0, 1.5, 0.3)),
        "reserved": {
            "vcpus": rng.choice((0, 1)),
            "memory_mb": rng.choice((0, 512)),
            "disk_mb": rng.choice((0, 100, 20480)),
        },
        "overhead": {"memory_mb": rng.choice((0, 0, 13))},
        "inventory": rng.choice(
            ({}, {"CUSTOM_LICENSE": {"total": 9, "reserved": 1, "allocation_ratio": 1.0}})
        ),
        "numa_topology": rng.choice(({}, _make_pages(rng.randrange(20000)))),
    }
    claims = [
        _make_random_claim(rng, number) for number in rng.sample(range(1, 9), rng.randrange(6))
    ]
    moves = []
    if len(claims) > 1 and rng.random() < 0.4:
        dest = replace(claims[1], workload=claims[0].workload, kind=ClaimKind.MOVE)
        claims[1] = dest
        moves.append(make_move(claims[0].created_at.second, claims[0], dest))
    guests = [
        _make_random_guest(rng, number) for number in rng.sample(range(1, 9), rng.randrange(4))
    ]
    return make_node(claims, guests, moves, **values)


def _make_pages(count: int) -> dict[str, Any]:
    """Build a topology with huge pages of 1 MiB, which placement is not offered."""
    pool = {"size_kb": 1024, "total": count, "used": 0, "reserved": 0}
    cell = {"id": 0, "cpuset": [0], "pcpuset": [], "memory": 65536, "siblings": []}
    return {"cells": [cell | {"mempages": [pool]}], "is_withheld_in_placement": True}


def _make_random_claim(rng: random.Random, number: int) -> Claim:
    state = rng.choice((ClaimState.HELD, ClaimState.CONFIRMED, ClaimState.RELEASED))
    return make_claim(
        number, state=state, kind=rng.choice(tuple(WorkloadKind)),
        vcpu_milli=rng.choice((0, 500, 1000, 1500, 4000)), pcpus=rng.choice((0, 0, 1)),
        memory_mb=rng.choice((0, 64, 2048, 20000)), disk_mb=rng.choice((0, 100, 1024, 30000)),
    )  # fmt: skip


def _make_random_guest(rng: random.Random, number: int) -> Guest:
    return Guest(
        make_uuid(number), f"vm-{number}", rng.choice(tuple(WorkloadKind)),
        rng.choice((250, 1000, 8000)), rng.choice((100, 4096)), rng.choice((0, 5000)),
    )  # fmt: skip
