"""Summarize the health of the fleet in words."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodetracker.accounting.reports.freshness import Freshness
from nodetracker.accounting.reports.overview import NodeLine, Overview
from nodetracker.accounting.reports.values import count_many

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


def is_overcommitted(line: NodeLine) -> bool:
    """Return whether workloads use more of a resource than may be used with its ratio.

    A node whose capacity was never read is not, whatever is reserved there.
    """
    return any(use.used > 0 and use.total - use.free > use.limit for use in line.amounts.values())


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
    over = sum(map(is_overcommitted, lines))
    for count, text, filters in (
        (unread, "not read recently", {"only": "unread"}),
        (never, "never read", {"freshness": Freshness.NEVER.value}),
        (over, "overcommitted", {"only": "overcommitted"}),
    ):
        yield from _find_nodes(HealthLevel.WARNING, count, text, filters, is_truncated)
    if warnings := sum(overview.warnings.values()):
        yield Finding(HealthLevel.WARNING, count_many(warnings, "warning"), "/warnings")


def _find_notes(overview: Overview, is_truncated: bool) -> Iterable[Finding]:
    disabled = sum(line.status == "disabled" for line in overview.nodes)
    maintained = sum(line.maintenance for line in overview.nodes)
    for count, text, filters in (
        (disabled, "disabled", {"status": "disabled"}),
        (maintained, "in maintenance", {"only": "maintenance"}),
    ):
        yield from _find_nodes(HealthLevel.GOOD, count, text, filters, is_truncated)


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
