"""Summarize the fleet: totals, states, its health in words, and one line for each node."""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.accounting.ledger.admission import Capacity, list_capacities
from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.reports.services import (
    STATES,
    STATUSES,
    Freshness,
    audit_age_seconds,
    freshness_of,
    state_of,
    status_of,
)
from nodetracker.accounting.reports.values import count_many
from nodetracker.accounting.reports.warnings import find_hosts_down
from nodetracker.accounting.usage import overhead_of
from nodetracker.model.amounts import PARTS, Amounts
from nodetracker.model.claim import ClaimState
from nodetracker.model.fleet import OverviewNode, OverviewRows, UnclaimedSum
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.serializer import pick
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.text import render_time
from nodetracker.model.units import whole_units
from nodetracker.model.warning import WHOLE_HOST, WarningKind


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


Uses = Mapping[str, ResourceUse]
"""Resource class -> its capacity and usage, for VCPU, PCPU, MEMORY_MB and DISK_GB."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node of the overview.

    Attributes:
        state, status, maintenance: of its host's service; see `state_of`.
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
    amounts: Uses
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
    totals: Uses
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
    liveness = Liveness.of(rows.services, rows.now, service_down_time)
    services = tuple(_service_line(found, liveness) for found in rows.services)
    lines = _list_lines(rows, services, held_fact_expiry)
    warnings = Counter[WarningKind]()
    for warning in rows.warnings:
        warnings[warning.kind] += warning.count
    # As it is now, not as it is stored.
    warnings[WarningKind.HOST_DOWN] = len(find_hosts_down(rows.services, liveness))
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
    without_agent = state_of(None, Liveness(rows.now, 0))
    lines = []
    for node in sorted(rows.nodes, key=lambda node: (node.host, node.nodename)):
        agent, state = agents.get(node.host), states.get(node.host, without_agent)
        age = audit_age_seconds(agent, node.nodename, rows.now)
        interval = None if agent is None else agent.last_audit.get("audit_interval_seconds")
        lines.append(
            NodeLine(
                node=node,
                state=state,
                status=status_of(agent),
                maintenance=agent is not None and agent.maintenance,
                freshness=freshness_of(state, age, interval, held_fact_expiry),
                amounts=_amounts_of(node, unclaimed.get(node.id, ())),
                guests={
                    WorkloadKind.INSTANCE: node.running_vms,
                    WorkloadKind.CONTAINER: node.total_containers,
                },
                warnings=warnings[node.host, node.nodename],
                audit_age_seconds=age,
            )
        )
    return lines


def _amounts_of(node: OverviewNode, sums: Iterable[UnclaimedSum]) -> dict[str, ResourceUse]:
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
    )


_LATE = (Freshness.LATE, Freshness.STALE)
_PAGED_FILTERS = frozenset(("state", "status"))
"""Filters of the page that large fleets have, too: those of ``/v1/nodes``."""


class HealthLevel(enum.StrEnum):
    """How bad the worst problem is."""

    UNKNOWN = "unknown"  # there is no node
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement about the fleet.

    Attributes:
        path: of the page's view that lists what it is about, "" where none does.
        filters: which select its nodes in that view.
    """

    level: HealthLevel
    text: str
    path: str = "/"
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetHealth:
    """The health of the fleet.

    Attributes:
        problems: what is wrong, the worst first.
        notes: what administrators have set and takes nodes away from claims.
    """

    level: HealthLevel
    text: str
    problems: tuple[Finding, ...]
    notes: tuple[Finding, ...]


def summarize_health(overview: Overview, is_truncated: bool = False) -> FleetHealth:
    """Return the health of the fleet.

    Args:
        is_truncated: the page does not get all nodes, so it cannot list those that only
            their lines identify.
    """
    problems = tuple(_find_problems(overview, is_truncated))
    notes = tuple(_find_notes(overview, is_truncated))
    count = len(overview.nodes)
    if problems:
        text = ", ".join(problem.text for problem in problems)
        return FleetHealth(problems[0].level, text, problems, notes)
    if not count:
        return FleetHealth(HealthLevel.UNKNOWN, "No node yet", (), notes)
    text = "The node is fine" if count == 1 else f"All {count:,} nodes are fine"
    return FleetHealth(HealthLevel.GOOD, text, (), notes)


def _find_problems(overview: Overview, is_truncated: bool) -> Iterable[Finding]:
    lines = overview.nodes
    for state in ("down", "unreachable"):
        if lost := len({line.node.host for line in lines if line.state == state}):
            text = f"{count_many(lost, 'host')} {state}"
            yield Finding(HealthLevel.BAD, text, filters={"state": state})
    if lost := len(overview.lost_services):
        yield Finding(HealthLevel.BAD, f"{count_many(lost, 'other service')} down", "/services")
    unread = sum(line.state == "up" and line.freshness in _LATE for line in lines)
    never = overview.freshness.get(Freshness.NEVER, 0)
    over = sum(map(_is_overcommitted, lines))
    for count, text, filters in (
        (unread, "not read recently", {"only": "unread"}),
        (never, "never read", {"freshness": Freshness.NEVER.value}),
        (over, "overcommitted", {"only": "overcommitted"}),
    ):
        yield from _find_nodes(HealthLevel.WARNING, count, text, filters, is_truncated)
    if warnings := sum(overview.warnings.values()):
        yield Finding(HealthLevel.WARNING, count_many(warnings, "warning"), "/warnings")


def _is_overcommitted(line: NodeLine) -> bool:
    """Return whether workloads use more than ratios allow; not of a node that was never read."""
    return any(use.used > 0 and use.total - use.free > use.limit for use in line.amounts.values())


def _find_notes(overview: Overview, is_truncated: bool) -> Iterable[Finding]:
    good, lines = HealthLevel.GOOD, overview.nodes
    count = sum(line.status == "disabled" for line in lines)
    yield from _find_nodes(good, count, "disabled", {"status": "disabled"}, is_truncated)
    count = sum(line.maintenance for line in lines)
    yield from _find_nodes(good, count, "in maintenance", {"only": "maintenance"}, is_truncated)


def _find_nodes(
    level: HealthLevel, count: int, text: str, filters: Mapping[str, str], is_truncated: bool
) -> Iterable[Finding]:
    """Yield a statement about some nodes, unless there are none."""
    if not count:
        return
    text = f"{count_many(count, 'node')} {text}"
    if is_truncated and not filters.keys() <= _PAGED_FILTERS:
        yield Finding(level, text, path="")
    else:
        yield Finding(level, text, filters=filters)


def render_overview(overview: Overview, max_nodes: int | None = None) -> dict[str, Any]:
    """Return the overview as plain data; only ``now`` differs while the fleet is steady.

    Args:
        max_nodes: lines of nodes at most, None = all; totals and counts are those of all.
    """
    is_truncated = max_nodes is not None and len(overview.nodes) > max_nodes
    return {
        "now": render_time(overview.now),
        "health": asdict(summarize_health(overview, is_truncated)),
        "summary": _sum_up(overview),
        "totals": render_amounts(overview.totals),
        "states": _count(STATES, ((state, n) for (state, _), n in overview.states.items())),
        "statuses": _count(STATUSES, ((status, n) for (_, status), n in overview.states.items())),
        "freshness": {kind.value: overview.freshness.get(kind, 0) for kind in Freshness},
        "claims": {state.value: overview.claims.get(state, 0) for state in ClaimState},
        "guests": {kind.value: overview.guests.get(kind, 0) for kind in WorkloadKind},
        "warnings": {kind.value: count for kind, count in sorted(overview.warnings.items())},
        "nodes": [_render_node(line) for line in overview.nodes[:max_nodes]],
        "truncated": is_truncated,
    }


def _sum_up(overview: Overview) -> str:
    """Return what the fleet has, in words."""
    counts = [
        count_many(len(overview.nodes), "node"),
        *(count_many(overview.guests.get(kind, 0), kind.value) for kind in WorkloadKind),
        count_many(overview.claims.get(ClaimState.CONFIRMED, 0), "claim") + " confirmed",
        f"{overview.claims.get(ClaimState.HELD, 0):,} held",
    ]
    return ", ".join(counts)


def _count(names: Iterable[str], counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    found = dict.fromkeys(names, 0)
    for name, count in counts:
        found[name] += count
    return found


def _render_node(line: NodeLine) -> dict[str, Any]:
    return {
        **pick(line.node, "uuid", "host", "nodename"),
        **pick(line, "state", "status", "maintenance", "freshness"),
        "amounts": render_amounts(line.amounts),
        "guests": {kind.value: line.guests[kind] for kind in WorkloadKind},
        "warnings": line.warnings,
    }


def render_amounts(
    amounts: Uses,
    names: Iterable[str] = ("total", "reserved", "claimed", "unclaimed", "free", "limit"),
) -> dict[str, dict[str, float]]:
    """Return amounts in CPUs, MiB and GiB.

    Args:
        names: those to return of each resource.
    """
    return {
        resource: {name: whole_units(getattr(use, name), PARTS.get(resource, 1)) for name in names}
        for resource, use in amounts.items()
    }
