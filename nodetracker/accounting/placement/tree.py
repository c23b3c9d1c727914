"""What placement should have of a node, and what it has.

The description is made of a stored node alone. How much of a class is reserved
also depends on what consumers have in placement, so `plan` computes that.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Resources = Mapping[str, int]
"""Resource class -> amount in whole units of the class."""

OWNER_TRAIT = "CUSTOM_OWNER_NODETRACKER"
NOVA_TRAIT = "OWNER_NOVA"
"""Of providers that a nova-compute reports to."""
NODE_TRAIT = "COMPUTE_NODE"
DISABLED_TRAIT = "COMPUTE_STATUS_DISABLED"
SPARE_TRAIT = "CUSTOM_NODETRACKER_SPARE"
NIL_UUID = "00000000-0000-0000-0000-000000000000"
"""Project and user of a workload whose own are unknown; placement refuses empty ones."""


class ConsumerType(enum.StrEnum):
    """The types of nodetracker's consumers; no consumer of another type is ever written."""

    INSTANCE = "NODETRACKER_INSTANCE"
    CONTAINER = "NODETRACKER_CONTAINER"
    MIGRATION = "NODETRACKER_MIGRATION"


OWN_TYPES = frozenset(member.value for member in ConsumerType)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The inventory of one resource class as placement has it, in units of the class."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = 1
    step_size: int = 1

    @property
    def capacity(self) -> int:
        """The most that consumers may have, in whole units, computed as placement does."""
        return math.floor((self.total - self.reserved) * self.allocation_ratio)

    def equals(self, other: "Inventory") -> bool:
        """Compare with another one; some databases keep ratios with six digits only."""
        ratios = (self.allocation_ratio, other.allocation_ratio)
        return self._integers == other._integers and math.isclose(*ratios, rel_tol=1e-5)

    @property
    def _integers(self) -> tuple[int, ...]:
        return (self.total, self.reserved, self.min_unit, self.max_unit, self.step_size)


@dataclass(frozen=True, slots=True)
class LedgerClass:
    """One resource class of a provider as the ledger accounts it.

    Attributes:
        total, reserved, min_unit, max_unit, step_size: in units of the class;
            `reserved` is the row's, rounded up.
        parts: of one unit; the amounts below are whole parts.
        charged: what claims and guests take, without `reserved`.
        grantable: what the ledger would still grant; negative on an overcommitted node.
        charges: uuid of a workload -> its part of `charged`.
        is_one_time: once used, nothing is offered any more until somebody sets
            `reserved` back in placement.
    """

    total: int
    reserved: int
    allocation_ratio: float
    charged: int
    grantable: int
    charges: Mapping[str, int]
    parts: int = 1
    min_unit: int = 1
    max_unit: int = 1
    step_size: int = 1
    is_one_time: bool = False

    def inventory(self, reserved: int) -> Inventory:
        return Inventory(
            self.total, max(0, min(self.total, reserved)), self.allocation_ratio, self.min_unit,
            self.max_unit, self.step_size,
        )  # fmt: skip

    def reserved_for(self, allocated: Mapping[str, int]) -> int:
        """Return how much to reserve, so that placement offers no more than the ledger grants.

        That is the row's own reservation, and whatever is charged and cannot be
        an allocation: unclaimed guests, parts of units, and what placement refused.

        Args:
            allocated: uuid of a workload -> units that consumers which represent it have.

        >>> cpu = LedgerClass(16, 0, 4.0, charged=9500, grantable=54500, parts=1000,
        ...                   charges={"claimed": 1500, "unclaimed": 8000})
        >>> cpu.reserved_for({"claimed": 1})  # 8.5 of 64, and 4 are 1 CPU
        3
        """
        if self.allocation_ratio <= 0 or (self.is_one_time and self.charged):
            return self.total
        covered = sum(
            min(units * self.parts, self.charges.get(workload, 0))
            for workload, units in allocated.items()
        )
        uncovered = Fraction(max(0, self.charged - covered), self.parts)
        reserved = self.reserved + math.ceil(uncovered / Fraction(self.allocation_ratio))
        # The ledger also grants nothing while a fact is unknown.
        most = (self.grantable + covered) // self.parts
        return min(self.total, max(reserved, self.reserved_above(most)))

    def is_used_up(self, inventory: Inventory | None) -> bool:
        """Return whether placement has the class as one that was used its one time."""
        return self.is_one_time and inventory is not None and inventory.reserved == inventory.total

    def reserved_above(self, capacity: int) -> int:
        """Return the smallest reservation that leaves consumers no more than a capacity."""
        if self.allocation_ratio <= 0:
            return self.total
        units = math.ceil(Fraction(capacity + 1) / Fraction(self.allocation_ratio)) - 1
        while units > 0 and self.inventory(self.total - units).capacity > capacity:
            units -= 1  # a product of floats was rounded up
        return min(self.total, max(0, self.total - units))

    def reserved_below(self, capacity: int) -> int:
        """Return the largest reservation that leaves consumers a capacity; may be negative."""
        if self.allocation_ratio <= 0:
            return 0
        units = math.ceil(Fraction(capacity) / Fraction(self.allocation_ratio))
        while self.total >= units and self.inventory(self.total - units).capacity < capacity:
            units += 1  # a product of floats was rounded down
        return self.total - units


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a workload, or the source of its move, should have on the node's providers.

    Attributes:
        resources: uuid of a provider -> amounts.
    """

    uuid: str
    type: ConsumerType
    workload_uuid: str
    project_id: str
    user_id: str
    resources: Mapping[str, Resources]


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of the node.

    Attributes:
        parent_uuid: None for the node itself.
        classes: by name; those with a total of 0 are left out.
        traits: those that follow from the row.
    """

    uuid: str
    name: str
    parent_uuid: str | None
    classes: Mapping[str, LedgerClass]
    traits: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProviderTree:
    """What placement should have of a node.

    Attributes:
        providers: the node first, then its children.
        workload_of: uuid of a consumer -> the workload that it represents,
            whoever created it: each workload by its own uuid, guests without
            a claim too, and the open moves from this node.
        released: uuids of workloads whose claims on the node the ledger released.
    """

    nodename: str
    providers: tuple[Provider, ...]
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    workload_of: Mapping[str, str] = field(default_factory=dict)
    released: frozenset[str] = frozenset()

    @property
    def root(self) -> Provider:
        return self.providers[0]

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(provider.uuid for provider in self.providers)


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
