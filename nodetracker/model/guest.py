"""A guest: a workload as its driver sees it now."""

import enum
from dataclasses import dataclass
from datetime import datetime


class WorkloadKind(enum.StrEnum):
    """What a workload is."""

    INSTANCE = "instance"
    CONTAINER = "container"


class PowerState(enum.StrEnum):
    """What a guest is doing, in Nova's words."""

    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    SHUTDOWN = "shutdown"
    CRASHED = "crashed"
    NOSTATE = "nostate"


@dataclass(frozen=True, slots=True)
class Guest:
    """One workload on a node.

    Attributes:
        uuid: the workload's uuid.
        name: what its driver calls it.
        vcpu_milli: virtual CPUs in thousandths.
        memory_mb, disk_mb: MiB that are promised to it.
        power_state: powered-off guests count in full all the same.
        project_id: its owner, "" when the driver cannot tell.
        claim_uuid: the claim that covers it, None while it is unclaimed; the
            ledger's word, a driver leaves it alone.
        missing_since: since when complete listings lack a claimed guest; the
            ledger's word as well.
    """

    uuid: str
    name: str
    kind: WorkloadKind
    vcpu_milli: int
    memory_mb: int
    disk_mb: int
    power_state: PowerState = PowerState.NOSTATE
    project_id: str = ""
    claim_uuid: str | None = None
    missing_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class GuestListing:
    """All guests that a driver reported of one node.

    Attributes:
        guests: those that could be read.
        unreadable: one line for each item that could not; a listing that has
            any is not complete, so no guest is judged gone by it.
    """

    guests: tuple[Guest, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """True when absence from this listing means absence from the node."""
        return not self.unreadable
