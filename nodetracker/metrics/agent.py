"""Collect the metrics of one agent: updated after each audit, rendered on each scrape."""

import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nodetracker.metrics.audits import AuditCounter
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.metrics.claims import render_claims
from nodetracker.metrics.families import counter, gauge, gauges, info
from nodetracker.metrics.nodes import render_nodes
from nodetracker.metrics.placement import render_placement
from nodetracker.metrics.probes import ProbeSource, render_probes
from nodetracker.model.audit import AuditReport
from nodetracker.model.health import AgentStatus
from nodetracker.model.node import NodeRecord
from nodetracker.model.warning import REPORTED_BY_OTHERS, HostWarning, WarningKind


class NotificationCounts(Protocol):
    """Counters of a notification sender."""

    @property
    def waiting(self) -> int:
        """Number of notifications waiting to be sent."""

    @property
    def dropped(self) -> int:
        """Number of notifications dropped since the start."""


class AgentMetrics(Collector):
    """Observes the audits of an agent and collects its metrics.

    Each instance has its own registry, so a process may have several. All
    families are rebuilt from values in memory: a scrape queries neither the
    database nor a driver, and removed objects have no series.

    Args:
        version: of the software.
        drivers: names of the active drivers.
        claims: requests for claims by calls of other processes.
        status: returns the agent's current status.
        notifications: counters of the notification sender, None without one.
    """

    def __init__(
        self,
        version: str,
        drivers: Sequence[str],
        status: Callable[[], AgentStatus],
        probes: ProbeSource,
        claims: ClaimCounter,
        notifications: NotificationCounts | None = None,
    ) -> None:
        self._version = version
        self._drivers = ",".join(drivers)
        self._status = status
        self._probes = probes
        self._claims = claims
        self._notifications = notifications
        self._lock = threading.Lock()
        self._counter = AuditCounter()
        self._nodes: Mapping[str, NodeRecord] = {}
        self._warnings: Sequence[HostWarning] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def audited(self, report: AuditReport) -> None:
        """Count one audit and keep its nodes, unless it was not stored."""
        with self._lock:
            self._counter.add(report)
            if report.store_error is None:
                self._nodes = report.nodes
                self._warnings = report.warnings

    def describe(self) -> list[Metric]:
        """Return no families, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families except those of the process."""
        status = self._status()
        with self._lock:
            nodes, warnings = self._nodes, self._warnings
            audits = list(self._counter.render())
        yield info(
            "build",
            "Versions of nodetracker and Python.",
            {"version": self._version, "python": platform.python_version()},
        )
        yield info(
            "agent",
            "Host, identity and drivers of the agent.",
            {"host": status.host, "agent_id": status.agent_id, "driver": self._drivers},
        )
        yield from _render_status(status)
        yield from audits
        counted = Counter(warning.kind for warning in warnings)
        yield gauges(
            "warnings",
            "Active warnings as of the last stored audit.",
            ("kind",),
            [
                ((kind.value,), counted[kind])
                for kind in WarningKind
                if kind not in REPORTED_BY_OTHERS
            ],
        )
        if self._notifications is not None:
            yield gauge(
                "notifications_waiting",
                "Notifications waiting to be sent to the message broker.",
                self._notifications.waiting,
            )
            yield counter(
                "notifications_dropped",
                "Notifications dropped in favour of newer ones while the broker was unavailable.",
                self._notifications.dropped,
            )
        yield from render_claims(self._claims.read())
        if status.placement is not None:
            yield from render_placement(status.placement)
        yield from render_probes(self._probes)
        yield from render_nodes(nodes, status.audit)


def _render_status(status: AgentStatus) -> Iterator[Metric]:
    yield gauge(
        "agent_epoch",
        "Number of agent takeovers of the host; each start increments it.",
        status.epoch,
    )
    yield gauge("agent_started", "1 once the first audit has been attempted.", status.has_started)
    yield gauge("agent_threads", "Number of threads of the process.", threading.active_count())
    yield gauge(
        "audit_age_seconds",
        "Time since the last stored audit; no series before the first one.",
        status.audit.age_seconds,
    )
    yield gauge(
        "audit_interval_seconds",
        "Interval between audits; no series if they run only on demand.",
        status.audit_interval,
    )
    yield gauges(
        "nodes",
        "Nodes by whether the last stored audit read them completely.",
        ("state",),
        [(("fine",), status.fine_nodes), (("failing",), len(status.audit.nodes))],
    )
    yield gauge("database_up", "1 while the database is available.", status.database_error is None)
    yield gauge("driver_up", "1 while the driver can list all nodes.", status.driver_error is None)
    yield gauge(
        "broker_up",
        "1 unless the message broker cannot be used; no series without a broker.",
        status.broker_error is None if status.has_broker else None,
    )
    yield counter(
        "heartbeats", "Heartbeats counted in the host's services row.", status.report_count
    )
    yield gauge(
        "heartbeat_age_seconds",
        "Time since the last stored heartbeat; no series before the first one.",
        status.heartbeat_age_seconds,
    )
    yield gauge(
        "service_down_time_seconds",
        "Age of the last heartbeat at which the host is considered down.",
        status.service_down_time,
    )
    yield gauge(
        "clock_skew_seconds",
        "The host's clock minus the database's clock.",
        status.clock_skew_seconds,
    )
