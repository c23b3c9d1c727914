"""Say how the fleet is: its health in words, and who is in trouble, since when and why."""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.fleet import WarningCount
from nodetracker.model.text import natural_key
from nodetracker.model.warning import WarningKind
from nodetracker.views.overview import NodeLine, Overview
from nodetracker.views.problems import explain_lost
from nodetracker.views.services import Freshness, find_read_at
from nodetracker.views.values import count_many, render_age

MOST_HOSTS = 100
"""So many names of a cause's hosts are listed."""

MOST_CAUSES = 20
"""The others are counted in one more."""

_SAME_INCIDENT = timedelta(minutes=10)
"""Hosts that fail within this time of each other have the same cause."""

_MOST_INCIDENTS = 3
"""More incidents of one kind are shown as one."""

_MOST_NAMES = 3
_MOST_REASON = 120
_NAMES = {VCPU: "CPU", PCPU: "pinned CPU", MEMORY: "memory", DISK: "disk"}
_LATE = (Freshness.LATE, Freshness.STALE)


class HealthLevel(enum.StrEnum):
    """How bad the worst problem is."""

    UNKNOWN = "unknown"  # there is no node
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One statement about the fleet.

    Attributes:
        path: of the page's view that lists what it is about, "" where none does.
        filters: which select its nodes, or hosts without one, in that view.
    """

    level: HealthLevel
    text: str
    path: str = "/"
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthCause:
    """One cause of trouble and whom it affects; an incident of many hosts is one.

    Attributes:
        hosts: at most `MOST_HOSTS`, in natural order.
        guests: number of them on all affected nodes.
        since: of the first of them; None = unknown.
        path, filters: as in `HealthFinding`; of a single host or node, its own page.
    """

    level: HealthLevel
    text: str
    hosts: tuple[str, ...] = ()
    guests: int = 0
    since: datetime | None = None
    path: str = "/"
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetHealth:
    """The health of the fleet.

    Attributes:
        problems: what is wrong, the worst first.
        notes: what administrators have set and takes nodes away from claims, or warnings
            from the problems.
        causes: the same by cause: the worst first, and of these those with the most guests.
    """

    level: HealthLevel
    text: str
    problems: tuple[HealthFinding, ...]
    notes: tuple[HealthFinding, ...]
    causes: tuple[HealthCause, ...]


def summarize_health(overview: Overview, is_truncated: bool = False) -> FleetHealth:
    """Return the health of the fleet.

    Args:
        is_truncated: the page does not get all nodes, so it cannot list those that only
            their lines identify.
    """
    problems = tuple(_find_problems(overview, is_truncated))
    notes = tuple(_find_notes(overview))
    causes = tuple(list_causes(overview, is_truncated))
    count = len(overview.nodes)
    if problems:
        text = ", ".join(problem.text for problem in problems)
        return FleetHealth(problems[0].level, text, problems, notes, causes)
    if not count:
        return FleetHealth(HealthLevel.UNKNOWN, "No node yet", (), notes, causes)
    text = "The node is fine" if count == 1 else f"All {count:,} nodes are fine"
    return FleetHealth(HealthLevel.GOOD, text, (), notes, causes)


def _find_problems(overview: Overview, is_truncated: bool) -> Iterable[HealthFinding]:
    lines = overview.nodes
    for state in ("down", "unreachable"):
        if lost := len({line.node.host for line in overview.lines if line.state == state}):
            text = f"{count_many(lost, 'host')} {state}"
            yield HealthFinding(HealthLevel.BAD, text, filters={"state": state})
    if lost := len(overview.lost_services):
        yield HealthFinding(
            HealthLevel.BAD, f"{count_many(lost, 'other service')} down", "/services"
        )
    unread = sum(line.state == "up" and line.freshness in _LATE for line in lines)
    never = sum(line.state == "up" and line.freshness is Freshness.NEVER for line in lines)
    over = sum(bool(_list_excess(line)) for line in lines)
    for count, text, filters in (
        (unread, "not read recently", {"only": "unread"}),
        (never, "never read", {"freshness": Freshness.NEVER.value}),
        (over, "overcommitted", {"only": "overcommitted"}),
    ):
        yield from _find_nodes(HealthLevel.WARNING, count, text, filters)
    if empty := sum(line.state == "up" for line in overview.empty_hosts):
        text = f"{count_many(empty, 'host')} without nodes"
        path = "" if is_truncated else "/"
        yield HealthFinding(HealthLevel.WARNING, text, path, {"only": "empty"})
    if warnings := sum(found.count for found in _list_other_warnings(overview)):
        is_rest = warnings < sum(overview.warnings.values())
        text = count_many(warnings, "other warning" if is_rest else "warning")
        yield HealthFinding(HealthLevel.WARNING, text, "/warnings")


def _list_other_warnings(overview: Overview) -> Iterable[WarningCount]:
    """Return the warnings of what nothing else in the health says."""
    lost = {line.node.host for line in overview.lines if line.state != "up"}
    over = {(line.node.host, line.node.nodename) for line in overview.nodes if _list_excess(line)}
    for found in overview.warned:
        is_said = {
            WarningKind.HOST_DOWN: True,
            WarningKind.AGENT_UNREACHABLE: found.host in lost,
            WarningKind.NODE_OVERCOMMITTED: (found.host, found.nodename) in over,
        }
        if found.count and not is_said.get(found.kind):
            yield found


def _list_excess(line: NodeLine) -> list[str]:
    """Return of what workloads use more than ratios allow; nothing of a node never read."""
    uses = line.amounts.items()
    return [_NAMES[name] for name, use in uses if use.used > 0 and use.left < 0]


def _find_notes(overview: Overview) -> Iterable[HealthFinding]:
    good, lines = HealthLevel.GOOD, overview.nodes
    count = sum(line.status == "disabled" for line in lines)
    yield from _find_nodes(good, count, "disabled", {"status": "disabled"})
    count = sum(line.maintenance for line in lines)
    yield from _find_nodes(good, count, "in maintenance", {"only": "maintenance"})
    if overview.tolerance.hosts > 1:  # a single host has nowhere to lose its guests to
        text = overview.tolerance.text
        yield HealthFinding(good, text[0].lower() + text[1:], path="")
    if count := overview.silenced:
        text = f"{count_many(count, 'warning')} silenced"
        yield HealthFinding(good, text, "/warnings", {"silenced": "true"})


def _find_nodes(
    level: HealthLevel, count: int, text: str, filters: Mapping[str, str]
) -> Iterable[HealthFinding]:
    """Yield a statement about some nodes, unless there are none."""
    if count:
        yield HealthFinding(level, f"{count_many(count, 'node')} {text}", filters=filters)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the troubles of one cause have in common.

    Attributes:
        words: with the names of whom it affects in place of ``{}``.
        reason: that an administrator gave, "" without one.
        filters: names and values, by which the view at `path` lists several hosts or nodes.
    """

    level: HealthLevel
    words: str
    details: tuple[str, ...] = ()
    reason: str = ""
    path: str = "/"
    filters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A host or node in trouble.

    Attributes:
        name: of the node, or of the host as a whole.
        uuid: of the node, "" of a host.
        warnings: number of them, if it is warned of.
    """

    kind: _Kind
    host: str
    name: str
    guests: int = 0
    since: datetime | None = None
    uuid: str = ""
    warnings: int = 0


def list_causes(overview: Overview, is_truncated: bool = False) -> list[HealthCause]:
    """Return what is wrong by its causes; the arguments are those of `summarize_health`.

    No trouble is in two of them: what follows from a host's being down is not listed.
    """
    by_kind: dict[_Kind, list[_Trouble]] = {}
    for trouble in _find_troubles(overview):
        by_kind.setdefault(trouble.kind, []).append(trouble)
    found = [
        _describe(incident, overview.now, is_truncated)
        for troubles in by_kind.values()
        for incident in _split_incidents(troubles)
    ]
    ranks = list(HealthLevel)
    found.sort(
        key=lambda cause: (
            -ranks.index(cause.level),
            -cause.guests,
            cause.since or overview.now,
            natural_key(cause.text),
        )
    )
    if not (rest := found[MOST_CAUSES:]):
        return found
    text = count_many(len(rest), "further cause")
    guests = sum(cause.guests for cause in rest)
    return [*found[:MOST_CAUSES], HealthCause(rest[0].level, text, guests=guests, path="")]


def _find_troubles(overview: Overview) -> Iterator[_Trouble]:
    guests = Counter[str]()
    for line in overview.lines:
        guests[line.node.host] += sum(line.guests.values())
    for host, line in {line.node.host: line for line in overview.lines}.items():
        kind = _kind_of_lost(line) if line.state != "up" else _kind_of_set(line)
        if kind is not None:
            yield _Trouble(kind, host, host, guests[host], find_since(line))
    for service in overview.lost_services:
        words = f"{service.binary} on {{}} {service.state}"
        kind = _Kind(HealthLevel.BAD, words, path="/services")
        yield _Trouble(kind, service.host, service.host, since=service.down_since)
    for line in overview.lines:
        if line.state == "up":
            yield from _find_troubles_of_node(line)
    nodes = {(line.node.host, line.node.nodename): line for line in overview.nodes}
    for found in _list_other_warnings(overview):
        filters = (("kind", found.kind.value),)
        words = f"{found.kind.replace('_', ' ')} on {{}}"
        kind = _Kind(HealthLevel.WARNING, words, path="/warnings", filters=filters)
        node = nodes.get((found.host, found.nodename))
        count = sum(node.guests.values()) if node else guests[found.host]
        name = _name_of(found.host, found.nodename)
        yield _Trouble(kind, found.host, name, count, warnings=found.count)


def _kind_of_lost(line: NodeLine) -> _Kind:
    """Return why a host is down or unreachable, and what operators have set."""
    settings = _list_settings(line)
    words, reason = explain_lost(line)
    if line.agent and line.agent.forced_down:
        state, details = words, settings
    else:
        state, details = line.state, [words, *settings]
        reason = _reason_of(line)
    filters = (("state", line.state),)
    return _Kind(HealthLevel.BAD, f"{{}} {state}", tuple(details), reason or "", filters=filters)


def _kind_of_set(line: NodeLine) -> _Kind | None:
    """Return what operators have set for a host that is up, None without anything."""
    if not (settings := _list_settings(line)):
        return None
    filters = ("status", "disabled") if line.status == "disabled" else ("only", "maintenance")
    words = f"{{}} {' and '.join(settings)}"
    return _Kind(HealthLevel.GOOD, words, (), _reason_of(line), filters=(filters,))


def _reason_of(line: NodeLine) -> str:
    """Return why a host is disabled or in maintenance, once if both have the same reason."""
    agent = line.agent
    reasons = (agent.disabled_reason, agent.maintenance_reason) if agent else ()
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _list_settings(line: NodeLine) -> list[str]:
    settings = {"disabled": line.status == "disabled", "in maintenance": line.maintenance}
    return [name for name, is_set in settings.items() if is_set]


def find_since(line: NodeLine) -> datetime | None:
    """Return since when a host is down, or else disabled or in maintenance; None = unknown."""
    if line.agent is None:
        return None
    if line.state != "up":
        return line.agent.forced_down_at or line.down_since
    return line.agent.disabled_at or line.agent.maintenance_at


def _find_troubles_of_node(line: NodeLine) -> Iterator[_Trouble]:
    """Yield what is wrong with a node whose host is up, or with such a host without nodes."""
    node, guests = line.node, sum(line.guests.values())

    def find(words: str, name: str, value: str, since: datetime | None = None) -> _Trouble:
        kind = _Kind(HealthLevel.WARNING, f"{{}} {words}", filters=((name, value),))
        name = _name_of(node.host, node.nodename)
        return _Trouble(kind, node.host, name, guests, since, node.uuid)

    if not node.nodename:
        yield find("without nodes", "only", "empty")
    elif line.freshness is Freshness.NEVER:
        yield find("never read", "freshness", Freshness.NEVER.value)
    elif line.freshness in _LATE:
        since = find_read_at(line.agent, node.nodename)
        yield find("not read", "only", "unread", since)
    if excess := _list_excess(line):
        yield find(f"overcommitted in {_join_names(excess)}", "only", "overcommitted")


def _name_of(host: str, nodename: str) -> str:
    """Return the name of a node; its host's if they differ by a domain alone.

    >>> _name_of("h1", "h1.example.org"), _name_of("h1", "h1-n1"), _name_of("h1", "")
    ('h1', 'h1-n1', 'h1')
    """
    return nodename if nodename.partition(".")[0] not in ("", host.partition(".")[0]) else host


def _order_by_time(trouble: _Trouble) -> float:
    return trouble.since.timestamp() if trouble.since else 0.0


def _split_incidents(troubles: Sequence[_Trouble]) -> list[list[_Trouble]]:
    """Return troubles of one kind by when they began."""
    incidents: list[list[_Trouble]] = []
    last: datetime | None = None
    for trouble in sorted(troubles, key=_order_by_time):
        is_new = trouble.since and (last is None or trouble.since - last > _SAME_INCIDENT)
        if is_new or not incidents:
            incidents.append([])
        incidents[-1].append(trouble)
        last = trouble.since
    return incidents if len(incidents) <= _MOST_INCIDENTS else [list(troubles)]


def _describe(incident: Sequence[_Trouble], now: datetime, is_truncated: bool) -> HealthCause:
    """Return the cause of troubles of one kind."""
    kind = incident[0].kind
    names = sorted({found.name for found in incident}, key=natural_key)
    hosts = sorted({found.host for found in incident}, key=natural_key)
    guests = sum(found.guests for found in incident)
    times = sorted(found.since for found in incident if found.since)
    warnings = sum(found.warnings for found in incident)
    parts = [kind.words.replace("{}", _join_names(names))]
    if times:
        longest = render_age((now - times[0]).total_seconds())
        has_several = times[-1] - times[0] > _SAME_INCIDENT
        parts[0] += f" for {'up to ' if has_several else ''}{longest}"
    parts += kind.details
    if warnings > len(names):
        parts.append(count_many(warnings, "warning"))
    if guests:
        parts.append(count_many(guests, "guest"))
    text = ", ".join(parts) + (f": {_cut(kind.reason)}" if kind.reason else "")
    path, filters = _find_path(incident, is_truncated)
    since = times[0] if times else None
    return HealthCause(kind.level, text, tuple(hosts[:MOST_HOSTS]), guests, since, path, filters)


def _find_path(incident: Sequence[_Trouble], is_truncated: bool) -> tuple[str, Mapping[str, str]]:
    """Return the view of the page that shows who is in trouble, and its filters."""
    first, kind = incident[0], incident[0].kind
    if kind.path != "/":
        return kind.path, dict(kind.filters)
    if len(incident) == 1:
        return (f"/nodes/{first.uuid}", {}) if first.uuid else ("/host", {"host": first.host})
    filters = dict(kind.filters)
    if is_truncated and filters.get("only") == "empty":  # ``/v1/nodes`` has no hosts
        return "", {}
    return "/", filters


def _join_names(names: Sequence[str]) -> str:
    """Return names as in a sentence.

    >>> _join_names(["a"]), _join_names(["a", "b", "c"]), _join_names(["a", "b", "c", "d"])
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    if len(names) > _MOST_NAMES:
        shown, last = names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1:,} more"
    else:
        *shown, last = names
    return f"{', '.join(shown)} and {last}" if shown else last


def _cut(reason: str) -> str:
    return reason if len(reason) <= _MOST_REASON else f"{reason[: _MOST_REASON - 1]}…"
