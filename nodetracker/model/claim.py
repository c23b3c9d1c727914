"""Claims: resources of one workload that are held on one node."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.model.guest import WorkloadKind
from nodetracker.model.migration import MoveRequest
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.numa_request import NumaLimits, NumaRequest
from nodetracker.model.pci_request import PciRequest

MEMORY = "MEMORY_MB"
DISK = "DISK_GB"
VCPU = "VCPU"
PCPU = "PCPU"


class ClaimKind(enum.StrEnum):
    """What a claim was made for."""

    CREATE = "create"
    MOVE = "move"


class ClaimState(enum.StrEnum):
    """How far a claim is; all but a released one count as used."""

    HELD = "held"  # granted, its guest has not been seen
    CONFIRMED = "confirmed"  # the guest is there, or the caller said so
    RELEASED = "released"


ACTIVE_STATES = (ClaimState.HELD, ClaimState.CONFIRMED)


class ReleaseReason(enum.StrEnum):
    """Why a claim was released."""

    ABORTED = "aborted"
    EXPIRED = "expired"
    REVERTED = "reverted"
    MOVED = "moved"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Workload:
    """Whom resources are held for; "" is not known."""

    uuid: str
    kind: WorkloadKind = WorkloadKind.INSTANCE
    name: str = ""
    project_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What is asked for.

    Attributes:
        vcpu_milli: shared CPUs in thousandths.
        pcpus: CPUs of its own.
        memory_mb, disk_mb: MiB.
        resources: further resource classes of the node's inventory.
    """

    vcpu_milli: int = 0
    pcpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """One request for resources, read and checked.

    Attributes:
        uuid: of the claim; the same request with it again answers the same claim.
        host, nodename: where it is wanted, None = wherever it fits.
        limits: resource class -> what may be used in all, in the class's
            units; None = unlimited; absent = the node's own.
        numa: what is asked of NUMA cells, None = nothing.
        numa_limits: how far shared CPUs and ordinary memory of a cell may be promised.
        pci_requests: devices asked for by alias.
        required_traits: that the node must have.
        request_hash: tells another body from the same.
        migration: for the destination of a move, None for a new workload.
    """

    uuid: str
    workload: Workload
    amounts: Amounts
    request_hash: str
    host: str | None = None
    nodename: str | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    numa: NumaRequest | None = None
    numa_limits: NumaLimits = field(default_factory=NumaLimits)
    pci_requests: tuple[PciRequest, ...] = ()
    required_traits: tuple[str, ...] = ()
    migration: MoveRequest | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of ``claims``; times are UTC by the database's clock.

    Attributes:
        host, nodename: of the node it is held on.
        reason: why it was released, "" before.
        numa: where its cells are, None when it asked for none.
        devices: addresses of the PCI devices that it has.
        expires_at: when it is given up if its guest has not come, None once confirmed.
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
    numa: NumaPlacement | None = None
    devices: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """True while it counts as used."""
        return self.state in ACTIVE_STATES


@dataclass(frozen=True, slots=True, order=True)
class SplitBrain:
    """A workload that is on two nodes, and no open migration says why.

    Attributes:
        other_host, other_nodename: where it holds a claim.
        is_claimed: whether it holds one on the first node, too; else it runs
            there without any, e.g. on a host that is back after an evacuation.
    """

    nodename: str
    workload_uuid: str
    other_host: str
    other_nodename: str
    is_claimed: bool = True
