"""Render what placement has of a node for operators."""

from collections.abc import Iterator
from typing import Any

from nodetracker.accounting.placement.comparison import describe_owner, render_resources
from nodetracker.accounting.placement.placed import PlacedTree
from nodetracker.accounting.placement.tree import ProviderTree


def render_provider(placed: PlacedTree, uuid: str) -> dict[str, Any]:
    """Return a provider with its inventories, what is used of them, and its traits."""
    provider = placed.providers[uuid]
    used: dict[str, int] = {}
    for consumer in placed.consumers.values():
        for name, amount in consumer.resources.get(uuid, {}).items():
            used[name] = used.get(name, 0) + amount
    return {
        "uuid": uuid,
        "name": provider.name,
        "parent_uuid": provider.parent_uuid,
        "generation": provider.generation,
        "inventories": {
            name: {
                "total": entry.total,
                "reserved": entry.reserved,
                "allocation_ratio": entry.allocation_ratio,
                "min_unit": entry.min_unit,
                "max_unit": entry.max_unit,
                "step_size": entry.step_size,
                "used": used.get(name, 0),
            }
            for name, entry in sorted(provider.inventories.items())
        },
        "traits": sorted(provider.traits),
    }


def render_consumers(placed: PlacedTree, wanted: ProviderTree) -> list[dict[str, Any]]:
    """Return the consumers of a tree, with whose they are."""
    return [
        {
            "uuid": consumer.uuid,
            "type": consumer.type,
            "owner": describe_owner(consumer, wanted),
            "project_id": consumer.project_id,
            "user_id": consumer.user_id,
            "resources": {key: dict(value) for key, value in consumer.resources.items()},
        }
        for _, consumer in sorted(placed.consumers.items())
    ]


def draw_provider(provider: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a provider for people."""
    yield f"{provider['name']} ({provider['uuid']}), generation {provider['generation']}"
    for name, entry in provider["inventories"].items():
        yield (
            f"  {name}: total {entry['total']}, reserved {entry['reserved']}, "
            f"ratio {entry['allocation_ratio']:g}, used {entry['used']}"
        )
    yield f"  traits: {', '.join(provider['traits'])}"


def draw_consumer(consumer: dict[str, Any]) -> str:
    """Return the line of a consumer for people."""
    amounts = "; ".join(map(render_resources, consumer["resources"].values()))
    return f"{consumer['uuid']} {consumer['type']} ({consumer['owner']}): {amounts}"
