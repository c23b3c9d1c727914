"""All nodes: listed with their services, summed, and as schedulers and the overview read them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from nodetracker.model.amounts import MEMORY, VCPU
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import Guest, WorkloadKind
from nodetracker.model.listing import LivenessFilter, PageQuery
from nodetracker.model.node import NODE_COLUMNS, NODE_TIMES, NodeRecord, NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceAvailability, ServiceRecord
from nodetracker.model.shapes import DAMAGE
from nodetracker.model.tolerance import HostTolerance
from nodetracker.model.warning import WHOLE_HOST, WarningKind

FLEET_ORDERS: Final = (
    "id", "uuid", "host", "nodename", "vcpus", "vcpus_used", "memory_mb", "memory_mb_used",
    "local_gb", "local_gb_used", "free_ram_mb", "free_disk_gb", "current_workload", "running_vms",
    "cpu_used", "disk_used", "pcpus", "pcpus_used", "total_containers", "running_containers",
    "paused_containers", "stopped_containers", "hypervisor_type", "hypervisor_version", "host_ip",
    "architecture", "os_type", "os", "kernel_version", "created_at", "fullness",
)  # fmt: skip
"""By what nodes can be ordered: columns that are never NULL. Text is ordered by its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetQuery(PageQuery):
    """Selects nodes with their agents' services; None = do not filter.

    Attributes:
        columns: of `NodeValues` to read, and the `NODE_TIMES`. Each costs time, and those
            with JSON most: name those that are used.
        reads_audits: read `ServiceRecord.last_audit`, which is {} otherwise.
        counts_siblings: read `FleetNode.host_nodes`.
        reads_unclaimed: read `FleetNode.unclaimed`.
        id, uuid, host, nodename: exact.
        ids: any of these.
        name_part: part of the nodename; upper and lower case of ASCII letters
            are equal, and no character is a wildcard.
        text: the same of the nodename, the host or the uuid.
        is_disabled: whether its service is disabled; without one it is not.
        is_in_maintenance: whether its service is in maintenance; without one it is not.
        is_overcommitted: whether more of a resource is allocated than may be.
        has_warnings: whether a warning about it or its whole host is unresolved and not
            silenced, ``host_down`` left out.
        liveness: whether its agent is up.
        has_service: True leaves out nodes whose host has no services row.
        order: one of `FLEET_ORDERS`; equal nodes are ordered by id.
        is_descending: largest first, also by id.

    Raises:
        RequestError: a column or the order is unknown, or the limit too small.
    """

    columns: tuple[str, ...] = ()
    reads_audits: bool = False
    counts_siblings: bool = False
    reads_unclaimed: bool = False
    id: int | None = None
    uuid: str | None = None
    host: str | None = None
    nodename: str | None = None
    name_part: str | None = None
    text: str | None = None
    is_disabled: bool | None = None
    is_in_maintenance: bool | None = None
    is_overcommitted: bool | None = None
    has_warnings: bool | None = None
    liveness: LivenessFilter | None = None
    has_service: bool | None = None
    ids: tuple[int, ...] | None = None
    order: str = "id"
    is_descending: bool = False

    def __post_init__(self) -> None:
        """Check the columns and the order."""
        PageQuery.__post_init__(self)
        for name in self.columns:
            if name not in NODE_COLUMNS and name not in NODE_TIMES:
                raise RequestError("columns", f"unknown column {name!r}")
        if self.order not in FLEET_ORDERS:
            raise RequestError("order", f"nodes cannot be ordered by {self.order!r}")


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node with the service of its host's agent.

    Attributes:
        node: its identity, generation and epoch. It and its `values` have the columns
            that the query named, and no others.
        service: its identity, what operators set and what its liveness follows from; None
            when the host has no agent. See `FleetQuery.reads_audits`.
        host_nodes: number of nodes of its host, whether the query selects them
            or not; None if the query does not ask for it.
        unclaimed: of its guests without a claim; () if the query does not ask for it.
    """

    node: NodeRecord
    service: ServiceRecord | None
    host_nodes: int | None = None
    unclaimed: tuple["UnclaimedSum", ...] = ()


@dataclass(frozen=True, slots=True)
class FleetSums:
    """Sums over the nodes whose agent's service exists and is enabled, as Nova's statistics.

    Attributes:
        count: number of these nodes.
        vcpus, vcpus_used: CPUs, used ones rounded up on each node.
        memory_mb, memory_mb_used, free_ram_mb: MiB.
        local_gb, local_gb_used, free_disk_gb: GiB.
        disk_available_least: GiB; a node on which it is unknown adds 0.
        current_workload: number of guests that are being built or changed.
        running_vms: number of instances, also stopped ones, as Nova counts.
    """

    count: int
    vcpus: int
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    local_gb: int
    local_gb_used: int
    free_ram_mb: int
    free_disk_gb: int
    current_workload: int
    running_vms: int
    disk_available_least: int


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """The data of one node that admission needs, read without a lock.

    Attributes:
        now: the database's time when it was read, UTC.
        service: availability of the host's agent, None when the host has none.
        values: only the columns that admission needs; the others have defaults.
        claims: active claims.
        unclaimed: guests without a claim, by uuid.
        devices: address -> device.
        larger: guests that may use more than the claim that is assigned to them,
            by uuid: listed ones with more CPUs, memory or disk, and those that are
            bound to cells or devices.
    """

    id: int
    host: str
    nodename: str
    now: datetime
    service: ServiceAvailability | None
    values: NodeValues
    claims: tuple[Claim, ...] = ()
    unclaimed: Mapping[str, Guest] = field(default_factory=dict)
    devices: Mapping[str, TrackedDevice] = field(default_factory=dict)
    larger: Mapping[str, Guest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewNode:
    """The columns of a ``compute_nodes`` row that the overview needs; see `NodeValues`.

    Whole rows are too long to be read, and sent by conductors, for a whole fleet.

    Attributes:
        metrics: only `MEASURED_METRICS` and `GUEST_METRICS`.
        disk_available_least: GiB, None = unknown.
        damaged: see `NodeRecord`.
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
    metrics: Mapping[str, Any] = field(default_factory=dict)
    disk_available_least: int | None = None
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)


MEASURED_METRICS = ("cpu_percent", "memory_used_mb", "disk_used_mb")
"""Metrics of the machine as a whole, of which each is the measured use of a resource."""

GUEST_METRICS = {
    kind: (f"{kind}s_cpu_used_milli", f"{kind}s_memory_used_mb") for kind in WorkloadKind
}
"""Metrics of what all guests of a kind use of the machine."""


AmountColumns = NodeValues | OverviewNode
"""What has the columns of a row from which its capacity and usage are computed."""


def measure_guests(row: AmountColumns) -> dict[str, int | None]:
    """Return what all guests use of CPUs and memory, in parts: None = unknown.

    Nothing is returned of a node that has none.
    """
    counts = {
        WorkloadKind.INSTANCE: row.running_vms,
        WorkloadKind.CONTAINER: row.total_containers,
    }
    found: list[list[int | None]] = []
    for kind, names in GUEST_METRICS.items():
        used = [row.metrics.get(name) for name in names]
        if counts[kind] or used[1] is not None:
            found.append(used)
    sums = (sum(known) if None not in known else None for known in zip(*found, strict=True))
    return dict(zip((VCPU, MEMORY), sums, strict=False))


_IDENTITY = ("id", "uuid", "host", "nodename", "damaged")
OVERVIEW_COLUMNS = tuple(
    item.name for item in dataclasses.fields(OverviewNode) if item.name not in _IDENTITY
)


def blank_node(host: str) -> OverviewNode:
    """Return the line of a host without nodes: its nodename is empty, its amounts are 0."""
    blank: dict[str, Any] = dict.fromkeys(OVERVIEW_COLUMNS, 0) | {"reserved": {}, "overhead": {}}
    return OverviewNode(id=0, uuid="", host=host, nodename=WHOLE_HOST, **blank)


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
    """The number of unresolved warnings of one kind; nodename "" = about the whole host.

    Attributes:
        count: of those that are not silenced.
        silenced: of those that are.
    """

    host: str
    nodename: str
    kind: WarningKind
    count: int
    silenced: int = 0


@dataclass(frozen=True, slots=True)
class OverviewRows:
    """What the overview is made from, read in one transaction.

    Attributes:
        now: the database's time.
        services: of all binaries.
        nodes: in order of id.
        claims: number of claims by state; a state without claims may be absent.
        tolerances: whether hosts may be lost, as far as it is stored, without plans.
    """

    now: datetime
    services: tuple[ServiceRecord, ...] = ()
    nodes: tuple[OverviewNode, ...] = ()
    unclaimed: tuple[UnclaimedSum, ...] = ()
    claims: Mapping[ClaimState, int] = field(default_factory=dict)
    warnings: tuple[WarningCount, ...] = ()
    tolerances: tuple[HostTolerance, ...] = ()
