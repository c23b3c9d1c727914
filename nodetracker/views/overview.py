"""Summarize the fleet: totals, states, and one line for each node."""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.accounting.ledger.admission import Capacity, list_capacities
from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.trends import measure_node
from nodetracker.accounting.usage import overhead_of
from nodetracker.model.amount_text import Role, render_parts
from nodetracker.model.amounts import DISK, MEMORY, PARTS, VCPU, Amounts
from nodetracker.model.claim import ClaimState
from nodetracker.model.fleet import (
    AmountColumns,
    OverviewNode,
    OverviewRows,
    UnclaimedSum,
    WarningCount,
    blank_node,
    measure_guests,
)
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.tolerance import HostTolerance
from nodetracker.model.warning import WHOLE_HOST, WarningKind
from nodetracker.views.services import (
    Freshness,
    audit_age_seconds,
    find_down_since,
    freshness_of,
    state_of,
    status_of,
)
from nodetracker.views.tolerance import FleetTolerance, is_fresh, summarize_tolerance
from nodetracker.views.values import count_many, render_percent
from nodetracker.views.warnings import find_hosts_down


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Capacity and usage of one resource class, in parts: thousandths of a CPU, MiB.

    Attributes:
        total: the physical amount, of which reserved, claimed, unclaimed and free are the sum.
        claimed: usage of claims, and of guests by which they exceed their claims.
        unclaimed: usage of guests without a claim.
        limit: what may be allocated, reserved amounts included, with the allocation ratio.
    """

    total: int = 0
    reserved: int = 0
    claimed: int = 0
    unclaimed: int = 0
    limit: int = 0

    @property
    def used(self) -> int:
        """What claims and guests use."""
        return self.claimed + self.unclaimed

    @property
    def allocated(self) -> int:
        """What is reserved or used, of which `limit` may be allocated."""
        return self.reserved + self.claimed + self.unclaimed

    @property
    def free(self) -> int:
        """The part of the physical amount that is not allocated, negative when more is."""
        return self.total - self.allocated

    @property
    def left(self) -> int:
        """What may still be allocated, negative when more is."""
        return self.limit - self.allocated

    def __add__(self, other: "ResourceUse") -> "ResourceUse":
        """Return the sum."""
        return ResourceUse(
            self.total + other.total,
            self.reserved + other.reserved,
            self.claimed + other.claimed,
            self.unclaimed + other.unclaimed,
            self.limit + other.limit,
        )


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """What is in use of a resource on the machines that measure it, in parts.

    Attributes:
        total: the physical amount of these.
        nodes: number of these.
    """

    used: int = 0
    total: int = 0
    nodes: int = 0

    @property
    def share(self) -> str:
        """The share in use."""
        return render_percent(self.used, self.total)


@dataclass(frozen=True, slots=True)
class Left:
    """What may still be allocated of a resource class, in parts.

    Attributes:
        amount: what can be claimed now, negative when more is allocated.
        on_disk: what the filesystems have for it, `amount` where they have enough.
        elsewhere: why hosts get no claims -> what is left there, and on how many of them.
    """

    amount: int = 0
    on_disk: int = 0
    elsewhere: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def render(self, resource: str) -> str:
        """Return what can be claimed now in words.

        >>> Left(257024, 74752).render("DISK_GB")
        '251 GiB left, 73 GiB on disk'
        """
        if self.amount < 0:
            text = f"{render_parts(resource, -self.amount)} over"
        else:
            text = f"{render_parts(resource, self.amount, Role.FREE)} left"
        if self.on_disk < self.amount:
            text += f", {render_parts(resource, self.on_disk, Role.FREE)} on disk"
        return text

    def render_elsewhere(self, resource: str) -> str:
        """Return what is left on hosts that get no claims, in words; "" without any.

        >>> Left(elsewhere={"down": (524288, 3)}).render_elsewhere("MEMORY_MB")
        'and 512 GiB on 3 hosts that are down'
        """
        found = [
            f"{render_parts(resource, amount, Role.FREE)} on {count_many(hosts, 'host')} "
            f"that {'is' if hosts == 1 else 'are'} {why}"
            for why, (amount, hosts) in self.elsewhere.items()
        ]
        return f"and {', '.join(found)}" if found else ""


def left_on_node(resource: str, use: ResourceUse, disk_available_least: int | None) -> Left:
    """Return what is left on a node.

    Args:
        disk_available_least: GiB, None = unknown.
    """
    on_disk = use.left
    if resource == DISK and disk_available_least is not None:
        least = max(0, disk_available_least)
        if least < use.left // PARTS[DISK]:  # both in whole GiB
            on_disk = least * PARTS[DISK]
    return Left(use.left, on_disk)


Uses = Mapping[str, ResourceUse]
"""Resource class -> its capacity and usage, for VCPU, PCPU, MEMORY_MB and DISK_GB."""


class Severity(enum.IntEnum):
    """How bad the worst problem of a node is."""

    FINE = 0
    SET = 1  # an operator disabled it, or set maintenance
    WARNED = 2
    UNREAD = 3
    LOST = 4  # its agent is down or unreachable


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node of the overview.

    Attributes:
        state, status, maintenance: of its host's service; see `state_of`.
        guests: number of guests by kind.
        warnings: number of unresolved warnings about it or its whole host, without
            ``host_down``, which the state says.
        audit_age_seconds: since its last good reading, None = never; not rendered.
        down_since: of its host; None = it is up, or unknown.
        node: its row, whose ratios metrics need.
        agent: the row of its host's service, None without one.
    """

    node: OverviewNode
    state: str
    status: str
    maintenance: bool
    freshness: Freshness
    amounts: Uses
    guests: Mapping[WorkloadKind, int]
    warnings: int
    audit_age_seconds: float | None
    down_since: datetime | None = None
    agent: ServiceRecord | None = None

    @property
    def why_unclaimable(self) -> str:
        """Why its host gets no claims: its state first, then what operators set; "" if it does."""
        if self.state != "up":
            return self.state
        if self.maintenance:
            return "in maintenance"
        return "disabled" if self.status == "disabled" else ""

    @property
    def severity(self) -> Severity:
        """How bad its worst problem is, by which the page and the terminal sort."""
        if self.state != "up":
            return Severity.LOST
        if self.freshness is not Freshness.FRESH:
            return Severity.UNREAD
        if self.warnings:
            return Severity.WARNED
        is_set = self.maintenance or self.status == "disabled"
        return Severity.SET if is_set else Severity.FINE


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """The state of one service of the overview.

    Attributes:
        heartbeat_age_seconds: since its last heartbeat, None = never.
        audit_age_seconds: since the last audit of a host, None = never.
        clock_skew_seconds: the host's clock minus the database's, None = unknown.
        down_since: None = it is up, or unknown.
    """

    host: str
    binary: str
    state: str
    status: str
    maintenance: bool
    forced_down: bool
    heartbeat_age_seconds: float | None
    audit_age_seconds: float | None
    clock_skew_seconds: float | None
    down_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of the whole fleet.

    Attributes:
        now: the database's time.
        totals: sums over all nodes, whatever their state.
        left: of `totals`, by whether it can be claimed now.
        measured: resource class -> the sum over the nodes of which it is known and recent;
            without classes that no node measures.
        used_by_guests: the same of what all guests use, where that is known.
        states: number of nodes by state and status.
        warnings: number of unresolved warnings by kind, those about whole hosts included;
            ``host_down`` as the hosts are now. Those that are silenced are not counted.
        silenced: number of unresolved warnings that are silenced.
        nodes: in order of host and nodename.
        empty_hosts: the hosts whose agent has no node, such as one whose driver has not
            answered since it was installed; see `blank_node`.
        warned: the unresolved warnings of each node and host by kind, as stored.
        tolerance: whether the fleet survives the loss of any one host.
        tolerances: the same of each host, while it is not too old.
    """

    now: datetime
    totals: Uses
    left: Mapping[str, Left]
    measured: Mapping[str, MeasuredUse]
    used_by_guests: Mapping[str, MeasuredUse]
    states: Mapping[tuple[str, str], int]
    freshness: Mapping[Freshness, int]
    claims: Mapping[ClaimState, int]
    guests: Mapping[WorkloadKind, int]
    warnings: Mapping[WarningKind, int]
    silenced: int
    services: tuple[ServiceLine, ...]
    nodes: tuple[NodeLine, ...]
    empty_hosts: tuple[NodeLine, ...] = ()
    warned: tuple[WarningCount, ...] = ()
    tolerance: FleetTolerance = field(default_factory=FleetTolerance)
    tolerances: tuple[HostTolerance, ...] = ()

    @property
    def lines(self) -> tuple[NodeLine, ...]:
        """A line for each node, and for each host without one."""
        return self.nodes + self.empty_hosts

    @property
    def lost_services(self) -> list[ServiceLine]:
        """The services other than agents that are not up; nodes show the state of agents."""
        others = (found for found in self.services if found.binary != COMPUTE_BINARY)
        return [found for found in others if found.state != "up"]


def build_overview(rows: OverviewRows, service_down_time: int, held_fact_expiry: int) -> Overview:
    """Build the overview.

    Args:
        held_fact_expiry: see `freshness_of`.
    """
    liveness = Liveness.of(rows.services, rows.now, service_down_time)
    services = tuple(_service_line(found, liveness) for found in rows.services)
    found = _list_lines(rows, services, liveness, held_fact_expiry)
    lines = tuple(line for line in found if line.node.nodename)
    warnings, silenced = Counter[WarningKind](), 0
    down = find_hosts_down(rows.services, liveness).keys()
    quiet = {x.host for x in rows.warnings if x.kind is WarningKind.HOST_DOWN and x.silenced}
    for warning in rows.warnings:
        if warning.kind is not WarningKind.HOST_DOWN:
            warnings[warning.kind] += warning.count
            silenced += warning.silenced
    # As it is now, not as it is stored.
    warnings[WarningKind.HOST_DOWN] = len(down - quiet)
    silenced += len(down & quiet)
    guests = {kind: sum(line.guests[kind] for line in lines) for kind in WorkloadKind}
    totals = _sum_amounts(line.amounts for line in lines)
    return Overview(
        now=rows.now,
        totals=totals,
        left={resource: _sum_left(resource, use, lines) for resource, use in totals.items()},
        measured=_sum_measured(lines, measure_node),
        used_by_guests=_sum_measured(lines, _measure_guests) if any(guests.values()) else {},
        states=Counter((line.state, line.status) for line in lines),
        freshness=Counter(line.freshness for line in lines),
        claims=rows.claims,
        guests=guests,
        warnings=+warnings,
        silenced=silenced,
        services=services,
        nodes=lines,
        empty_hosts=tuple(line for line in found if not line.node.nodename),
        warned=rows.warnings,
        tolerance=summarize_tolerance(rows.tolerances, rows.now),
        tolerances=tuple(item for item in rows.tolerances if is_fresh(item, rows.now)),
    )


def _list_lines(
    rows: OverviewRows,
    services: Iterable[ServiceLine],
    liveness: Liveness,
    held_fact_expiry: int,
) -> list[NodeLine]:
    """Return a line for each node and each host without one, in order of host and nodename."""
    agents = {found.host: found for found in rows.services if found.binary == COMPUTE_BINARY}
    states = {found.host: found.state for found in services if found.binary == COMPUTE_BINARY}
    unclaimed: dict[int, list[UnclaimedSum]] = {}
    for item in rows.unclaimed:
        unclaimed.setdefault(item.node_id, []).append(item)
    warnings = Counter[tuple[str, str]]()
    for warning in rows.warnings:
        if warning.kind is not WarningKind.HOST_DOWN:
            warnings[warning.host, warning.nodename] += warning.count
    without_agent = state_of(None, Liveness(rows.now, 0))
    empty = map(blank_node, agents.keys() - {node.host for node in rows.nodes})
    lines = []
    for node in sorted([*rows.nodes, *empty], key=lambda node: (node.host, node.nodename)):
        agent, state = agents.get(node.host), states.get(node.host, without_agent)
        age = audit_age_seconds(agent, node.nodename, rows.now) if node.nodename else None
        interval = None if agent is None else agent.last_audit.get("audit_interval_seconds")
        lines.append(
            NodeLine(
                node=node,
                state=state,
                status=status_of(agent),
                maintenance=agent is not None and agent.maintenance,
                freshness=freshness_of(state, age, interval, held_fact_expiry),
                amounts=amounts_of(node, unclaimed.get(node.id, ())),
                guests={
                    WorkloadKind.INSTANCE: node.running_vms,
                    WorkloadKind.CONTAINER: node.total_containers,
                },
                warnings=sum(warnings[node.host, name] for name in {node.nodename, WHOLE_HOST}),
                audit_age_seconds=age,
                down_since=find_down_since(agent, liveness),
                agent=agent,
            )
        )
    return lines


def amounts_of(node: AmountColumns, sums: Iterable[UnclaimedSum]) -> dict[str, ResourceUse]:
    """Return what a node has of each resource class, given what its unclaimed guests use."""
    overhead = overhead_of(node)
    unclaimed = sum((_charge_of(found, overhead) for found in sums), Amounts())
    capacities = list_capacities(node)
    return {name: split_capacity(found, unclaimed[name]) for name, found in capacities.items()}


def _charge_of(found: UnclaimedSum, overhead_mb: int) -> Amounts:
    """Return the charge of guests as `usage.charge_of_claim` computes it for one."""
    overhead = overhead_mb * found.guests if found.kind is WorkloadKind.INSTANCE else 0
    return Amounts.of(found) + Amounts(memory_mb=overhead)


def split_capacity(capacity: Capacity, unclaimed: int) -> ResourceUse:
    """Return a capacity by user; what is not used is not unclaimed, so that the parts add up."""
    used = capacity.used - capacity.reserved
    shown = min(unclaimed, max(0, used))
    return ResourceUse(capacity.total, capacity.reserved, used - shown, shown, capacity.own_limit)


def _sum_amounts(each: Iterable[Uses]) -> dict[str, ResourceUse]:
    totals = dict.fromkeys(PARTS, ResourceUse())
    for amounts in each:
        for resource, use in amounts.items():
            totals[resource] = totals[resource] + use
    return totals


def _sum_left(resource: str, total: ResourceUse, lines: Iterable[NodeLine]) -> Left:
    """Return what is left; a node of which too much is allocated takes nothing from others."""
    amount = on_disk = 0
    amounts, hosts = Counter[str](), dict[str, set[str]]()
    for line in lines:
        use, node = line.amounts[resource], line.node
        left = use.left
        if left <= 0:
            continue
        if why := line.why_unclaimable:
            amounts[why] += left
            hosts.setdefault(why, set()).add(node.host)
        else:
            found = left_on_node(resource, use, node.disk_available_least)
            amount, on_disk = amount + found.amount, on_disk + found.on_disk
    if not amount and total.left < 0:
        amount = on_disk = total.left
    known = (why for why in _UNCLAIMABLE if why in hosts)
    return Left(amount, on_disk, {why: (amounts[why], len(hosts[why])) for why in known})


def _measure_guests(node: OverviewNode) -> Mapping[str, int | None]:
    return measure_guests(node) or {VCPU: 0, MEMORY: 0}


def _sum_measured(
    lines: Iterable[NodeLine], measure: Callable[[OverviewNode], Mapping[str, int | None]]
) -> dict[str, MeasuredUse]:
    sums: dict[str, MeasuredUse] = {}
    for line in lines:
        if line.freshness not in _RECENT:
            continue
        node = line.node
        totals = {
            VCPU: (node.vcpus + node.pcpus) * PARTS[VCPU],
            MEMORY: node.memory_mb,
            DISK: node.local_gb * PARTS[DISK],
        }
        for resource, used in measure(node).items():
            if used is not None and totals[resource]:
                known = sums.get(resource, MeasuredUse())
                sums[resource] = MeasuredUse(
                    known.used + used, known.total + totals[resource], known.nodes + 1
                )
    return sums


def _service_line(service: ServiceRecord, liveness: Liveness) -> ServiceLine:
    now, skew, seen = liveness.now, service.clock_skew_ms, service.last_seen_up
    is_agent = service.binary == COMPUTE_BINARY
    return ServiceLine(
        host=service.host,
        binary=service.binary,
        state=state_of(service, liveness),
        status=status_of(service),
        maintenance=service.maintenance,
        forced_down=service.forced_down,
        heartbeat_age_seconds=None if seen is None else max(0.0, (now - seen).total_seconds()),
        # No node has this name: the age of the host's last audit.
        audit_age_seconds=audit_age_seconds(service, WHOLE_HOST, now) if is_agent else None,
        clock_skew_seconds=None if skew is None else skew / 1000,
        down_since=find_down_since(service, liveness),
    )


_UNCLAIMABLE = ("down", "unreachable", "in maintenance", "disabled")
"""What `NodeLine.why_unclaimable` returns."""

_RECENT = (Freshness.FRESH, Freshness.LATE)
