"""Read all that placement has of one node."""

from nodetracker.accounting.placement.placed import PlacedConsumer, PlacedProvider, PlacedTree
from nodetracker.placement.client import PlacementClient


def read_tree(client: PlacementClient, uuid: str) -> PlacedTree:
    """Return the providers of a tree and the consumers on them, each with all it has.

    Raises:
        PlacementNotFoundError: a provider was deleted meanwhile.
        PlacementUnavailableError: no usable answer.
    """
    providers: dict[str, PlacedProvider] = {}
    found: dict[str, PlacedConsumer] = {}
    for summary in client.list_providers(tree=uuid):
        generation, inventories = client.read_inventories(summary.uuid)
        _, traits = client.read_traits(summary.uuid)
        _, consumers = client.read_allocations(summary.uuid)
        providers[summary.uuid] = PlacedProvider(
            summary.uuid, summary.name, generation, summary.parent_uuid, inventories, traits
        )
        found |= consumers
    whole = {consumer: client.read_consumer(consumer) for consumer in sorted(found)}
    return PlacedTree(
        providers,
        {uuid: consumer for uuid, consumer in whole.items() if consumer is not None},
    )
