"""What an operator adds to nodes' providers by files, as in Nova's provider.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClassInventory:
    """The inventory of a resource class.

    Attributes:
        max_unit: the largest amount of one workload, None = `total`.
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int | None = None
    step_size: int = 1
    allocation_ratio: float = 1.0

    def as_entry(self) -> dict[str, Any]:
        """Return the class's value in the row's column ``inventory``."""
        return {
            "total": self.total,
            "reserved": self.reserved,
            "min_unit": self.min_unit,
            "max_unit": self.total if self.max_unit is None else self.max_unit,
            "step_size": self.step_size,
            "allocation_ratio": self.allocation_ratio,
        }


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """One entry of a provider.yaml file.

    Attributes:
        source: path of the file.
        uuid: of the node; None when the entry has a name, or is for every node.
        name: of the node.
        inventories: resource class -> inventory; all are custom classes.
        traits: all are custom traits.
    """

    source: str
    uuid: str | None = None
    name: str | None = None
    inventories: Mapping[str, ClassInventory] = field(default_factory=dict)
    traits: tuple[str, ...] = ()

    @property
    def identification(self) -> str:
        """The node as the file identifies it."""
        return self.uuid or self.name or EVERY_NODE

    @property
    def is_for_every_node(self) -> bool:
        """True when it is for all nodes without an entry of their own."""
        return self.uuid is None and self.name is None


EVERY_NODE = "$COMPUTE_NODE"
"""Identifies all nodes of a host that no other entry identifies."""
