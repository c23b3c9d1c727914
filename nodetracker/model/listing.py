"""Lists: queries (None and () do not filter), pages, and items that only lists have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from nodetracker.model.change import EventKind
from nodetracker.model.claim import ClaimState, MigrationStatus
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.numa import NumaAssignment
from nodetracker.model.warning import WarningKind

T = TypeVar("T")

PAGE_LIMIT: Final = 1000
"""Items of a page when a query names no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The part of a list's query that selects a page.

    Attributes:
        after: the last item of the page before, None for the first page: the
            row's id, which `Page.next` is, or the item's uuid. The row of an
            id may be deleted meanwhile; a uuid must exist.
        limit: maximum number of items, at least 1.
        with_count: count what the filters select, whatever the page.

    Raises:
        RequestError: the limit is too small.
    """

    after: int | str | None = None
    limit: int = PAGE_LIMIT
    with_count: bool = False

    def __post_init__(self) -> None:
        """Check the limit."""
        if self.limit < 1:
            raise RequestError("limit", f"invalid value {self.limit}: expected at least 1")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list.

    Attributes:
        items: in the order of the list, at most as many as the query's limit.
        now: the database's time when they were read, UTC.
        next: what `PageQuery.after` must be for the next page; None = this is the last one.
        count: of all pages' items, None if the query does not ask for it; see
            `PageQuery.with_count`.
    """

    items: tuple[T, ...]
    now: datetime
    next: int | str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class LivenessFilter:
    """Selects agents by their heartbeats, as `accounting.liveness.is_service_up` does.

    Attributes:
        is_up: False selects those that are down or unreachable, and of nodes those without
            an agent.
        service_down_time: seconds without a heartbeat after which an agent is down.
    """

    is_up: bool
    service_down_time: int


SERVICE_ORDERS: Final = ("id", "host", "fullness")
"""By what services can be ordered. Text is ordered by its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceQuery(PageQuery):
    """Selects services.

    Attributes:
        binary: e.g. ``nodetracker-compute``.
        name_part: part of the host's name; upper and lower case of ASCII letters are equal,
            and no character is a wildcard.
        is_in_maintenance: whether its host is in maintenance.
        is_spare: whether its host is spare.
        liveness: whether it is up.
        has_nodes: whether its host has a node.
        order: one of `SERVICE_ORDERS`; equal services are ordered by id. The fullness is that
            of the fullest node of its host, and that of a host without nodes is the least.
        is_descending: largest first, also by id.

    Raises:
        RequestError: the order is unknown, or the limit too small.
    """

    id: int | None = None
    uuid: str | None = None
    host: str | None = None
    binary: str | None = None
    name_part: str | None = None
    is_disabled: bool | None = None
    is_in_maintenance: bool | None = None
    is_spare: bool | None = None
    liveness: LivenessFilter | None = None
    has_nodes: bool | None = None
    order: str = "id"
    is_descending: bool = False

    def __post_init__(self) -> None:
        """Check the order."""
        PageQuery.__post_init__(self)
        if self.order not in SERVICE_ORDERS:
            raise RequestError("order", f"services cannot be ordered by {self.order!r}")


@dataclass(frozen=True, slots=True)
class HostSum:
    """What the nodes of one host have in all.

    Attributes:
        guests: instances and containers that their drivers list.
        fullness: the allocated share of what may be allocated of the fullest resource of its
            fullest node; above 1, more is allocated.
    """

    nodes: int
    guests: int
    fullness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimQuery(PageQuery):
    """Selects claims, oldest first; those of `uuid_part` in order of uuid.

    Attributes:
        uuid_part: the uuid begins with it.
        host, nodename, node_id: the claim's node.
        states: any of these.
        workload_uuid, project_id: of the claim's workload.
        is_descending: newest first.
    """

    uuid: str | None = None
    uuid_part: str | None = None
    host: str | None = None
    nodename: str | None = None
    node_id: int | None = None
    states: tuple[ClaimState, ...] = ()
    workload_uuid: str | None = None
    project_id: str | None = None
    is_descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationQuery(PageQuery):
    """Selects migrations, oldest first.

    Attributes:
        host: of either side.
        statuses: any of these.
    """

    uuid: str | None = None
    host: str | None = None
    workload_uuid: str | None = None
    statuses: tuple[MigrationStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery(PageQuery):
    """Selects lines of the history, newest first, of all hosts or one.

    Attributes:
        kinds: any of these.
        is_ascending: oldest first.
        since, until: earliest and latest time, both included.
    """

    host: str | None = None
    nodename: str | None = None
    kinds: tuple[EventKind, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    is_ascending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningQuery(PageQuery):
    """Selects stored warnings, in order of when they were first seen.

    Attributes:
        hosts: any of these.
        kinds: any of these.
        is_resolved: False selects unresolved ones.
        is_silenced: True selects unresolved ones that are silenced now, False all others.
    """

    host: str | None = None
    hosts: tuple[str, ...] = ()
    nodename: str | None = None
    kinds: tuple[WarningKind, ...] = ()
    is_resolved: bool | None = None
    is_silenced: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsDownQuery:
    """Selects agents without heartbeats for a page of warnings.

    Attributes:
        hosts: those of these hosts.
        limit: at most so many others, in order of host, of hosts without a stored warning
            that they are down.
        after: the others' hosts follow this one.
        counts_resolved: a warning that is resolved is stored, too.
    """

    hosts: tuple[str, ...] = ()
    limit: int = 0
    after: str = ""
    counts_resolved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceQuery(PageQuery):
    """Selects the PCI devices of a node, in order of address.

    `after` is the address of a device, which need not exist.
    """

    node_id: int


WORKLOAD_ORDERS: Final = ("uuid", "name", "project_id", "vcpus", "memory_mb", "disk_gb")
"""By what workloads can be ordered; not by host, which not all may see. Text is in byte order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadQuery(PageQuery):
    """Selects workloads on nodes: active claims with their guests, and guests without a claim.

    All rows of a workload are on one page. `limit` is the number of workloads,
    and `after` the uuid of one, which need not exist where they are ordered by uuid.

    Attributes:
        uuid: of the workload.
        name_part: part of its name; upper and lower case of ASCII letters are equal,
            and no character is a wildcard.
        host, nodename: where it is.
        node_ids: any of these.
        project_id: of the claim, or of the guest when the claim has none.
        is_claimed: False selects unclaimed guests.
        reads_details: read `WorkloadRow.details`, which is {} otherwise.
        reads_numa: read `WorkloadRow.numa`, which is None otherwise.
        order: one of `WORKLOAD_ORDERS`; equal workloads are ordered by uuid. A workload of
            several rows has the least of their texts and the largest of their amounts.
        is_descending: largest first, also by uuid.

    Raises:
        RequestError: the order is unknown, or the limit too small.
    """

    uuid: str | None = None
    name_part: str | None = None
    host: str | None = None
    nodename: str | None = None
    node_ids: tuple[int, ...] = ()
    project_id: str | None = None
    is_claimed: bool | None = None
    reads_details: bool = False
    reads_numa: bool = False
    order: str = "uuid"
    is_descending: bool = False

    def __post_init__(self) -> None:
        """Check the order."""
        PageQuery.__post_init__(self)
        if self.order not in WORKLOAD_ORDERS:
            raise RequestError("order", f"workloads cannot be ordered by {self.order!r}")


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload on one node: an active claim with its guest, or a guest without a claim.

    Attributes:
        uuid, kind, name: of the workload; the name is "" when unknown.
        node_id, node_uuid, host, nodename: where it is.
        project_id: its owner, "" when unknown.
        claim_uuid, claim_state: None for an unclaimed guest.
        vcpu_milli: shared CPUs in thousandths; all CPUs of an unclaimed guest.
        pcpus: dedicated CPUs of a claim.
        memory_mb, disk_mb: MiB. Amounts are what is charged without the driver's overhead:
            the claim's and what its guest has beyond all claims, or an unclaimed guest's.
        power_state: None when its guest is not listed.
        details: further data from its driver as plain JSON.
        numa: what it occupies of the node's cells: the assignment of the claim, or the
            pins of an unclaimed guest; None without either.
        missing_since: since when the claim's guest has vanished, else None.
    """

    uuid: str
    kind: WorkloadKind
    name: str
    node_id: int
    node_uuid: str
    host: str
    nodename: str
    project_id: str
    claim_uuid: str | None
    claim_state: ClaimState | None
    vcpu_milli: int
    pcpus: int
    memory_mb: int
    disk_mb: int
    power_state: PowerState | None
    details: Mapping[str, Any] = field(default_factory=dict)
    numa: NumaAssignment | None = None
    missing_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The amounts of a project's workloads of one kind, claimed or not.

    A workload that moves has two claims, and both count.

    Attributes:
        project_id: of the claim, or of the guest when the claim has none; "" = unknown.
        is_claimed: whether the amounts are those of active claims; otherwise
            they are those of guests without a claim.
        workloads: number of different workloads.
        vcpu_milli: shared CPUs in thousandths; all CPUs of unclaimed guests.
        pcpus: dedicated CPUs of claims.
        memory_mb, disk_mb: MiB.
    """

    project_id: str
    kind: WorkloadKind
    is_claimed: bool
    workloads: int
    vcpu_milli: int
    pcpus: int
    memory_mb: int
    disk_mb: int
