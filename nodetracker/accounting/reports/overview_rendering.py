"""Render the overview as plain data, for REST."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from nodetracker.accounting.reports.fleet_health import summarize_health
from nodetracker.accounting.reports.freshness import Freshness
from nodetracker.accounting.reports.overview import PARTS, Amounts, NodeLine, Overview
from nodetracker.accounting.reports.summary import STATES, STATUSES
from nodetracker.accounting.reports.values import count_many
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.text import render_time
from nodetracker.model.units import whole_units

AMOUNT_NAMES = ("total", "reserved", "claimed", "unclaimed", "free", "limit")
"""The amounts of a resource in the overview."""


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
    node = line.node
    return {
        "uuid": node.uuid,
        "host": node.host,
        "nodename": node.nodename,
        "state": line.state,
        "status": line.status,
        "maintenance": line.maintenance,
        "freshness": line.freshness.value,
        "amounts": render_amounts(line.amounts),
        "guests": {kind.value: line.guests[kind] for kind in WorkloadKind},
        "warnings": line.warnings,
    }


def render_amounts(
    amounts: Amounts, names: Iterable[str] = AMOUNT_NAMES
) -> dict[str, dict[str, float]]:
    """Return amounts in CPUs, MiB and GiB.

    Args:
        names: those to return of each resource.
    """
    return {
        resource: {name: whole_units(getattr(use, name), PARTS.get(resource, 1)) for name in names}
        for resource, use in amounts.items()
    }
