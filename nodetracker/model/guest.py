"""Guests: workloads as their driver currently sees them."""

import enum
import uuid as uuid_module
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.numa import CellAssignment, NumaAssignment
from nodetracker.model.shapes import DAMAGE
from nodetracker.model.units import KIB_PER_MIB

_CONTAINERS = uuid_module.UUID("1d6b1c6e-52f0-4c39-9a53-8f2f2f4a7c11")
"""Namespace of the uuids that are derived from containers' ids; it must never change."""


def derive_container_uuid(container_id: str) -> str:
    """Return the uuid of a container whose engine knows only its own id."""
    return str(uuid_module.uuid5(_CONTAINERS, container_id))


class WorkloadKind(enum.StrEnum):
    """The kind of a workload."""

    INSTANCE = "instance"
    CONTAINER = "container"


class PowerState(enum.StrEnum):
    """The power state of a guest, with Nova's values."""

    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    SHUTDOWN = "shutdown"
    CRASHED = "crashed"
    NOSTATE = "nostate"


class ResourceKind(enum.StrEnum):
    """What a guest can use by a name that nothing on its host explains."""

    GPU = "gpu"
    PCI = "pci"
    FUNCTION = "function"
    """A PCI function that is known, and that guests use beside others by the host's driver."""


@dataclass(frozen=True, slots=True)
class UnresolvedUse:
    """A resource that a guest uses by a name for which no reader finds the resource.

    It is not nothing: everything that it may be is withheld, see
    `nodetracker.accounting.withheld`.

    Attributes:
        kind: what it is one of.
        within: narrows it down; "" = any of its kind. Of GPUs the vendor as in the column
            ``gpus``; of PCI functions ``vendor:product``, ``vendor:`` with the vendor's id,
            ``class:`` with the first two digits of the class, or the address of one
            function or of the PF of virtual ones; of a shared function its own address,
            which is not given away whole.
        name: as the guest has it, e.g. ``MIG-5f1c…`` or ``/dev/dri/renderD129``.
        reason: why it is not known which one it is, with the library, extra or drop-in
            that is missing; one line.
    """

    kind: ResourceKind
    name: str
    reason: str
    within: str = ""


@dataclass(frozen=True, slots=True)
class LoosePages:
    """Huge pages of a guest of which it is not known how many are in which NUMA cell.

    Attributes:
        size_kb: page size in KiB.
        count: number of pages.
        cells: ids of the cells in which they may be; empty = any.
    """

    size_kb: int
    count: int
    cells: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CpuAffinity:
    """A set of host CPUs that a guest names, among which some of its CPUs or threads move.

    Attributes:
        cpus: as its driver reports them; in a row, the dedicated ones of them.
        vcpu_milli: the guest's CPUs that move there, in thousandths, 0 for other threads; in
            a row, those of them that take no shared CPU.
    """

    cpus: CpuSet
    vcpu_milli: int = 0


@dataclass(frozen=True, slots=True)
class GuestPins:
    """The host resources that a guest is bound to, with or without a claim.

    Attributes:
        cells: its CPUs and memory by host cell; empty for a guest without pinning.
        devices: addresses of its PCI devices.
        unresolved: what it uses beside these and nobody can say which it is.
        pages: its huge pages that are not bound to one cell.
        affinities: the sets of CPUs that it names; see
            `nodetracker.accounting.numa.cells.restrict_pins`.
    """

    cells: tuple[CellAssignment, ...] = ()
    devices: tuple[str, ...] = ()
    unresolved: tuple[UnresolvedUse, ...] = ()
    pages: tuple[LoosePages, ...] = ()
    affinities: tuple[CpuAffinity, ...] = ()

    @property
    def assignment(self) -> NumaAssignment | None:
        """Its assignment on the host's cells, in the form of a claim's assignment."""
        return NumaAssignment(self.cells) if self.cells else None

    @property
    def is_on_cells(self) -> bool:
        """Whether it is bound to NUMA cells, or has huge pages."""
        return bool(self.cells or self.pages)

    @property
    def has_huge_pages(self) -> bool:
        """Whether it has huge pages, bound to one cell or not."""
        return bool(self.pages) or any(cell.pages for cell in self.cells)

    @property
    def loose_mb(self) -> int:
        """MiB of its memory on huge pages that are not bound to one cell."""
        return sum(pool.size_kb * pool.count for pool in self.pages) // KIB_PER_MIB

    @property
    def pcpus(self) -> int:
        """Number of its CPUs that are pinned to a single host CPU."""
        return sum(len(cell.pins) for cell in self.cells)

    @property
    def dedicated_milli(self) -> int:
        """Thousandths of its CPUs that move among dedicated CPUs, pinned to none of them."""
        return sum(affinity.vcpu_milli for affinity in self.affinities)


ARRIVING = "arriving"
"""In `Guest.details`: true while a guest is being migrated to the node and runs elsewhere."""

GPU_NAMES = "gpu_names"
"""In `Guest.details`: the GPUs that a guest uses, as it requests them."""


@dataclass(frozen=True, slots=True)
class Guest:
    """One workload on a node.

    Attributes:
        uuid: the workload's uuid.
        name: its name in the driver.
        vcpu_milli: virtual CPUs in thousandths.
        memory_mb, disk_mb: MiB assigned to it.
        power_state: a powered-off guest counts in full, too.
        project_id: its owner, "" when the driver does not know it.
        pins: the host resources that it is bound to; pinned CPUs also count in
            `vcpu_milli`.
        details: further data from its driver as plain JSON, for display only.
        claim_uuid: its claim, None while it is unclaimed; set by the ledger
            only, never by a driver.
        missing_since: since when complete listings lack the claimed guest; set
            by the ledger only.
        damaged: columns of its row whose values cannot be used; others are in their place.
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
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)


@dataclass(frozen=True, slots=True)
class PartialGuest:
    """One workload on a node that was read in part; None = unknown.

    Attributes:
        vcpu_milli, memory_mb, disk_mb, project_id, pins, details: see `Guest`.
        problem: why the source does not answer for it, on one line; "" when it
            answers and has no such data.
        holds_nothing: whether it is dead, so that an amount that was never read is zero.
        assumed_memory_mb: MiB that it is charged at least while its memory is unknown; None =
            nothing is assumed.
    """

    uuid: str
    name: str
    kind: WorkloadKind
    power_state: PowerState
    vcpu_milli: int | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    project_id: str | None = None
    pins: GuestPins | None = None
    details: Mapping[str, Any] | None = None
    problem: str = ""
    holds_nothing: bool = False
    assumed_memory_mb: int | None = None

    @classmethod
    def of(cls, guest: Guest, problem: str) -> "PartialGuest":
        """Return a guest as last known, for which its source does not answer now."""
        own = {"problem", "holds_nothing", "assumed_memory_mb"}
        known: dict[str, Any] = {
            item.name: getattr(guest, item.name) for item in fields(cls) if item.name not in own
        }
        return cls(**known, problem=problem)


@dataclass(frozen=True, slots=True)
class GuestListing:
    """All guests that a driver reported for one node.

    Attributes:
        guests: the guests that were read completely.
        unreadable: one line for each item of which not even the uuid is known.
            A listing with such lines is incomplete, so no guest counts as missing.
        unread_kinds: kinds of guests that may be missing; None = all kinds if
            anything is unreadable, else none.
        partial: the guests that were read in part. They exist, and
            accounting completes each with its stored data.
        unseen_kinds: those of `unread_kinds` whose source failed, so that it
            lists no guest.
        has_source: False of a driver whose nodes have no guests that it could list.
        gone: uuids of guests that do not exist any more though others of their kind may
            be missing: the source that listed them answers.
        has_unread: whether a guest exists that was never read, so that nobody knows what
            it uses; set by accounting only, never by a driver.
    """

    guests: tuple[Guest, ...] = ()
    unreadable: tuple[str, ...] = ()
    unread_kinds: frozenset[WorkloadKind] | None = None
    partial: tuple[PartialGuest, ...] = ()
    unseen_kinds: frozenset[WorkloadKind] = frozenset()
    has_source: bool = True
    gone: frozenset[str] = frozenset()
    has_unread: bool = False

    @property
    def all_guests(self) -> tuple[Guest | PartialGuest, ...]:
        """All guests that exist, completely read or not."""
        return self.guests + self.partial

    @property
    def uuids(self) -> frozenset[str]:
        """The uuids of `all_guests`."""
        return frozenset(guest.uuid for guest in self.all_guests)

    @property
    def is_complete(self) -> bool:
        """True when absence from this listing means absence from the node."""
        return all(self.is_complete_for(kind) for kind in WorkloadKind)

    def is_complete_for(self, kind: WorkloadKind) -> bool:
        """Return whether absence means the same for guests of one kind."""
        if self.unread_kinds is not None:
            return kind not in self.unread_kinds
        return not self.unreadable

    def shows_absence(self, uuid: str, kind: WorkloadKind) -> bool:
        """Return whether absence means the same for one guest."""
        return uuid in self.gone or self.is_complete_for(kind)
