"""Migrations: moves of a workload from one claim to another, and their status transitions."""

import enum
from dataclasses import dataclass
from datetime import datetime

from nodetracker.model.guest import WorkloadKind


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
