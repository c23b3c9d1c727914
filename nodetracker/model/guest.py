"""A guest: a workload as its driver sees it now."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.model.numa_placement import CellPlacement, NumaPlacement


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
class GuestPins:
    """What of its host a guest is bound to, whoever bound it.

    Attributes:
        cells: its CPUs and memory by host cell; none while it floats freely.
        devices: addresses of the PCI devices that it has.
    """

    cells: tuple[CellPlacement, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def placement(self) -> NumaPlacement | None:
        """Where it is on the host's cells, as a claim would say it."""
        return NumaPlacement(self.cells) if self.cells else None

    @property
    def pcpus(self) -> int:
        """How many of its CPUs are pinned to one of the host's each."""
        return sum(len(cell.pins) for cell in self.cells)


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
        pins: what it is bound to; those of its CPUs that are pinned count in
            `vcpu_milli` too.
        details: what else its driver tells of it, as plain JSON; for people,
            nothing is computed from it.
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
    pins: GuestPins = GuestPins()
    details: Mapping[str, Any] = field(default_factory=dict)
    claim_uuid: str | None = None
    missing_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class GuestListing:
    """All guests that a driver reported of one node.

    Attributes:
        guests: those that could be read.
        unreadable: one line for each item that could not; a listing that has
            any is not complete, so no guest is judged gone by it.
        unread_kinds: kinds of which guests may be missing; None = all of them
            when anything is unreadable.
    """

    guests: tuple[Guest, ...] = ()
    unreadable: tuple[str, ...] = ()
    unread_kinds: frozenset[WorkloadKind] | None = None

    @property
    def is_complete(self) -> bool:
        """True when absence from this listing means absence from the node."""
        return all(self.is_complete_for(kind) for kind in WorkloadKind)

    def is_complete_for(self, kind: WorkloadKind) -> bool:
        """Tell whether absence means that for guests of one kind."""
        if self.unread_kinds is not None:
            return kind not in self.unread_kinds
        return not self.unreadable
