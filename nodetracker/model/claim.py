"""Claims: resources of one node that are reserved for a workload, and migrations, which tie two."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.model.amounts import Amounts
from nodetracker.model.guest import Guest, PartialGuest, WorkloadKind
from nodetracker.model.numa import NumaAssignment, NumaLimits, NumaRequest
from nodetracker.model.pci import PciRequest
from nodetracker.model.shapes import DAMAGE, DERIVED


class MigrationType(enum.StrEnum):
    """The type of a move, with Nova's values."""

    RESIZE = "resize"
    MIGRATION = "migration"  # cold
    LIVE_MIGRATION = "live-migration"
    EVACUATION = "evacuation"
    REBUILD = "rebuild"


class MigrationStatus(enum.StrEnum):
    """The status of a move, with Nova's values."""

    ACCEPTED = "accepted"
    PRE_MIGRATING = "pre-migrating"
    MIGRATING = "migrating"
    POST_MIGRATING = "post-migrating"
    FINISHED = "finished"
    ERROR = "error"
    CONFIRMED = "confirmed"
    DONE = "done"  # a confirmed evacuation or rebuild
    REVERTED = "reverted"
    CANCELLED = "cancelled"


RUNNING = (
    MigrationStatus.ACCEPTED,
    MigrationStatus.PRE_MIGRATING,
    MigrationStatus.MIGRATING,
    MigrationStatus.POST_MIGRATING,
    MigrationStatus.FINISHED,
)
"""In the order of their transitions; both claims of such a migration must be active."""

OPEN = (*RUNNING, MigrationStatus.ERROR)
"""Not ended yet: the migration is still to be confirmed, reverted or aborted."""

SAME_NODE_REQUIRED = frozenset({MigrationType.REBUILD})
SAME_NODE_ALLOWED = SAME_NODE_REQUIRED | {MigrationType.RESIZE}

_TYPES_ENDING_DONE = frozenset({MigrationType.EVACUATION, MigrationType.REBUILD})


def can_transition(before: MigrationStatus, after: MigrationStatus) -> bool:
    """Return whether a status transition is allowed: forward (steps may be skipped) or to an end.

    >>> can_transition(MigrationStatus.ACCEPTED, MigrationStatus.MIGRATING)
    True
    >>> can_transition(MigrationStatus.MIGRATING, MigrationStatus.ACCEPTED)
    False
    >>> can_transition(MigrationStatus.ERROR, MigrationStatus.REVERTED)
    True
    >>> can_transition(MigrationStatus.REVERTED, MigrationStatus.CONFIRMED)
    False
    """
    if before not in OPEN:
        return False
    if after not in RUNNING:
        return before is not after
    return before in RUNNING and RUNNING.index(before) < RUNNING.index(after)


def confirmed_status(migration_type: MigrationType) -> MigrationStatus:
    """Return the status of a confirmed migration of this type."""
    is_done = migration_type in _TYPES_ENDING_DONE
    return MigrationStatus.DONE if is_done else MigrationStatus.CONFIRMED


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """The move of a claim request for the destination of a workload.

    Attributes:
        uuid: uuid of the migration to create.
        source_claim: uuid of the workload's current claim.
        workload_kind: as requested, None = that of the source.
    """

    uuid: str
    migration_type: MigrationType
    source_claim: str
    workload_kind: WorkloadKind | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """A row of ``migrations``; times are UTC by the database's clock.

    Attributes:
        source_host, source_node, dest_host, dest_node: the nodes of its
            claims; kept after the claims are deleted.
        source_claim, dest_claim: uuids.
        workload_name: "" = unknown, as in the ledger of a node.
        damaged: columns of its row whose values cannot be used; others are in their place.
    """

    uuid: str
    workload_uuid: str
    migration_type: MigrationType
    status: MigrationStatus
    source_host: str
    source_node: str
    dest_host: str
    dest_node: str
    source_claim: str
    dest_claim: str
    created_at: datetime
    updated_at: datetime
    workload_name: str = field(default="", metadata=DERIVED)
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)

    @property
    def is_running(self) -> bool:
        """True while both of its claims must be active."""
        return self.status in RUNNING

    @property
    def is_open(self) -> bool:
        """True until it is confirmed, reverted or cancelled."""
        return self.status in OPEN

    @property
    def is_on_one_node(self) -> bool:
        """True when both claims are on the same node."""
        source, dest = (self.source_host, self.source_node), (self.dest_host, self.dest_node)
        return source == dest

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Host and nodename of its source and of its destination, once if they are the same."""
        source, dest = (self.source_host, self.source_node), (self.dest_host, self.dest_node)
        return tuple(dict.fromkeys((source, dest)))


@dataclass(frozen=True, slots=True)
class Move:
    """An open migration as read with a node's ledger, and whether its claims are active."""

    migration: Migration
    is_source_active: bool
    is_dest_active: bool


class ClaimKind(enum.StrEnum):
    """The purpose of a claim."""

    CREATE = "create"
    MOVE = "move"


class ClaimState(enum.StrEnum):
    """The state of a claim; held and confirmed ones count as used."""

    HELD = "held"  # granted, but its guest has not been listed yet
    CONFIRMED = "confirmed"  # the guest was listed, or the caller confirmed the claim
    RELEASED = "released"


ACTIVE_STATES = (ClaimState.HELD, ClaimState.CONFIRMED)


class ReleaseReason(enum.StrEnum):
    """Why a claim was released."""

    ABORTED = "aborted"
    EXPIRED = "expired"
    REVERTED = "reverted"
    MOVED = "moved"
    DELETED = "deleted"
    STOPPED = "stopped"  # of a claim that the agent made when its guest was started


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload for which resources are claimed; "" = unknown."""

    uuid: str
    kind: WorkloadKind = WorkloadKind.INSTANCE
    name: str = ""
    project_id: str = ""
    user_id: str = ""

    @property
    def label(self) -> str:
        """What people call it: its name, else its uuid."""
        return self.name or self.uuid

    def may_be(self, guest: Guest | PartialGuest) -> bool:
        """Return whether a guest with this uuid is the workload, and not another with its uuid.

        Its kind is the same, and so is its project as far as both are known.
        """
        projects = {self.project_id, guest.project_id or ""} - {""}
        return self.kind is guest.kind and len(projects) <= 1


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a claim asked for beside its amounts; the attributes are those of `ClaimRequest`.

    It is stored with the claim: what the claim holds on its node does not say what the workload
    needs on another one.
    """

    limits: Mapping[str, int | None] = field(default_factory=dict)
    numa: NumaRequest | None = None
    numa_limits: NumaLimits | None = None
    pci_requests: tuple[PciRequest, ...] = ()
    required_traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A validated request for resources.

    Attributes:
        uuid: of the claim; repeating the request with it returns the same claim.
        host, nodename: the requested node, None = any.
        limits: resource class -> limit of the node's total usage, in the
            class's units; None = unlimited; absent = the node's own limit.
        numa: requirements on NUMA cells, None = none.
        numa_limits: limits of overcommitting a cell's shared CPUs and ordinary memory,
            None = the node's own.
        pci_requests: devices requested by alias.
        required_traits: traits that the node must have.
        request_hash: distinguishes requests with the same uuid but another body.
        migration: the move of which this claim is the destination, None for a new workload.
        has_new_uuid: its uuid was made for it, so it cannot have been granted before.
    """

    uuid: str
    workload: Workload
    amounts: Amounts
    request_hash: str
    host: str | None = None
    nodename: str | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    numa: NumaRequest | None = None
    numa_limits: NumaLimits | None = None
    pci_requests: tuple[PciRequest, ...] = ()
    required_traits: tuple[str, ...] = ()
    migration: MoveRequest | None = None
    has_new_uuid: bool = False

    @property
    def takes_spare(self) -> bool:
        """Whether a spare host may take it: one that it names, or any if it is evacuated."""
        move = self.migration
        is_evacuated = move is not None and move.migration_type is MigrationType.EVACUATION
        return self.host is not None or is_evacuated

    @property
    def requirement(self) -> Requirement:
        """What is stored of it with its claim."""
        return Requirement(
            self.limits, self.numa, self.numa_limits, self.pci_requests, self.required_traits
        )


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A request, and the node on which it is to be granted."""

    request: ClaimRequest
    host: str
    nodename: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of ``claims``; times are UTC by the database's clock.

    Attributes:
        host, nodename: the node that it reserves resources on.
        reason: why it was released, "" before.
        numa: host cells of its cells, None when it requested none.
        devices: addresses of its PCI devices.
        expires_at: when it expires unless its guest appears, None once confirmed.
        by_door: whether the agent made it because its engine was about to start the guest;
            it ends with the guest's run.
        is_repeated: whether the ledger returns it for a request that it had
            granted before; not stored.
        damaged: columns of its row whose values cannot be used; others are in their place.
    """

    uuid: str
    node_id: int
    host: str
    nodename: str
    workload: Workload
    kind: ClaimKind
    state: ClaimState
    amounts: Amounts
    request_hash: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    reason: str = ""
    migration_uuid: str | None = None
    numa: NumaAssignment | None = None
    devices: tuple[str, ...] = ()
    by_door: bool = field(default=False, metadata={"is_brief": True})
    is_repeated: bool = field(default=False, compare=False)
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)

    @property
    def is_active(self) -> bool:
        """True while the claim counts as used."""
        return self.state in ACTIVE_STATES

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Host and nodename, as `Migration.places`."""
        return ((self.host, self.nodename),)


@dataclass(frozen=True, slots=True, order=True)
class SplitBrain:
    """A workload that is on two nodes without an open migration.

    Attributes:
        other_host, other_nodename: a node on which it has a claim.
        is_claimed: whether it has a claim on the first node, too; otherwise it
            runs there unclaimed, e.g. on a host that recovered after an evacuation.
    """

    nodename: str
    workload_uuid: str
    other_host: str
    other_nodename: str
    is_claimed: bool = True
