"""Providers in placement: what files add to those of nodes, and which remain to be deleted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.model.serializer import encode


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
        max_unit = self.total if self.max_unit is None else self.max_unit
        return {**encode(self), "max_unit": max_unit}


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
    def is_empty(self) -> bool:
        """True when it adds nothing; as in Nova it is ignored, with a warning."""
        return not self.inventories and not self.traits

    @property
    def is_for_every_node(self) -> bool:
        """True when it is for all nodes without an entry of their own."""
        return self.uuid is None and self.name is None


EVERY_NODE = "$COMPUTE_NODE"
"""Identifies all nodes of a host that no other entry identifies."""


@dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """A row of ``provider_removals``: a provider that is to be deleted from placement.

    Attributes:
        provider_uuid, name: of the provider, which are those of the deleted node.
        host: of the deleted node.
        workloads: uuids of the workloads that had claims on the node, sorted.
        attempts: number of times that a process started to remove it.
        error: why the last attempt failed; None while one runs, or before the first.
        lease_until: no other process attempts it before.
    """

    provider_uuid: str
    name: str
    host: str
    workloads: tuple[str, ...]
    created_at: datetime
    attempts: int = 0
    error: str | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RemovalQuery:
    """Which removals a process takes.

    Attributes:
        host: only of this host; None = of all.
        is_unserved: only of hosts without an agent's service.
        is_urgent: also those whose last attempt failed and whose next one is not due yet.
        lease_seconds: for which no other process takes them.
        limit: the most to take.
    """

    host: str | None = None
    is_unserved: bool = False
    is_urgent: bool = False
    lease_seconds: float = 120.0
    limit: int = 100
