"""What a ledger transaction reads under lock before it decides, and what it writes.

It is decided once and applied by every store. Examples of writes::

    # a claim is granted on node 7
    LedgerWrite(claim, (claim,), new_claim=claim, nodes=(NodeWrite(7, {"vcpus_used": 4, ...}),))

    # it is aborted; its guest counts as unclaimed again
    LedgerWrite(released, (released,), changed_claims=(released,),
                nodes=(NodeWrite(7, {"vcpus_used": 4, ...}, guests=ItemDiff(changed=(guest,))),))

    # it is aborted again: nothing is written
    LedgerWrite(released, (released,))
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from nodetracker.accounting.numa.cells import count_named, list_guest_assignments
from nodetracker.accounting.usage import charge_of_claims, charge_of_workload, overhead_of
from nodetracker.accounting.withheld import mark_withheld
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ItemDiff, StoreEvent
from nodetracker.model.claim import (
    Claim,
    Migration,
    MigrationStatus,
    Requirement,
    Workload,
)
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import NumaAssignment
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceAvailability

T = TypeVar("T", bound=Claim | Migration)


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """One node's part of a ledger transaction; the row's generation rises by one.

    ``updated_at`` does not change: the agent paces the writing of measurements by it.

    Attributes:
        columns: those that change. Without any, only the generation rises, so
            that the agent reads the node's claims and migrations again.
        guests: those whose claim changes, and those that are deleted.
        devices: those whose status or assignee changes, and those that are deleted.
        huge_mb_unused: see `NodeLimits`, None = unchanged. No other limit follows from claims.
        stopped: guests that are off from now on.
    """

    node_id: int
    columns: Mapping[str, Any] = field(default_factory=dict)
    guests: ItemDiff[Guest] = field(default_factory=ItemDiff)
    devices: ItemDiff[TrackedDevice] = field(default_factory=ItemDiff)
    huge_mb_unused: int | None = None
    stopped: tuple[Guest, ...] = ()


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """A stored migration's next status."""

    uuid: str
    status: MigrationStatus
    updated_at: datetime

    def advance(self, migration: Migration) -> Migration:
        """Return the migration as it will be stored."""
        return replace(migration, status=self.status, updated_at=self.updated_at)


@dataclass(frozen=True, slots=True)
class LedgerWrite(Generic[T]):
    """Everything that one ledger transaction writes, and its answer to the caller.

    Attributes:
        answer: the claim or migration as it will be stored.
        notified: claims and migrations of which observers are notified, as they will be stored.
        requirement: what the new claim asked for.
        changed_claims: these differ from the stored ones only in state, reason and times.
        nodes: each node at most once.
    """

    answer: T
    notified: tuple[Claim | Migration, ...] = ()
    new_claim: Claim | None = None
    requirement: Requirement | None = None
    changed_claims: tuple[Claim, ...] = ()
    nodes: tuple[NodeWrite, ...] = ()
    new_migration: Migration | None = None
    migration_step: MigrationStep | None = None

    @property
    def event(self) -> StoreEvent:
        """What observers learn after the commit."""
        places = [place for item in (self.answer, *self.notified) for place in item.places]
        return StoreEvent(
            claims=tuple(item for item in self.notified if isinstance(item, Claim)),
            migrations=tuple(item for item in self.notified if isinstance(item, Migration)),
            places=tuple(dict.fromkeys(places)),
        )


@dataclass(frozen=True, slots=True)
class LockedNode:
    """A node with its row locked, with what matters for one workload.

    A store reads what the transaction needs and leaves the rest empty:
    assignments if the claim or the workload's guest is on NUMA cells or huge pages,
    devices if the claim has any, used resources if the request has any.

    Attributes:
        values: the `ADMISSION_COLUMNS`; other columns have a new row's values.
        service: of the host's agent, None when the host has none.
        guest: the workload's guest as stored, None when the node has none.
        now: the database's time.
        claimed: charge of the workload's active claims on the node.
        claim_assignments: claim uuid -> assignment, of the node's active claims.
        own_claims: those of `claim_assignments` that are of the workload.
        guest_assignments: guest uuid -> what it takes beside claims, see `assignment_of`.
        devices: address -> PCI device.
        used_resources: resource class without columns -> amount that active claims hold.
    """

    id: int
    host: str
    nodename: str
    values: NodeValues
    service: ServiceAvailability | None
    guest: Guest | None
    now: datetime
    claimed: Amounts = field(default_factory=Amounts)
    claim_assignments: Mapping[str, NumaAssignment] = field(default_factory=dict)
    own_claims: frozenset[str] = frozenset()
    guest_assignments: Mapping[str, NumaAssignment] = field(default_factory=dict)
    devices: Mapping[str, TrackedDevice] = field(default_factory=dict)
    used_resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def overhead_mb(self) -> int:
        """Memory that the driver adds to each instance, in MiB."""
        return overhead_of(self.values)

    @property
    def charge(self) -> Amounts:
        """The amounts that the workload takes of the node."""
        return charge_of_workload(self.claimed, self.guest, self.overhead_mb)

    @property
    def unclaimed_guest(self) -> Guest | None:
        """The workload's guest unless a claim is assigned to it."""
        return None if self.guest is None or self.guest.claim_uuid is not None else self.guest

    @property
    def own_assignments(self) -> list[NumaAssignment]:
        """Those of the workload's claims."""
        return [self.claim_assignments[uuid] for uuid in self.own_claims]

    def for_workload(self, workload: Workload) -> "LockedNode":
        """Return the node as a claim of a workload sees it: without a guest of another workload."""
        if self.guest is None or workload.may_be(self.guest):
            return self
        return replace(self, guest=None)

    @property
    def has_cells(self) -> bool:
        """True when the workload's guest is bound to NUMA cells, or has huge pages."""
        return self.guest is not None and self.guest.pins.is_on_cells

    def without_guest_cells(self) -> "LockedNode":
        """Return the node without what the workload's guest takes of its cells beside claims."""
        uuid = None if self.guest is None else self.guest.uuid
        if uuid not in self.guest_assignments:
            return self
        others = {key: numa for key, numa in self.guest_assignments.items() if key != uuid}
        return replace(self, guest_assignments=others)

    def count_named(self) -> int:
        """Return how many dedicated CPUs its guests name, see `numa.cells.count_named`."""
        return count_named(self.claim_assignments.values(), self.guest_assignments.values())


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node with its row locked, with what matters for several workloads.

    Attributes:
        node: as a workload sees it that has neither guest nor claims there.
        guests: of those workloads, by uuid.
        claims: active claims of those workloads, by the workload's uuid.
    """

    node: LockedNode
    guests: Mapping[str, Guest] = field(default_factory=dict)
    claims: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)

    def see(self, workload_uuid: str) -> LockedNode:
        """Return the node as one of the workloads sees it."""
        mine = self.claims.get(workload_uuid, ())
        return replace(
            self.node,
            guest=self.guests.get(workload_uuid),
            claimed=charge_of_claims(mine, self.node.overhead_mb),
            own_claims=frozenset(claim.uuid for claim in mine if claim.numa is not None),
        )

    def add(self, claim: Claim, after: LockedNode) -> "SharedNode":
        """Return the node with one more claim, as all see it.

        Args:
            after: as the claim's workload sees it.
        """
        uuid = claim.workload.uuid
        own = {} if after.guest is None else {uuid: after.guest}
        return SharedNode(
            replace(after, guest=None, claimed=Amounts(), own_claims=frozenset()),
            {**self.guests, **own},
            {**self.claims, uuid: (*self.claims.get(uuid, ()), claim)},
        )


@dataclass(frozen=True, slots=True)
class LockedClaim:
    """A claim with its node locked.

    Attributes:
        others: the workload's other active claims on the node, oldest first.
        source_of: uuid of the running migration whose source it is, or None.
        destination_of: the migration whose destination it is or was, or None; read only
            where the claim may be released.
        other_ends: ids of the nodes of the other claims of its open migrations,
            locked too; without its own node.
    """

    claim: Claim
    node: LockedNode
    others: tuple[Claim, ...] = ()
    source_of: str | None = None
    destination_of: Migration | None = None
    other_ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LockedMove:
    """A requested move with both of its nodes locked.

    Attributes:
        dest: the node that the workload is to move to.
        claims: uuid -> claim: the workload's claims and the source.
        migrations: the workload's migrations.
    """

    dest: LockedNode
    claims: Mapping[str, Claim]
    migrations: tuple[Migration, ...]


@dataclass(frozen=True, slots=True)
class LockedMigration:
    """A migration with its nodes locked.

    Attributes:
        nodes: id -> node, of those of its claims that exist.
        claims: uuid -> claim of the workload, oldest first.
        now: the database's time.
    """

    migration: Migration
    nodes: Mapping[int, LockedNode]
    claims: Mapping[str, Claim]
    now: datetime

    def list_others(self, claim: Claim) -> tuple[Claim, ...]:
        """Return the workload's other active claims on the claim's node, oldest first."""
        return tuple(
            other
            for other in self.claims.values()
            if other.is_active and other.node_id == claim.node_id and other.uuid != claim.uuid
        )


def assume_locked(node: LedgerNode, workload_uuid: str) -> LockedNode:
    """Return a node that was read without a lock as a transaction for a workload would read it."""
    values = node.values
    guests = {**node.larger, **node.unclaimed}
    mine = [claim for claim in node.claims if claim.workload.uuid == workload_uuid]
    used: Counter[str] = Counter()
    for claim in node.claims:
        used.update(claim.amounts.resources)
    return LockedNode(
        id=node.id,
        host=node.host,
        nodename=node.nodename,
        values=values,
        service=node.service,
        guest=guests.get(workload_uuid),
        now=node.now,
        claimed=charge_of_claims(mine, overhead_of(values)),
        claim_assignments={c.uuid: c.numa for c in node.claims if c.numa is not None},
        own_claims=frozenset(claim.uuid for claim in mine if claim.numa is not None),
        guest_assignments=list_guest_assignments(guests.values()),
        devices=mark_withheld(node.devices, values),
        used_resources=used,
    )


def share_node(node: LedgerNode) -> SharedNode:
    """Return a node that was read without a lock as a transaction for several workloads would."""
    claims: dict[str, tuple[Claim, ...]] = {}
    for claim in node.claims:
        uuid = claim.workload.uuid
        claims[uuid] = (*claims.get(uuid, ()), claim)
    return SharedNode(assume_locked(node, ""), {**node.larger, **node.unclaimed}, claims)
