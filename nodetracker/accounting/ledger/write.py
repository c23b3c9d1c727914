"""Value types for the writes of ledger transactions: decided once, applied by every store.

Examples::

    # a claim is granted on node 7
    LedgerWrite(claim, new_claim=claim, nodes=(NodeWrite(7, {"vcpus_used": 4, ...}),))

    # it is aborted; its guest counts as unclaimed again
    LedgerWrite(released, changed_claims=(released,),
                nodes=(NodeWrite(7, {"vcpus_used": 4, ...}, guests=ItemDiff(changed=(guest,))),))

    # it is aborted again: nothing is written
    LedgerWrite(released)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import Claim, Migration, MigrationStatus
from nodetracker.model.guest import Guest
from nodetracker.model.pci import TrackedDevice

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """One node's part of a ledger transaction; the row's generation rises by one.

    ``updated_at`` does not change: the agent paces the writing of measurements by it.

    Attributes:
        columns: those that change. Without any, only the generation rises, so
            that the agent reads the node's claims and migrations again.
        guests: those whose claim changes, and those that are deleted.
        devices: those whose status or assignee changes, and those that are deleted.
    """

    node_id: int
    columns: Mapping[str, Any] = field(default_factory=dict)
    guests: ItemDiff[Guest] = field(default_factory=ItemDiff)
    devices: ItemDiff[TrackedDevice] = field(default_factory=ItemDiff)


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """A stored migration's next status."""

    uuid: str
    status: MigrationStatus
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerWrite(Generic[T]):
    """Everything that one ledger transaction writes, and its answer to the caller.

    Attributes:
        answer: the claim or migration as it will be stored.
        changed_claims: these differ from the stored ones only in state, reason and times.
        nodes: each node at most once.
    """

    answer: T
    new_claim: Claim | None = None
    changed_claims: tuple[Claim, ...] = ()
    nodes: tuple[NodeWrite, ...] = ()
    new_migration: Migration | None = None
    migration_step: MigrationStep | None = None
