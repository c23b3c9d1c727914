"""Find what is wrong with each node of the overview, the worst first."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodetracker.model.errors import NotFoundError
from nodetracker.model.fleet import OverviewRows
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.text import name_some
from nodetracker.model.trend import TrendSample
from nodetracker.model.warning import WHOLE_HOST, WarningKind
from nodetracker.views.overview import NodeLine, Overview, ServiceLine, Severity, build_overview
from nodetracker.views.services import Freshness
from nodetracker.views.trends import Trend


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a node.

    Attributes:
        text: a few words.
        age_seconds: since when, None = unknown; changes all the time.
    """

    severity: Severity
    text: str
    age_seconds: float | None = None


NodeProblems = Mapping[tuple[str, str], tuple[Problem, ...]]
"""Host and nodename -> its problems, the worst first."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """The overview of the fleet with the problems of all its nodes, and its trend.

    Attributes:
        hours: samples of the last day of nodes that are watched, by uuid.
    """

    overview: Overview
    problems: NodeProblems
    trend: Trend = field(default_factory=Trend)
    hours: Mapping[str, Sequence[TrendSample]] = field(default_factory=dict)

    def problems_of(self, line: NodeLine) -> tuple[Problem, ...]:
        """Return a node's problems, the worst first."""
        return self.problems.get((line.node.host, line.node.nodename), ())


def view_fleet(
    rows: OverviewRows, service_down_time: int, held_fact_expiry: int, trend: Trend | None = None
) -> FleetView:
    """Build the overview, and find the problems; the arguments are those of `build_overview`."""
    overview = build_overview(rows, service_down_time, held_fact_expiry)
    return FleetView(overview, find_problems(overview, rows), trend or Trend())


def find_problems(overview: Overview, rows: OverviewRows) -> NodeProblems:
    """Return the problems of all nodes.

    Args:
        rows: that the overview was built from.
    """
    services = {found.host: found for found in overview.services if found.binary == COMPUTE_BINARY}
    kinds: dict[tuple[str, str], list[WarningKind]] = {}
    for warning in sorted(rows.warnings, key=lambda warning: warning.kind):
        # The state says whether a host is down.
        if warning.count and warning.kind is not WarningKind.HOST_DOWN:
            kinds.setdefault((warning.host, warning.nodename), []).append(warning.kind)
    found = {}
    for line in overview.lines:
        host, nodename = line.node.host, line.node.nodename
        warned = [*kinds.get((host, nodename), ()), *kinds.get((host, WHOLE_HOST), ())]
        found[host, nodename] = (
            *_find_lost(line, services.get(host)),
            *_find_unread(line),
            *(Problem(Severity.WARNED, kind.replace("_", " ")) for kind in dict.fromkeys(warned)),
            *_find_settings(line),
        )
    return found


def select_host(rows: OverviewRows, host: str) -> OverviewRows:
    """Return the rows of one host's overview.

    Raises:
        NotFoundError: the host has neither a service nor a node.
    """
    nodes = tuple(node for node in rows.nodes if node.host == host)
    services = tuple(service for service in rows.services if service.host == host)
    if not nodes and not services:
        raise NotFoundError(f"no such host: {host}")
    ids = {node.id for node in nodes}
    return replace(
        rows,
        nodes=nodes,
        services=services,
        unclaimed=tuple(found for found in rows.unclaimed if found.node_id in ids),
        claims={},
        warnings=tuple(warning for warning in rows.warnings if warning.host == host),
        tolerances=tuple(item for item in rows.tolerances if item.host == host),
    )


def _find_lost(line: NodeLine, service: ServiceLine | None) -> Iterable[Problem]:
    if line.state == "up":
        return
    words, reason = explain_lost(line)
    is_forced = line.agent is not None and line.agent.forced_down
    age = None if service is None or is_forced else service.heartbeat_age_seconds
    yield Problem(Severity.LOST, _join(words, reason), age)


def _join(words: str, reason: str | None) -> str:
    return f"{words}: {reason}" if reason else words


def explain_lost(line: NodeLine) -> tuple[str, str | None]:
    """Return why a node's host is not up in a few words, and the reason of who forced it down."""
    agent = line.agent
    if agent is None:
        return "no agent", None
    if line.state == "unreachable":
        return "message broker away", None
    if agent.forced_down:
        return "forced down", agent.forced_down_reason
    return "agent stopped" if agent.ended_epoch == agent.epoch else "no heartbeat", None


def _find_unread(line: NodeLine) -> Iterable[Problem]:
    if line.node.damaged:
        yield Problem(Severity.UNREAD, f"row damaged: {name_some(line.node.damaged, 3)}")
    if line.freshness is Freshness.NEVER:
        yield Problem(Severity.UNREAD, "never read" if line.node.nodename else "no node yet")
    elif line.state == "up" and line.freshness is not Freshness.FRESH:
        yield Problem(Severity.UNREAD, "not read", line.audit_age_seconds)


def _find_settings(line: NodeLine) -> Iterable[Problem]:
    if line.maintenance:
        reason = line.agent.maintenance_reason if line.agent else None
        yield Problem(Severity.SET, _join("in maintenance", reason))
    if line.status == "disabled":
        reason = line.agent.disabled_reason if line.agent else None
        yield Problem(Severity.SET, _join("disabled", reason))
