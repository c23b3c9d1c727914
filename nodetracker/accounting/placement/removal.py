"""Plan how the providers of a deleted node are removed from placement."""

from collections.abc import Iterable
from dataclasses import dataclass

from nodetracker.accounting.placement.placed import PlacedConsumer, PlacedTree
from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import NOVA_TRAIT
from nodetracker.model.provider import ProviderRemoval
from nodetracker.model.warning import WARNING_ITEM_LENGTH, HostWarning, WarningKind

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What is written and deleted, in this order.

    Attributes:
        writes: nodetracker's consumers without their parts on the tree.
        deletions: uuids of providers, children first; empty when they have to stay.
        obstacle: why they have to stay, None if they need not.
    """

    writes: tuple[ConsumerWrite, ...]
    deletions: tuple[str, ...]
    obstacle: str | None = None


def plan_removal(placed: PlacedTree) -> RemovalPlan:
    """Plan the removal of a whole tree.

    Consumers of other types are their makers', and so is a tree of Nova's: they keep it.

    Args:
        placed: with all consumers that have anything on it, each of them whole.
    """
    if any(NOVA_TRAIT in provider.traits for provider in placed.providers.values()):
        return RemovalPlan((), (), f"the provider has the trait {NOVA_TRAIT}")
    consumers = [placed.consumers[uuid] for uuid in sorted(placed.consumers)]
    writes = tuple(_without(consumer, placed) for consumer in consumers if not consumer.is_foreign)
    foreign = [consumer.uuid for consumer in consumers if consumer.is_foreign]
    if foreign:
        return RemovalPlan(writes, (), _describe_foreign(foreign))
    return RemovalPlan(writes, tuple(_list_leaves_first(placed)))


def _list_leaves_first(placed: PlacedTree) -> list[str]:
    """Return the providers of a tree, children before their parents.

    Others put providers below a node's too: Neutron's agents, with their bridges below them.
    """

    def depth(uuid: str) -> int:
        parent = placed.providers[uuid].parent_uuid or ""
        return 1 + depth(parent) if parent in placed.providers else 0

    return sorted(placed.providers, key=lambda uuid: (-depth(uuid), uuid))


def explain_removals(removals: Iterable[ProviderRemoval]) -> list[HostWarning]:
    """Return a warning for each removal whose last attempt failed."""
    return [
        HostWarning(
            WarningKind.PLACEMENT_REMOVAL,
            removal.name,
            removal.provider_uuid[:WARNING_ITEM_LENGTH],
            f"provider {removal.provider_uuid} of the deleted node {removal.name} cannot be "
            f"removed from placement: {removal.error}",
        )
        for removal in removals
        if removal.error is not None
    ]


def _without(consumer: PlacedConsumer, placed: PlacedTree) -> ConsumerWrite:
    """Return the write after which a consumer has nothing on a tree any more."""
    own = placed.providers.keys()
    kept = {uuid: amounts for uuid, amounts in consumer.resources.items() if uuid not in own}
    return ConsumerWrite(
        consumer.uuid,
        consumer.generation,
        consumer.type,
        consumer.project_id,
        consumer.user_id,
        kept,
    )


def _describe_foreign(uuids: list[str]) -> str:
    named = ", ".join(uuids[:_MOST_NAMED])
    more = len(uuids) - _MOST_NAMED
    suffix = f" and {more} more" if more > 0 else ""
    return f"consumers of others have allocations on it: {named}{suffix}"
