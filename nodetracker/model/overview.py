"""The rows from which the overview of the fleet is made."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import WarningKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewNode:
    """The columns of a ``compute_nodes`` row that the overview needs; see `NodeValues`.

    Whole rows are too long to be read, and sent by conductors, for a whole fleet.
    """

    id: int
    uuid: str
    host: str
    nodename: str
    vcpus: int
    pcpus: int
    pcpus_used: int
    memory_mb: int
    memory_mb_used: int
    local_gb: int
    cpu_used: float
    disk_used: float
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    reserved: Mapping[str, Any]
    overhead: Mapping[str, Any]
    running_vms: int
    total_containers: int


AmountColumns = NodeValues | OverviewNode
"""What has the columns of a row from which its capacity and usage are computed."""

_IDENTITY = ("id", "uuid", "host", "nodename")
OVERVIEW_COLUMNS = tuple(
    item.name for item in dataclasses.fields(OverviewNode) if item.name not in _IDENTITY
)


@dataclass(frozen=True, slots=True)
class UnclaimedSum:
    """The amounts of guests without a claim, of one kind and on one node.

    Several items may have the same node and kind.

    Attributes:
        guests: number of them.
        vcpu_milli: shared CPUs in thousandths.
        pcpus: CPUs that are pinned to a single host CPU.
        memory_mb, disk_mb: MiB, without the driver's overhead.
    """

    node_id: int
    kind: WorkloadKind
    guests: int
    vcpu_milli: int
    pcpus: int
    memory_mb: int
    disk_mb: int


@dataclass(frozen=True, slots=True)
class WarningCount:
    """The number of unresolved warnings of one kind; nodename "" = about the whole host."""

    host: str
    nodename: str
    kind: WarningKind
    count: int


@dataclass(frozen=True, slots=True)
class OverviewRows:
    """What the overview is made from, read in one transaction.

    Attributes:
        now: the database's time.
        services: of all binaries.
        nodes: in order of id.
        claims: number of claims by state; a state without claims may be absent.
    """

    now: datetime
    services: tuple[ServiceRecord, ...] = ()
    nodes: tuple[OverviewNode, ...] = ()
    unclaimed: tuple[UnclaimedSum, ...] = ()
    claims: Mapping[ClaimState, int] = field(default_factory=dict)
    warnings: tuple[WarningCount, ...] = ()
