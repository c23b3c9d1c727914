"""The metrics of one agent: told of every audit, rendered when somebody asks."""

import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nodetracker.metrics.audits import AuditTally
from nodetracker.metrics.families import counter, gauge, gauges, info
from nodetracker.metrics.nodes import render_nodes
from nodetracker.metrics.probes import ProbeSource, render_probes
from nodetracker.model.audit import AuditReport
from nodetracker.model.node import NodeRecord
from nodetracker.model.status import AgentStatus
from nodetracker.model.warning import REPORTED_BY_OTHERS, HostWarning, WarningKind


class NotificationCounts(Protocol):
    """What a sender of notifications counts."""

    @property
    def waiting(self) -> int:
        """How many wait to be sent."""

    @property
    def dropped(self) -> int:
        """How many were dropped since the start."""


class AgentMetrics(Collector):
    """Observes the audits and collects what there is to say of its agent.

    The registry is its own, so several may live in one process. Everything is
    built anew from values that are held already: a scrape asks neither the
    database nor a driver, and what is gone has no series.

    Args:
        version: of the software.
        drivers: names of the drivers that run.
        status: tells what the agent knows of itself.
        notifications: counts what it tells others, None where it tells nobody.
    """

    def __init__(
        self,
        version: str,
        drivers: Sequence[str],
        status: Callable[[], AgentStatus],
        probes: ProbeSource,
        notifications: NotificationCounts | None = None,
    ) -> None:
        self._version = version
        self._drivers = ",".join(drivers)
        self._status = status
        self._probes = probes
        self._notifications = notifications
        self._lock = threading.Lock()
        self._tally = AuditTally()
        self._nodes: Mapping[str, NodeRecord] = {}
        self._warnings: Sequence[HostWarning] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def audited(self, report: AuditReport) -> None:
        """Count one audit and keep its nodes; one that was not stored leaves them as they are."""
        with self._lock:
            self._tally.add(report)
            if report.store_error is None:
                self._nodes = report.nodes
                self._warnings = report.warnings

    def describe(self) -> list[Metric]:
        """Name nothing beforehand, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give every family but those of the process."""
        status = self._status()
        with self._lock:
            nodes, warnings = self._nodes, self._warnings
            audits = list(self._tally.render())
        yield info(
            "build",
            "What runs here.",
            {"version": self._version, "python": platform.python_version()},
        )
        yield info(
            "agent",
            "Who runs here.",
            {"host": status.host, "agent_id": status.agent_id, "driver": self._drivers},
        )
        yield from _render_status(status)
        yield from audits
        counted = Counter(warning.kind for warning in warnings)
        yield gauges(
            "warnings",
            "Warnings that stand since the last audit.",
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
                "Notifications that wait for the message broker.",
                self._notifications.waiting,
            )
            yield counter(
                "notifications_dropped",
                "Notifications that gave way to newer ones while the broker was away.",
                self._notifications.dropped,
            )
        yield from render_probes(self._probes)
        yield from render_nodes(nodes, status.audit)


def _render_status(status: AgentStatus) -> Iterator[Metric]:
    yield gauge(
        "agent_epoch",
        "Number of the agent's take-over of its host; each start raises it.",
        status.epoch,
    )
    yield gauge("agent_started", "1 once the first audit has been tried.", status.has_started)
    yield gauge("agent_threads", "Threads of the process.", threading.active_count())
    yield gauge(
        "audit_age_seconds",
        "Time since the last audit that was stored; no series for never.",
        status.audit.age_seconds,
    )
    yield gauge(
        "audit_interval_seconds",
        "Time between audits; no series when they run on demand only.",
        status.audit_interval,
    )
    yield gauges(
        "nodes",
        "Nodes by whether the last audit that was stored read them in full.",
        ("state",),
        [(("fine",), status.fine_nodes), (("failing",), len(status.audit.nodes))],
    )
    yield gauge("database_up", "1 while the database can be used.", status.database_error is None)
    yield gauge("driver_up", "1 while every node can be listed.", status.driver_error is None)
    yield counter("heartbeats", "Heartbeats in the host's services row.", status.report_count)
    yield gauge(
        "heartbeat_age_seconds",
        "Time since the last heartbeat that was written; no series for never.",
        status.heartbeat_age_seconds,
    )
    yield gauge(
        "service_down_time_seconds",
        "Age of the last heartbeat at which the host is taken for down.",
        status.service_down_time,
    )
    yield gauge(
        "clock_skew_seconds",
        "This host's clock minus the database's.",
        status.clock_skew_seconds,
    )
