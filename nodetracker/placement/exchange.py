"""Send the requests in which moves between nodes of one agent change both consumers."""

from collections.abc import Sequence
from dataclasses import replace

from nodetracker.accounting.placement.moves import plan_moves
from nodetracker.accounting.placement.placed import PlacedConsumer, PlacedTree
from nodetracker.accounting.placement.steps import (
    ReadConsumer,
    WriteConsumers,
    apply_read,
    apply_step,
)
from nodetracker.accounting.placement.tree import ProviderTree
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementNotFoundError,
    PlacementRefusedError,
)
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.state import NodeState

_FAILED = (PlacementConflictError, PlacementNotFoundError, PlacementRefusedError)


def exchange_moves(
    client: PlacementClient, states: Sequence[NodeState], wanted: Sequence[ProviderTree]
) -> None:
    """Write both consumers of each move between some nodes in one request.

    After a conflict or a refusal the nodes are to be read again, and each one's
    own report writes its part.

    Args:
        states: of nodes that were read.
        wanted: what they should have, in the same order.

    Raises:
        PlacementUnavailableError: no usable answer.
    """
    trees = [state.placed or PlacedTree() for state in states]
    for state in states:
        state.forget()  # a request that fails may have been executed
    try:
        while steps := list(plan_moves(trees, wanted)):
            for step in steps:
                if any(state.is_dropped for state in states):
                    return
                trees = _send(client, trees, step)
    except _FAILED:
        return
    for state, tree in zip(states, trees, strict=True):
        state.placed = tree


def _send(
    client: PlacementClient, trees: Sequence[PlacedTree], step: ReadConsumer | WriteConsumers
) -> list[PlacedTree]:
    if isinstance(step, ReadConsumer):
        consumer = client.read_consumer(step.uuid)
        return [_drop_others(apply_read(tree, step.uuid, consumer)) for tree in trees]
    client.write_consumers(step.writes)
    return [_drop_others(apply_step(tree, step)) for tree in trees]


def _drop_others(tree: PlacedTree) -> PlacedTree:
    """Leave out nodetracker's consumers that have nothing on the tree's providers."""

    def has_part(consumer: PlacedConsumer) -> bool:
        return consumer.is_foreign or not tree.providers.keys().isdisjoint(consumer.resources)

    kept = {uuid: consumer for uuid, consumer in tree.consumers.items() if has_part(consumer)}
    return replace(tree, consumers=kept)
