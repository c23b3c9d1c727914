"""Compare what placement has of a node with what it should have, and render it for operators."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from nodetracker.accounting.placement.consumers import Findings
from nodetracker.accounting.placement.plan import plan
from nodetracker.accounting.placement.steps import apply_step
from nodetracker.accounting.placement.tree import (
    Inventory,
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
    ProviderTree,
    Resources,
)
from nodetracker.model.serializer import encode, pick

_MAX_ROUNDS = 10
_FIELDS = tuple(field.name for field in fields(Inventory))
NOTHING = ""
"""In place of a value that does not exist."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that placement has otherwise.

    Attributes:
        what: e.g. ``VCPU reserved``, ``trait COMPUTE_NODE``, ``allocations of web (6a0e…)``.
        expected, found: `NOTHING` for what should not exist or does not.
    """

    provider: str
    what: str
    expected: str
    found: str


def compare(
    placed: PlacedTree, wanted: ProviderTree, names: Mapping[str, str] = MappingProxyType({})
) -> list[Difference]:
    """Return all differences of a node's providers; none when a report would write nothing.

    Consumers of nodetracker's types that no claim explains are differences too.

    Args:
        placed: with each of its consumers whole.
        names: uuid of a workload -> its name, "" = it has none.
    """
    expected = settle(placed, wanted)
    obsolete = [
        Difference(uuid, "provider", NOTHING, placed.providers[uuid].name)
        for uuid in sorted(placed.providers.keys() - expected.providers.keys())
    ]
    return obsolete + [
        difference
        for uuid in [provider.uuid for provider in wanted.providers]
        for difference in _compare_provider(placed, expected, uuid, names)
    ]


def settle(placed: PlacedTree, wanted: ProviderTree) -> PlacedTree:
    """Return what placement has after a complete report, should it refuse nothing."""
    findings = Findings(removable=frozenset(list_unexplained(placed, wanted)))
    tree = placed
    for _ in range(_MAX_ROUNDS):
        steps = plan(tree, wanted, findings)
        if not steps:
            break
        for step in steps:
            tree = apply_step(tree, step)
    return tree


def list_unexplained(placed: PlacedTree, wanted: ProviderTree) -> list[str]:
    """Return the consumers of nodetracker's types on a node that no claim of it explains."""
    return [
        uuid
        for uuid, consumer in sorted(placed.consumers.items())
        if not consumer.is_foreign
        and uuid not in wanted.consumers
        and not placed.providers.keys().isdisjoint(consumer.resources)
    ]


@dataclass(frozen=True, slots=True)
class ClassUsage:
    """What placement has of a resource class on a node, in whole units.

    Attributes:
        own: reserved, plus what nodetracker's consumers have.
        others: uuid of any other consumer -> what it has.
    """

    own: int
    others: Mapping[str, int]


def sum_usage(placed: PlacedTree, uuid: str) -> dict[str, ClassUsage]:
    """Return the usage of each class of a provider, empty if it does not exist.

    Args:
        placed: with each of its consumers whole.
    """
    if uuid not in placed.providers:
        return {}
    found = {}
    for name, inventory in placed.providers[uuid].inventories.items():
        held = {
            consumer.uuid: consumer.resources.get(uuid, {}).get(name, 0)
            for consumer in placed.consumers.values()
        }
        others = {
            key: amount
            for key, amount in sorted(held.items())
            if amount and placed.consumers[key].is_foreign
        }
        own = inventory.reserved + sum(held.values()) - sum(others.values())
        found[name] = ClassUsage(own, others)
    return found


def describe_owner(consumer: PlacedConsumer, wanted: ProviderTree) -> str:
    """Return whose a consumer is: a claim's, unknown to the ledger, or another program's."""
    if consumer.is_foreign:
        return "other"
    return "claim" if consumer.uuid in wanted.consumers else "unknown"


def render_resources(resources: Resources) -> str:
    """Return amounts as text, e.g. ``MEMORY_MB 2048, VCPU 2``."""
    return ", ".join(f"{name} {amount}" for name, amount in sorted(resources.items()))


def _compare_provider(
    placed: PlacedTree, wanted: PlacedTree, uuid: str, names: Mapping[str, str]
) -> Iterator[Difference]:
    expected, found = wanted.providers[uuid], placed.providers.get(uuid)
    if found is None:
        yield Difference(uuid, "provider", expected.name, NOTHING)
        found = PlacedProvider(uuid, expected.name, 0)
    if found.name != expected.name:
        yield Difference(uuid, "name", expected.name, found.name)
    for trait in sorted(expected.traits ^ found.traits):
        is_expected = trait in expected.traits
        values = ("present", NOTHING) if is_expected else (NOTHING, "present")
        yield Difference(uuid, f"trait {trait}", *values)
    for name in sorted(expected.inventories.keys() | found.inventories.keys()):
        yield from _compare_class(
            uuid, name, expected.inventories.get(name), found.inventories.get(name)
        )
    yield from _compare_consumers(uuid, wanted.consumers, placed.consumers, names)


def _compare_class(
    uuid: str, name: str, expected: Inventory | None, found: Inventory | None
) -> Iterator[Difference]:
    if expected is None or found is None:
        totals = [NOTHING if entry is None else str(entry.total) for entry in (expected, found)]
        yield Difference(uuid, f"{name} total", *totals)
    elif not expected.equals(found):
        for field in _FIELDS:
            values = getattr(expected, field), getattr(found, field)
            if values[0] != values[1]:
                yield Difference(uuid, f"{name} {field}", *map(str, values))


def _compare_consumers(
    uuid: str,
    expected: Mapping[str, PlacedConsumer],
    found: Mapping[str, PlacedConsumer],
    names: Mapping[str, str],
) -> Iterator[Difference]:
    for consumer in sorted(expected.keys() | found.keys()):
        wanted, had = (_render_part(side.get(consumer), uuid) for side in (expected, found))
        if wanted != had:
            name = names.get(consumer)
            label = f"{name} ({consumer})" if name else consumer
            yield Difference(uuid, f"allocations of {label}", wanted, had)


def _render_part(consumer: PlacedConsumer | None, uuid: str) -> str:
    return NOTHING if consumer is None else render_resources(consumer.resources.get(uuid, {}))


def render_provider(placed: PlacedTree, uuid: str) -> dict[str, Any]:
    provider = placed.providers[uuid]
    used: dict[str, int] = {}
    for consumer in placed.consumers.values():
        for name, amount in consumer.resources.get(uuid, {}).items():
            used[name] = used.get(name, 0) + amount
    return {
        **pick(provider, "uuid", "name", "parent_uuid", "generation"),
        "inventories": {
            name: {**encode(entry), "used": used.get(name, 0)}
            for name, entry in sorted(provider.inventories.items())
        },
        "traits": sorted(provider.traits),
    }


def render_consumers(placed: PlacedTree, wanted: ProviderTree) -> list[dict[str, Any]]:
    return [
        {
            **pick(consumer, "uuid", "type"),
            "owner": describe_owner(consumer, wanted),
            **pick(consumer, "project_id", "user_id", "resources"),
        }
        for _, consumer in sorted(placed.consumers.items())
    ]


def draw_provider(provider: dict[str, Any]) -> Iterator[str]:
    yield f"{provider['name']} ({provider['uuid']}), generation {provider['generation']}"
    for name, entry in provider["inventories"].items():
        yield (
            f"  {name}: total {entry['total']}, reserved {entry['reserved']}, "
            f"ratio {entry['allocation_ratio']:g}, used {entry['used']}"
        )
    yield f"  traits: {', '.join(provider['traits'])}"


def draw_consumer(consumer: dict[str, Any]) -> str:
    amounts = "; ".join(map(render_resources, consumer["resources"].values()))
    return f"{consumer['uuid']} {consumer['type']} ({consumer['owner']}): {amounts}"
