"""Migrations: moves of a workload from one claim to another, and the steps they may take."""

import enum
from dataclasses import dataclass
from datetime import datetime


class MigrationType(enum.StrEnum):
    """What kind of move it is, in Nova's words."""

    RESIZE = "resize"
    MIGRATION = "migration"  # cold
    LIVE_MIGRATION = "live-migration"
    EVACUATION = "evacuation"
    REBUILD = "rebuild"


class MigrationStatus(enum.StrEnum):
    """How far a move is, in Nova's words."""

    ACCEPTED = "accepted"
    PRE_MIGRATING = "pre-migrating"
    MIGRATING = "migrating"
    POST_MIGRATING = "post-migrating"
    FINISHED = "finished"
    ERROR = "error"
    CONFIRMED = "confirmed"
    DONE = "done"  # what confirming makes of an evacuation and a rebuild
    REVERTED = "reverted"
    CANCELLED = "cancelled"


RUNNING = (
    MigrationStatus.ACCEPTED,
    MigrationStatus.PRE_MIGRATING,
    MigrationStatus.MIGRATING,
    MigrationStatus.POST_MIGRATING,
    MigrationStatus.FINISHED,
)
"""In the order in which they follow; both claims of such a migration must count."""

OPEN = (*RUNNING, MigrationStatus.ERROR)
"""Not ended: somebody has yet to confirm, revert or abort it."""

STAYS_ON_NODE = frozenset({MigrationType.REBUILD})
MAY_STAY_ON_NODE = STAYS_ON_NODE | {MigrationType.RESIZE}

_ENDS_DONE = frozenset({MigrationType.EVACUATION, MigrationType.REBUILD})


def may_become(before: MigrationStatus, after: MigrationStatus) -> bool:
    """Tell whether a status may follow another: forward, skipping as it likes, or to an end.

    >>> may_become(MigrationStatus.ACCEPTED, MigrationStatus.MIGRATING)
    True
    >>> may_become(MigrationStatus.MIGRATING, MigrationStatus.ACCEPTED)
    False
    >>> may_become(MigrationStatus.ERROR, MigrationStatus.REVERTED)
    True
    >>> may_become(MigrationStatus.REVERTED, MigrationStatus.CONFIRMED)
    False
    """
    if before not in OPEN:
        return False
    if after not in RUNNING:
        return before is not after
    return before in RUNNING and RUNNING.index(before) < RUNNING.index(after)


def confirmed_status(migration_type: MigrationType) -> MigrationStatus:
    """Return what confirming makes of a migration of this type."""
    is_done = migration_type in _ENDS_DONE
    return MigrationStatus.DONE if is_done else MigrationStatus.CONFIRMED


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What makes a claim request one for the destination of a move.

    Attributes:
        uuid: that the migration shall get.
        source_claim: uuid of the claim that the workload holds now.
    """

    uuid: str
    migration_type: MigrationType
    source_claim: str


@dataclass(frozen=True, slots=True)
class Migration:
    """A row of ``migrations``; times are UTC by the database's clock.

    Attributes:
        source_host, source_node, dest_host, dest_node: where its claims are
            now, and were once those are deleted.
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
        """True while both of its claims must count."""
        return self.status in RUNNING

    @property
    def is_open(self) -> bool:
        """True until it is confirmed, reverted or cancelled."""
        return self.status in OPEN

    @property
    def is_on_one_node(self) -> bool:
        """True when both claims are held on the same node."""
        source, dest = (self.source_host, self.source_node), (self.dest_host, self.dest_node)
        return source == dest


@dataclass(frozen=True, slots=True)
class Move:
    """An open migration as a node's ledger was read, with whether each of its claims counts."""

    migration: Migration
    is_source_active: bool
    is_dest_active: bool
