"""Summarize the health of the fleet in words."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodetracker.accounting.reports.freshness import Freshness
from nodetracker.accounting.reports.overview import NodeLine, Overview
from nodetracker.accounting.reports.values import count_noun

_LATE = (Freshness.LATE, Freshness.STALE)


class HealthLevel(enum.StrEnum):
    """How bad the worst problem is."""

    UNKNOWN = "unknown"  # there is no node
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """One thing that is wrong in the fleet.

    Attributes:
        filters: which select its nodes on the page; empty for warnings, which also
            concern whole hosts.
    """

    level: HealthLevel
    text: str
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetHealth:
    """The health of the fleet, its problems with the worst first."""

    level: HealthLevel
    text: str
    problems: tuple[FleetProblem, ...]


def is_overcommitted(line: NodeLine) -> bool:
    """Return whether more of a resource is used than may be used with its ratio."""
    return any(use.total - use.free > use.limit for use in line.amounts.values())


def summarize_health(overview: Overview) -> FleetHealth:
    """Return the health of the fleet.

    If not all nodes are listed, what only their lines show is counted for those listed.
    """
    problems = tuple(_find_problems(overview))
    count = sum(overview.states.values())
    if problems:
        text = ", ".join(problem.text for problem in problems)
        return FleetHealth(problems[0].level, text, problems)
    if not count:
        return FleetHealth(HealthLevel.UNKNOWN, "No node yet", ())
    text = "The node is fine" if count == 1 else f"All {count:,} nodes are fine"
    return FleetHealth(HealthLevel.GOOD, text, ())


def _find_problems(overview: Overview) -> Iterable[FleetProblem]:
    for state in ("down", "unreachable"):
        if lost := sum(n for (found, _), n in overview.states.items() if found == state):
            text = f"{_count_hosts(overview, state, lost)} {state}"
            yield FleetProblem(HealthLevel.BAD, text, {"state": state})
    never = overview.freshness.get(Freshness.NEVER, 0)
    unread = sum(line.state == "up" and line.freshness in _LATE for line in overview.nodes)
    over = sum(map(is_overcommitted, overview.nodes))
    for count, text, filters in (
        (unread, f"{_count(unread, 'node')} not read recently", {"only": "unread"}),
        (never, f"{_count(never, 'node')} never read", {"freshness": Freshness.NEVER.value}),
        (over, f"{_count(over, 'node')} overcommitted", {"only": "overcommitted"}),
    ):
        if count:
            yield FleetProblem(HealthLevel.WARNING, text, filters)
    if warnings := sum(overview.warnings.values()):
        yield FleetProblem(HealthLevel.WARNING, _count(warnings, "warning"))


def _count_hosts(overview: Overview, state: str, nodes: int) -> str:
    """Return the number of hosts in a state; of nodes where not all nodes are listed."""
    if overview.is_truncated:
        return _count(nodes, "node")
    return _count(len({line.node.host for line in overview.nodes if line.state == state}), "host")


def _count(number: int, noun: str) -> str:
    return count_noun(number, noun).replace(str(number), f"{number:,}")
