"""Read what placement has of one node."""

from collections.abc import Sequence
from dataclasses import replace

from nodetracker.accounting.placement.placed import (
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
    ProviderSummary,
)
from nodetracker.placement.client import PlacementClient


def read_tree(client: PlacementClient, uuid: str) -> PlacedTree:
    """Return the providers of a tree and the consumers on them, each with all it has.

    Raises: as `read_providers`.
    """
    tree = read_providers(client, client.list_providers(tree=uuid))
    whole = {consumer: client.read_consumer(consumer) for consumer in sorted(tree.consumers)}
    return replace(
        tree, consumers={uuid: found for uuid, found in whole.items() if found is not None}
    )


def read_providers(client: PlacementClient, summaries: Sequence[ProviderSummary]) -> PlacedTree:
    """Return providers, three requests each, and the parts that consumers have on them.

    Raises:
        PlacementNotFoundError: a provider was deleted meanwhile.
        PlacementUnavailableError: no usable answer.
    """
    providers, consumers = {}, dict[str, PlacedConsumer]()
    for summary in summaries:
        inventories = client.read_inventories(summary.uuid)
        traits = client.read_traits(summary.uuid)
        generation, found = client.read_allocations(summary.uuid)
        # The earliest of several generations: a write of this state is then a conflict.
        providers[summary.uuid] = PlacedProvider(
            summary.uuid, summary.name, min(inventories[0], traits[0], generation),
            summary.parent_uuid, inventories[1], traits[1],
        )  # fmt: skip
        for consumer in found.values():
            consumers[consumer.uuid] = _merge(consumers.get(consumer.uuid), consumer)
    return PlacedTree(providers, consumers)


def _merge(known: PlacedConsumer | None, found: PlacedConsumer) -> PlacedConsumer:
    """Return a consumer with its parts on two of the node's providers."""
    if known is None:
        return found
    return replace(found, resources={**known.resources, **found.resources})
