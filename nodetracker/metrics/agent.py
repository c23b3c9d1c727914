"""Collect the metrics of one agent: updated after each audit, rendered on each scrape."""

import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import (
    Durations,
    ProcessMetrics,
    Row,
    StoreErrorKind,
    families,
    family,
    info,
    render_store_errors,
)
from nodetracker.metrics.nodes import render_nodes
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind
from nodetracker.model.fact import ProbeStatistics
from nodetracker.model.health import AgentStatus
from nodetracker.model.node import NodeRecord
from nodetracker.model.warning import REPORTED_BY_OTHERS, HostWarning, WarningKind

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: an audit without changes takes milliseconds, a hung probe 20 s."""


_STATUS: tuple[Row, ...] = (
    ("agent_epoch", lambda s: s.epoch,
     "Number of agent takeovers of the host; each start increments it."),
    ("agent_started", lambda s: s.has_started, "1 once the first audit has been attempted."),
    ("agent_threads", lambda s: threading.active_count(), "Number of threads of the process."),
    ("audit_age_seconds", lambda s: s.audit.age_seconds,
     "Time since the last stored audit; no series before the first one."),
    ("audit_interval_seconds", lambda s: s.audit_interval,
     "Interval between audits; no series if they run only on demand."),
    ("nodes{state}", lambda s: {"fine": s.fine_nodes, "failing": len(s.audit.nodes)},
     "Nodes by whether the last stored audit read them completely."),
    ("database_up", lambda s: s.database_error is None, "1 while the database is available."),
    ("driver_up", lambda s: s.driver_error is None, "1 while the driver can list all nodes."),
    ("broker_up", lambda s: s.broker_error is None if s.has_broker else None,
     "1 unless the message broker cannot be used; no series without a broker."),
    ("heartbeats_total", lambda s: s.report_count,
     "Heartbeats counted in the host's services row."),
    ("heartbeat_age_seconds", lambda s: s.heartbeat_age_seconds,
     "Time since the last stored heartbeat; no series before the first one."),
    ("service_down_time_seconds", lambda s: s.service_down_time,
     "Age of the last heartbeat at which the host is considered down."),
    ("clock_skew_seconds", lambda s: s.clock_skew_seconds,
     "The host's clock minus the database's clock."),
)  # fmt: skip
"""Of an `AgentStatus`."""

_NOTIFICATIONS: tuple[Row, ...] = (
    ("notifications_waiting", lambda n: n.waiting,
     "Notifications waiting to be sent to the message broker."),
    ("notifications_dropped_total", lambda n: n.dropped,
     "Notifications dropped in favour of newer ones while the broker was unavailable."),
)  # fmt: skip

_PLACEMENT: tuple[Row, ...] = (
    ("placement_up", lambda s: s.error is None, "1 while placement is available."),
    ("placement_requests_total{method,outcome}", lambda s: dict(sorted(s.requests.items())),
     "Requests to placement by method and outcome."),
    ("placement_waiting_nodes", lambda s: s.waiting_nodes,
     "Nodes with changes that placement does not have yet."),
    ("placement_report_age_seconds", lambda s: s.report_age_seconds,
     "Age of the oldest change that placement does not have yet; 0 without any."),
    ("placement_refused", lambda s: s.refused,
     "Consumers whose allocations placement refused."),
    ("placement_foreign_consumers", lambda s: s.foreign,
     "Consumers of other programs that have allocations on the nodes."),
    ("placement_leaked_consumers", lambda s: s.leaked,
     "Consumers of nodetracker that have allocations and that the ledger does not know."),
)  # fmt: skip
"""Of a `PlacementStatus`."""

_PROBES: tuple[Row, ...] = (
    ("probe_calls_total{probe,outcome}",
     lambda probes: {
         (name, outcome): count
         for name, counted in sorted(probes.statistics().items())
         for outcome, count in counted.calls.items()
     },
     "Calls of a probe by outcome, over all nodes."),
    ("probe_seconds_total{probe}",
     lambda probes: {name: c.seconds for name, c in sorted(probes.statistics().items())},
     "Total duration of the calls of a probe."),
    ("probes_stuck", lambda probes: probes.stuck_count, "Probe calls that are hung now."),
)  # fmt: skip


class AuditResult(enum.StrEnum):
    """The outcome of one audit."""

    COMPLETE = "complete"  # every node was read completely and stored
    INCOMPLETE = "incomplete"  # stored, but reading some node or source failed
    NOT_STORED = "not_stored"  # writing to the database failed


class AuditCounter:
    """Observes the audits of an agent: counts them and keeps the last one's nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: Counter[AuditResult] = Counter()
        self._errors: Counter[StoreErrorKind] = Counter()
        self._changes: Counter[ChangeKind] = Counter()
        self._durations = Durations(BUCKETS)
        self._nodes: Mapping[str, NodeRecord] = {}
        self._warnings: Sequence[HostWarning] = ()

    def audited(self, report: AuditReport) -> None:
        """Count one audit and keep its nodes, unless it was not stored."""
        with self._lock:
            self._outcomes[_outcome_of(report)] += 1
            self._changes.update(change.kind for change in report.changes)
            self._durations.add(report.duration_seconds)
            if report.store_error is not None:
                self._errors[StoreErrorKind.of(report.store_error)] += 1
            else:
                self._nodes = report.nodes
                self._warnings = report.warnings

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """Those of the last stored audit by name."""
        return self._nodes

    def render(self) -> list[Metric]:
        """Return the families of audits and of the warnings that the last stored one found."""
        with self._lock:
            return list(self._render())

    def _render(self) -> Iterator[Metric]:
        outcomes = {outcome: self._outcomes[outcome] for outcome in AuditResult}
        yield family("audits_total{outcome}", "Audits by outcome.", outcomes)
        yield self._durations.render("audit_duration_seconds", "Duration of audits, stored or not.")
        changes = {kind: self._changes[kind] for kind in ChangeKind}
        yield family("node_changes_total{kind}", "Changes of node rows written by audits.", changes)
        yield render_store_errors(
            "database_errors", "Audits that could not be written to the database.", self._errors
        )
        counted = Counter(warning.kind for warning in self._warnings)
        yield family(
            "warnings{kind}",
            "Active warnings as of the last stored audit.",
            {kind: counted[kind] for kind in WarningKind if kind not in REPORTED_BY_OTHERS},
        )


def _outcome_of(report: AuditReport) -> AuditResult:
    if report.store_error is not None:
        return AuditResult.NOT_STORED
    return AuditResult.COMPLETE if report.is_good else AuditResult.INCOMPLETE


class ProbeSource(Protocol):
    """The runner of the probes."""

    def statistics(self) -> Mapping[str, ProbeStatistics]:
        """Return the statistics by probe name."""

    @property
    def stuck_count(self) -> int:
        """Number of calls that are hung now."""


class NotificationCounts(Protocol):
    """Counters of a notification sender."""

    @property
    def waiting(self) -> int:
        """Number of notifications waiting to be sent."""

    @property
    def dropped(self) -> int:
        """Number of notifications dropped since the start."""


class AgentMetrics(ProcessMetrics):
    """Collects the metrics of an agent."""

    def __init__(
        self,
        version: str,
        drivers: Sequence[str],
        audits: AuditCounter,
        status: Callable[[], AgentStatus],
        probes: ProbeSource,
        notifications: NotificationCounts | None = None,
    ) -> None:
        super().__init__(version)
        self._drivers = ",".join(drivers)
        self._audits = audits
        self._status = status
        self._probes = probes
        self._notifications = notifications

    def collect(self) -> Iterator[Metric]:
        status, nodes = self._status(), self._audits.nodes
        yield from super().collect()
        yield info(
            "agent",
            "Host, identity and drivers of the agent.",
            {"host": status.host, "agent_id": status.agent_id, "driver": self._drivers},
        )
        yield from families(_STATUS, status)
        yield from self._audits.render()
        if self._notifications is not None:
            yield from families(_NOTIFICATIONS, self._notifications)
        if status.placement is not None:
            yield from families(_PLACEMENT, status.placement)
        yield from families(_PROBES, self._probes)
        yield from render_nodes(nodes, status.audit)
