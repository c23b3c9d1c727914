"""Collect the metrics of one agent and its nodes: updated by audits, rendered by scrapes."""

import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
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
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.fact import FactState, ProbeStatistics
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.health import AgentStatus
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.service import AuditState
from nodetracker.model.start import StartOutcome
from nodetracker.model.units import bytes_from_gib, bytes_from_mib
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


_ADMISSIONS: tuple[Row, ...] = (
    ("admissions_total{driver,outcome}", lambda door: door.count()[0],
     "Questions of engines whether a guest may start, by outcome."),
    ("admission_seconds_total{driver}", lambda door: door.count()[1],
     "Total duration of the answers to them."),
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


class AdmissionCounts(Protocol):
    """Counters of the questions of engines."""

    def count(self) -> tuple[Mapping[tuple[str, StartOutcome], int], Mapping[str, float]]:
        """Return the questions by driver and outcome, and how long they took by driver."""


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
        door: AdmissionCounts | None = None,
    ) -> None:
        super().__init__(version)
        self._drivers = ",".join(drivers)
        self._audits = audits
        self._status = status
        self._probes = probes
        self._notifications = notifications
        self._door = door

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
        if self._door is not None:
            yield from families(_ADMISSIONS, self._door)
        yield from render_nodes(nodes, status.audit)


Read = Callable[[NodeValues], float | None]


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else bytes_from_mib(mib)


_FAMILIES: tuple[tuple[str, Read | Mapping[str, Read], str], ...] = (
    ("cpu_capacity", {"vcpus": lambda v: v.vcpus, "pcpus": lambda v: v.pcpus},
     "CPUs shared by guests (vcpus) or available for pinning (pcpus)."),
    ("cpu_used", {"vcpus": lambda v: v.vcpus_used, "pcpus": lambda v: v.pcpus_used},
     "CPUs in use: those reserved for the host and those of claims and guests."),
    ("cpu_reserved", {"vcpus": lambda v: v.reserved.get("vcpus")},
     "CPUs reserved for the host."),
    ("memory_capacity_bytes", lambda v: bytes_from_mib(v.memory_mb),
     "Total memory of the node."),
    ("memory_used_bytes", lambda v: bytes_from_mib(v.memory_mb_used),
     "Memory in use: that reserved for the host and that of claims and guests."),
    ("memory_reserved_bytes", lambda v: _bytes(v.reserved.get("memory_mb")),
     "Memory reserved for the host."),
    ("memory_available_bytes", lambda v: _bytes(v.mem_available),
     "Available memory as measured; updated when it changes by more than one percent."),
    ("disk_capacity_bytes", lambda v: bytes_from_gib(v.local_gb),
     "Disk space of the node as claims see it: the size of guests' filesystem in whole GiB."),
    ("disk_used_bytes",
     lambda v: bytes_from_gib(v.disk_used) + bytes_from_mib(v.reserved.get("disk_mb", 0)),
     "Disk space in use: that reserved for the host and that of claims and guests."),
    ("disk_reserved_bytes", lambda v: _bytes(v.reserved.get("disk_mb")),
     "Disk space reserved for the host."),
    ("allocation_ratio",
     {
         "vcpus": lambda v: v.cpu_allocation_ratio,
         "memory": lambda v: v.ram_allocation_ratio,
         "disk": lambda v: v.disk_allocation_ratio,
     },
     "Amount of a resource that may be claimed per physical unit."),
)  # fmt: skip
"""Name behind ``node_``, how a node's value is read, or that of each of its resources, help."""


def render_nodes(nodes: Mapping[str, NodeRecord], audit: AuditState) -> Iterator[Metric]:
    """Yield the families of all nodes; a deleted node has no series."""
    for name, read, text in _FAMILIES:
        if callable(read):
            values = {node: read(record.values) for node, record in nodes.items()}
            yield family(f"node_{name}{{nodename}}", text, values)
        else:
            of_resources = {
                (node, resource): read_resource(record.values)
                for node, record in nodes.items()
                for resource, read_resource in read.items()
            }
            yield family(f"node_{name}{{nodename,resource}}", text, of_resources)
    yield family(
        "node_guests{nodename,kind,state}",
        "Guests on the node by kind and power state.",
        _count(
            nodes,
            lambda r: [(guest.kind, guest.power_state) for guest in r.guests.values()],
            list(product(WorkloadKind, PowerState)),
        ),
    )
    yield family(
        "node_claims{nodename,state}",
        "Claims on the node that count as used, by state.",
        _count(
            nodes, lambda r: [(c.state,) for c in r.claims.values()], [(s,) for s in ACTIVE_STATES]
        ),
    )
    yield family(
        "node_facts{nodename,state}",
        "Facts of the node by state.",
        _count(
            nodes,
            lambda r: [(e.state,) for e in r.values.facts.values()],
            [(s,) for s in FactState],
        ),
    )
    yield family(
        "node_reading_age_seconds{nodename}",
        "Time since the node was last read completely and stored; no series before that.",
        {name: _age_of(name, audit) for name in nodes},
    )


def _count(
    nodes: Mapping[str, NodeRecord],
    list_keys: Callable[[NodeRecord], Iterable[tuple[str, ...]]],
    keys: Iterable[tuple[str, ...]],
) -> dict[tuple[str, ...], int]:
    """Return (nodename, *key) -> how often each node has the key."""
    found = {name: Counter(list_keys(record)) for name, record in nodes.items()}
    return {(name, *key): counted[key] for name, counted in found.items() for key in keys}


def _age_of(nodename: str, audit: AuditState) -> float | None:
    entry = audit.nodes.get(nodename)
    return audit.age_seconds if entry is None else entry["age_seconds"]
