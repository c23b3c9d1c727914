"""The overview and amounts as plain data."""

from collections.abc import Iterable
from typing import Any

from nodetracker.model.amounts import PARTS
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.serializer import encode, pick
from nodetracker.model.text import render_time
from nodetracker.model.units import whole_units
from nodetracker.views.fleet_health import summarize_health
from nodetracker.views.overview import NodeLine, Overview, Uses
from nodetracker.views.services import DISABLING, FORCING, MAINTENANCE, STATES, STATUSES, Freshness
from nodetracker.views.values import count_many


def render_overview(overview: Overview, max_nodes: int | None = None) -> dict[str, Any]:
    """Return the overview as plain data; only ``now`` differs while the fleet is steady.

    And the ages in the texts of causes, by the minute, hour or day.

    Args:
        max_nodes: lines of nodes at most, None = all; totals and counts are those of all.
    """
    is_truncated = max_nodes is not None and len(overview.nodes) > max_nodes
    return {
        "now": render_time(overview.now),
        "health": encode(summarize_health(overview, is_truncated)),
        "summary": _sum_up(overview),
        "totals": render_amounts(overview.totals),
        "left": {
            resource: f"{found.render(resource)} {found.render_elsewhere(resource)}".rstrip()
            for resource, found in overview.left.items()
        },
        "measured": {
            resource: {
                "percent": 100 * found.used // found.total,
                "nodes": found.nodes,
                "text": _render_measured(overview, resource),
            }
            for resource, found in overview.measured.items()
        },
        "states": _count(STATES, ((state, n) for (state, _), n in overview.states.items())),
        "statuses": _count(STATUSES, ((status, n) for (_, status), n in overview.states.items())),
        "freshness": {kind.value: overview.freshness.get(kind, 0) for kind in Freshness},
        "claims": {state.value: overview.claims.get(state, 0) for state in ClaimState},
        "guests": {kind.value: overview.guests.get(kind, 0) for kind in WorkloadKind},
        "warnings": {kind.value: count for kind, count in sorted(overview.warnings.items())},
        "silenced_warnings": overview.silenced,
        "nodes": [_render_node(line) for line in overview.nodes[:max_nodes]],
        "empty_hosts": [_render_node(line) for line in overview.empty_hosts],
        "down_since": {
            line.node.host: render_time(line.down_since)
            for line in overview.lines
            if line.down_since is not None
        },
        "decisions": {
            line.node.host: pick(line.agent, "forced_down", *FORCING, *MAINTENANCE, *DISABLING)
            for line in overview.lines
            if line.agent
            and (line.agent.forced_down or line.agent.maintenance or line.agent.disabled)
        },
        "truncated": is_truncated,
    }


def _render_measured(overview: Overview, resource: str) -> str:
    """Return what is in use and how much of it by guests, and on how many nodes, unless all."""
    found, nodes = overview.measured[resource], len(overview.nodes)
    on_nodes = f" on {found.nodes:,} of {count_many(nodes, 'node')}"
    text = f"{found.share} in use{on_nodes if found.nodes < nodes else ''}"
    guests = overview.used_by_guests.get(resource)
    if guests is None:
        return text
    on_fewer = f" on {guests.nodes:,}" if guests.nodes < found.nodes else ""
    return f"{text}, {guests.share} by guests{on_fewer}"


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
        **pick(line, "warnings", "severity"),
    }


def render_amounts(amounts: Uses) -> dict[str, dict[str, float]]:
    """Return amounts in CPUs, MiB and GiB."""
    return {
        resource: _in_units(
            resource,
            total=use.total,
            reserved=use.reserved,
            claimed=use.claimed,
            unclaimed=use.unclaimed,
            free=use.free,
            limit=use.limit,
        )
        for resource, use in amounts.items()
    }


def render_uses(amounts: Uses) -> dict[str, dict[str, float]]:
    """Return amounts, and the sum of what claims and guests without a claim use."""
    return {
        resource: {**found, **_in_units(resource, used=amounts[resource].used)}
        for resource, found in render_amounts(amounts).items()
    }


def _in_units(resource: str, **amounts: int) -> dict[str, float]:
    parts = PARTS.get(resource, 1)
    if parts == 1:
        return {**amounts}
    return {name: whole_units(amount, parts) for name, amount in amounts.items()}
