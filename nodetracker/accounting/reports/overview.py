"""Summarize the whole fleet: totals, states, freshness, and one line for each node."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from nodetracker.accounting.ledger.capacity import Capacity, list_capacities
from nodetracker.accounting.liveness import find_broker_outage
from nodetracker.accounting.reports.freshness import Freshness, freshness_of
from nodetracker.accounting.reports.host_down import find_hosts_down
from nodetracker.accounting.reports.summary import audit_age_seconds, state_of, status_of
from nodetracker.accounting.usage import Charge, sum_charges
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, ClaimState
from nodetracker.model.fleet import OverviewNode, OverviewRows, UnclaimedSum
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.units import MIB_PER_GIB, MILLI
from nodetracker.model.warning import WHOLE_HOST, WarningKind

PARTS = {VCPU: MILLI, PCPU: 1, MEMORY: 1, DISK: MIB_PER_GIB}
"""Parts of one unit of each resource class: thousandths of a CPU, MiB of a GiB."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Capacity and usage of one resource class, in parts: thousandths of a CPU, MiB.

    Attributes:
        total: capacity, of which reserved, claimed, unclaimed and free are the sum.
        claimed: usage of claims, and of guests by which they exceed their claims.
        unclaimed: usage of guests without a claim.
        limit: what may be used, reserved amounts included, with the allocation ratio.
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
    def free(self) -> int:
        """The unused part of the capacity, negative when more is used."""
        return self.total - self.reserved - self.used

    def __add__(self, other: "ResourceUse") -> "ResourceUse":
        """Return the sum."""
        return ResourceUse(
            self.total + other.total,
            self.reserved + other.reserved,
            self.claimed + other.claimed,
            self.unclaimed + other.unclaimed,
            self.limit + other.limit,
        )


Amounts = Mapping[str, ResourceUse]
"""Resource class -> its capacity and usage, for VCPU, PCPU, MEMORY_MB and DISK_GB."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node of the overview.

    Attributes:
        state, status, maintenance: of its host's service; see `summary.state_of`.
        guests: number of guests by kind.
        warnings: number of unresolved warnings about it.
        audit_age_seconds: since its last good reading, None = never; not rendered.
        node: its row, whose ratios metrics need.
    """

    node: OverviewNode
    state: str
    status: str
    maintenance: bool
    freshness: Freshness
    amounts: Amounts
    guests: Mapping[WorkloadKind, int]
    warnings: int
    audit_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """The state of one service of the overview.

    Attributes:
        heartbeat_age_seconds: since its last heartbeat, None = never.
        audit_age_seconds: since the last audit of a host, None = never.
        clock_skew_seconds: the host's clock minus the database's, None = unknown.
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


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of the whole fleet.

    Attributes:
        now: the database's time.
        totals: sums over all nodes, whatever their state.
        states: number of nodes by state and status.
        warnings: number of unresolved warnings by kind, those about whole hosts included;
            ``host_down`` as the hosts are now.
        nodes: in order of host and nodename.
    """

    now: datetime
    totals: Amounts
    states: Mapping[tuple[str, str], int]
    freshness: Mapping[Freshness, int]
    claims: Mapping[ClaimState, int]
    guests: Mapping[WorkloadKind, int]
    warnings: Mapping[WarningKind, int]
    services: tuple[ServiceLine, ...]
    nodes: tuple[NodeLine, ...]

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
    outage = find_broker_outage(rows.services, rows.now, service_down_time)
    services = tuple(
        _service_line(found, rows.now, service_down_time, outage) for found in rows.services
    )
    lines = _list_lines(rows, services, held_fact_expiry)
    warnings = Counter[WarningKind]()
    for warning in rows.warnings:
        warnings[warning.kind] += warning.count
    # As it is now, not as it is stored.
    warnings[WarningKind.HOST_DOWN] = len(
        find_hosts_down(rows.services, rows.now, service_down_time, outage)
    )
    return Overview(
        now=rows.now,
        totals=_sum_amounts(line.amounts for line in lines),
        states=Counter((line.state, line.status) for line in lines),
        freshness=Counter(line.freshness for line in lines),
        claims=rows.claims,
        guests={kind: sum(line.guests[kind] for line in lines) for kind in WorkloadKind},
        warnings=+warnings,
        services=services,
        nodes=tuple(lines),
    )


def _list_lines(
    rows: OverviewRows, services: Iterable[ServiceLine], held_fact_expiry: int
) -> list[NodeLine]:
    """Return a line for each node, in order of host and nodename."""
    agents = {found.host: found for found in rows.services if found.binary == COMPUTE_BINARY}
    states = {found.host: found.state for found in services if found.binary == COMPUTE_BINARY}
    unclaimed: dict[int, list[UnclaimedSum]] = {}
    for item in rows.unclaimed:
        unclaimed.setdefault(item.node_id, []).append(item)
    warnings = Counter[tuple[str, str]]()
    for warning in rows.warnings:
        warnings[warning.host, warning.nodename] += warning.count
    without_agent = state_of(None, rows.now, 0)
    lines = []
    for node in sorted(rows.nodes, key=lambda node: (node.host, node.nodename)):
        agent, state = agents.get(node.host), states.get(node.host, without_agent)
        age = audit_age_seconds(agent, node.nodename, rows.now)
        interval = None if agent is None else agent.last_audit.get("audit_interval_seconds")
        freshness = freshness_of(state, age, interval, held_fact_expiry)
        amounts = _amounts_of(node, unclaimed.get(node.id, ()))
        count = warnings[node.host, node.nodename]
        lines.append(_node_line(node, agent, state, freshness, amounts, count, age))
    return lines


def _node_line(
    node: OverviewNode,
    agent: ServiceRecord | None,
    state: str,
    freshness: Freshness,
    amounts: Amounts,
    warnings: int,
    audit_age_seconds: float | None,
) -> NodeLine:
    return NodeLine(
        node=node,
        state=state,
        status=status_of(agent),
        maintenance=agent is not None and agent.maintenance,
        freshness=freshness,
        amounts=amounts,
        guests={
            WorkloadKind.INSTANCE: node.running_vms,
            WorkloadKind.CONTAINER: node.total_containers,
        },
        warnings=warnings,
        audit_age_seconds=audit_age_seconds,
    )


def _amounts_of(node: OverviewNode, sums: Iterable[UnclaimedSum]) -> dict[str, ResourceUse]:
    """Return a node's amounts."""
    overhead = int(node.overhead.get("memory_mb", 0))
    unclaimed = amounts_of_charge(sum_charges(_charge_of(found, overhead) for found in sums))
    capacities = list_capacities(node)
    return {name: split_capacity(found, unclaimed[name]) for name, found in capacities.items()}


def _charge_of(found: UnclaimedSum, overhead_mb: int) -> Charge:
    """Return the charge of guests as `usage.charge_of_claim` computes it for one."""
    overhead = overhead_mb * found.guests if found.kind is WorkloadKind.INSTANCE else 0
    return Charge(found.vcpu_milli, found.memory_mb + overhead, found.disk_mb, found.pcpus)


def amounts_of_charge(charge: Charge) -> dict[str, int]:
    """Return a charge by resource class, in parts."""
    parts = (charge.vcpu_milli, charge.pcpus, charge.memory_mb, charge.disk_mb)
    return dict(zip(PARTS, parts, strict=True))


def split_capacity(capacity: Capacity, unclaimed: int) -> ResourceUse:
    """Return a capacity by user; what is not used is not unclaimed, so that the parts add up."""
    used = capacity.used - capacity.reserved
    shown = min(unclaimed, max(0, used))
    return ResourceUse(capacity.total, capacity.reserved, used - shown, shown, capacity.own_limit)


def _sum_amounts(each: Iterable[Amounts]) -> dict[str, ResourceUse]:
    totals = dict.fromkeys(PARTS, ResourceUse())
    for amounts in each:
        for resource, use in amounts.items():
            totals[resource] = totals[resource] + use
    return totals


def _service_line(
    service: ServiceRecord, now: datetime, service_down_time: int, outage: datetime | None
) -> ServiceLine:
    skew, seen = service.clock_skew_ms, service.last_seen_up
    is_agent = service.binary == COMPUTE_BINARY
    return ServiceLine(
        host=service.host,
        binary=service.binary,
        state=state_of(service, now, service_down_time, outage),
        status=status_of(service),
        maintenance=service.maintenance,
        forced_down=service.forced_down,
        heartbeat_age_seconds=None if seen is None else max(0.0, (now - seen).total_seconds()),
        # No node has this name: the age of the host's last audit.
        audit_age_seconds=audit_age_seconds(service, WHOLE_HOST, now) if is_agent else None,
        clock_skew_seconds=None if skew is None else skew / 1000,
    )
