"""Value types for the steps by which placement is brought in line with a node.

Each step is one request. `apply_step` returns what placement has after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.accounting.placement.tree import (
    Inventory,
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
    Resources,
)


@dataclass(frozen=True, slots=True)
class CreateProvider:
    """Create a provider."""

    uuid: str
    name: str
    parent_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class RenameProvider:
    """Give a provider another name."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class DeleteProvider:
    """Delete a provider that has neither allocations nor children."""

    uuid: str


@dataclass(frozen=True, slots=True)
class SetTraits:
    """Replace the traits of a provider."""

    uuid: str
    traits: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetInventories:
    """Replace the inventories of a provider."""

    uuid: str
    inventories: Mapping[str, Inventory]


@dataclass(frozen=True, slots=True)
class ReadConsumer:
    """Read a consumer of which only the part on this node is known, or nothing."""

    uuid: str


@dataclass(frozen=True, slots=True)
class ConsumerWrite:
    """All that one consumer is to have.

    Attributes:
        generation: the consumer's, None for a new one.
        resources: uuid of a provider -> amounts; empty deletes the consumer.
    """

    uuid: str
    generation: int | None
    type: str
    project_id: str
    user_id: str
    resources: Mapping[str, Resources]


@dataclass(frozen=True, slots=True)
class WriteConsumers:
    """Replace what some consumers have, in one request: all of them or none."""

    writes: tuple[ConsumerWrite, ...]


Step = (
    CreateProvider
    | RenameProvider
    | DeleteProvider
    | SetTraits
    | SetInventories
    | ReadConsumer
    | WriteConsumers
)


def apply_step(tree: PlacedTree, step: Step) -> PlacedTree:
    """Return what placement has after a step; a step that reads changes nothing.

    Each write of a provider raises its generation by one, and a write of
    consumers that of each provider on which they have something afterwards, or
    had something if they are deleted. Had somebody else written meanwhile, the
    generation would be a lower one than placement's, and the next write a conflict.
    """
    match step:
        case CreateProvider(uuid, name, parent_uuid):
            provider = PlacedProvider(uuid, name, 0, parent_uuid)
            return _with_provider(tree, provider)
        case RenameProvider(uuid, name):
            return _with_provider(tree, replace(tree.providers[uuid], name=name))
        case DeleteProvider(uuid):
            kept = {key: value for key, value in tree.providers.items() if key != uuid}
            return replace(tree, providers=kept)
        case SetTraits(uuid, traits):
            return _with_provider(tree, _raised(tree.providers[uuid], traits=traits))
        case SetInventories(uuid, inventories):
            return _with_provider(tree, _raised(tree.providers[uuid], inventories=inventories))
        case WriteConsumers(writes):
            return _apply_writes(tree, writes)
    return tree


def apply_read(tree: PlacedTree, uuid: str, consumer: PlacedConsumer | None) -> PlacedTree:
    """Return a tree with a consumer as it was read; None = it has nothing."""
    kept = {key: value for key, value in tree.consumers.items() if key != uuid}
    return replace(tree, consumers=kept if consumer is None else kept | {uuid: consumer})


def _raised(provider: PlacedProvider, **changes: Any) -> PlacedProvider:
    return replace(provider, generation=provider.generation + 1, **changes)


def _with_provider(tree: PlacedTree, provider: PlacedProvider) -> PlacedTree:
    return replace(tree, providers={**tree.providers, provider.uuid: provider})


def _apply_writes(tree: PlacedTree, writes: Iterable[ConsumerWrite]) -> PlacedTree:
    consumers, visited = dict(tree.consumers), set[str]()
    for write in writes:
        before = consumers.pop(write.uuid, None)
        if write.resources:
            visited |= write.resources.keys()
            generation = 1 if write.generation is None else write.generation + 1
            consumers[write.uuid] = PlacedConsumer(
                write.uuid, generation, write.resources, True, write.type, write.project_id,
                write.user_id,
            )  # fmt: skip
        elif before is not None:
            visited |= before.resources.keys()
    providers = {
        uuid: replace(provider, generation=provider.generation + (uuid in visited))
        for uuid, provider in tree.providers.items()
    }
    return replace(tree, providers=providers, consumers=consumers)
