"""Value types for what placement has of a node, as it was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodetracker.accounting.placement.tree import OWN_TYPES, Inventory, Resources


@dataclass(frozen=True, slots=True)
class ProviderSummary:
    """A provider as lists have it.

    Attributes:
        generation: raised by every write of inventories, traits, aggregates or allocations.
        root_uuid: uuid of the provider at the top of its tree.
    """

    uuid: str
    name: str
    generation: int
    root_uuid: str
    parent_uuid: str | None = None


def keep_below(summaries: Sequence[ProviderSummary], uuid: str) -> list[ProviderSummary]:
    """Return a provider and those below it, of any depth, from the providers of a tree.

    >>> root, node, card = (ProviderSummary(name, name, 0, "a", parent)
    ...                     for name, parent in (("a", None), ("b", "a"), ("c", "b")))
    >>> [found.uuid for found in keep_below([root, node, card], "b")]
    ['b', 'c']
    """
    kept, size = {uuid}, 0
    while size < len(kept):
        size = len(kept)
        kept |= {summary.uuid for summary in summaries if summary.parent_uuid in kept}
    return [summary for summary in summaries if summary.uuid in kept]


@dataclass(frozen=True, slots=True)
class PlacedProvider:
    """A provider with its inventories and traits."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlacedConsumer:
    """A consumer of one of the node's providers.

    Attributes:
        resources: uuid of a provider -> amounts.
        is_whole: `resources` has the other nodes' providers too, and the
            attributes below are known; a provider's list has none of that.
    """

    uuid: str
    generation: int
    resources: Mapping[str, Resources]
    is_whole: bool = False
    type: str = ""
    project_id: str = ""
    user_id: str = ""

    @property
    def is_foreign(self) -> bool:
        """True when it is known to be of a type that is not nodetracker's."""
        return self.is_whole and self.type not in OWN_TYPES


@dataclass(frozen=True, slots=True)
class PlacedTree:
    """What placement has of a node: providers and consumers by uuid."""

    providers: Mapping[str, PlacedProvider] = field(default_factory=dict)
    consumers: Mapping[str, PlacedConsumer] = field(default_factory=dict)
