"""Claims: resources of one node that are reserved for a workload."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.model.guest import Guest, PartialGuest, WorkloadKind
from nodetracker.model.migration import MoveRequest
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.numa_request import NumaLimits, NumaRequest
from nodetracker.model.pci_request import PciRequest

MEMORY = "MEMORY_MB"
DISK = "DISK_GB"
VCPU = "VCPU"
PCPU = "PCPU"


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


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload for which resources are claimed; "" = unknown."""

    uuid: str
    kind: WorkloadKind = WorkloadKind.INSTANCE
    name: str = ""
    project_id: str = ""
    user_id: str = ""

    def may_be(self, guest: Guest | PartialGuest) -> bool:
        """Return whether a guest with this uuid is the workload, and not another with its uuid.

        Its kind is the same, and so is its project as far as both are known.
        """
        projects = {self.project_id, guest.project_id or ""} - {""}
        return self.kind is guest.kind and len(projects) <= 1


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requested amounts.

    Attributes:
        vcpu_milli: shared CPUs in thousandths.
        pcpus: dedicated CPUs.
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
    """A validated request for resources.

    Attributes:
        uuid: of the claim; repeating the request with it returns the same claim.
        host, nodename: the requested node, None = any.
        limits: resource class -> limit of the node's total usage, in the
            class's units; None = unlimited; absent = the node's own limit.
        numa: requirements on NUMA cells, None = none.
        numa_limits: limits of overcommitting a cell's shared CPUs and ordinary memory.
        pci_requests: devices requested by alias.
        required_traits: traits that the node must have.
        request_hash: distinguishes requests with the same uuid but another body.
        migration: the move of which this claim is the destination, None for a new workload.
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
        host, nodename: the node that it reserves resources on.
        reason: why it was released, "" before.
        numa: placement of its cells, None when it requested none.
        devices: addresses of its PCI devices.
        expires_at: when it expires unless its guest appears, None once confirmed.
        is_repeated: whether the ledger returns it for a request that it had
            granted before; not stored.
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
    is_repeated: bool = field(default=False, compare=False)

    @property
    def is_active(self) -> bool:
        """True while the claim counts as used."""
        return self.state in ACTIVE_STATES


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
