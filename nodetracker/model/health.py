"""Health of a process: its status in memory, the result of each check, and the worst state."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.service import AuditState


@dataclass(frozen=True, slots=True)
class PlacementStatus:
    """The current state of what an agent reports to placement.

    Attributes:
        error: why placement is unavailable, None while it is available.
        waiting_nodes: number of nodes with changes that placement does not have yet.
        report_age_seconds: age of the oldest of these changes, 0 without any.
        name_conflicts: number of nodes whose name another provider has.
        refused: number of consumers that placement refused.
        foreign, leaked: number of consumers on the nodes' providers that others
            made, and of own ones that the ledger does not know.
        requests: (method, outcome) -> number of requests since the start.
    """

    error: str | None = None
    waiting_nodes: int = 0
    report_age_seconds: float = 0.0
    name_conflicts: int = 0
    refused: int = 0
    foreign: int = 0
    leaked: int = 0
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The current state of the agent, taken from memory without any query.

    Attributes:
        host, agent_id: the managed host, and the agent's identity.
        epoch: epoch of the takeover; None before the agent took over its host.
        has_started: the first audit has been attempted, whatever its result.
        audit: the same ages as in the heartbeat.
        audit_interval: seconds between audits; None = only on demand.
        fine_nodes: number of nodes that the last stored audit read completely.
        database_error: why the database is unavailable, None while it is available.
        driver_error: why nodes could not be listed, None when they were.
        heartbeat_age_seconds: since the last stored heartbeat; None = never.
        service_down_time: seconds without a heartbeat after which the host is down.
        report_count: number of heartbeats, as stored in the services row.
        clock_skew_seconds: this host's clock minus the database's; None = unknown.
        has_broker: whether a message broker is configured.
        rpc_error: why wake-ups are not received yet; None = they are, or there is no broker.
        notifications_error: why notifications cannot be sent, None while they can.
        placement: of the reporter to placement, None without one.
    """

    host: str
    agent_id: str
    epoch: int | None = None
    has_started: bool = False
    audit: AuditState = field(default_factory=AuditState)
    audit_interval: float | None = None
    fine_nodes: int = 0
    database_error: str | None = None
    driver_error: str | None = None
    heartbeat_age_seconds: float | None = None
    service_down_time: float = 60.0
    report_count: int = 0
    clock_skew_seconds: float | None = None
    has_broker: bool = True
    rpc_error: str | None = None
    notifications_error: str | None = None
    placement: PlacementStatus | None = None

    @property
    def broker_error(self) -> str | None:
        """Why the broker cannot be used, None while nothing shows that it cannot."""
        return self.rpc_error or self.notifications_error

    @property
    def node_count(self) -> int:
        """Number of nodes as of the last stored audit."""
        return self.fine_nodes + len(self.audit.nodes)


@dataclass(frozen=True, slots=True)
class ApiStatus:
    """The current state of a REST service, taken from memory without any query.

    Attributes:
        database_error: why the database is unavailable, None while it is available.
        has_heartbeat: whether the process reports heartbeats; under a foreign WSGI server
            it does not, and `database_error` is that of its last request.
        heartbeat_age_seconds: since the last stored heartbeat; None = never.
        service_down_time: seconds without a heartbeat after which the service is down.
        has_broker: whether a message broker is configured.
        broker_error: why the broker cannot be used, None while it can.
        has_user_file: whether users are those of a file.
        user_file_error: why nobody can log in, None otherwise.
        overview_age_seconds: of the fleet's overview; None = without one.
    """

    database_error: str | None = None
    has_heartbeat: bool = True
    heartbeat_age_seconds: float | None = None
    service_down_time: float = 60.0
    has_broker: bool = True
    broker_error: str | None = None
    has_user_file: bool = True
    user_file_error: str | None = None
    overview_age_seconds: float | None = None


class HealthState(enum.StrEnum):
    """The state of a check, best first."""

    PASS = "pass"  # noqa: S105  (not a password)
    WARN = "warn"  # the process works, but something needs attention
    FAIL = "fail"  # the process does not work


_WORST_STATES = (HealthState.FAIL, HealthState.WARN)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        output: the problem, or why nothing is checked; None without either.
        details: the evaluated data as plain JSON; ages in seconds.
    """

    state: HealthState = HealthState.PASS
    output: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self, has_output: bool = True) -> dict[str, Any]:
        """Return the check as a JSON object, e.g. ``{"status": "pass", "age_seconds": 3.2}``."""
        output = {"output": self.output} if has_output and self.output is not None else {}
        return {"status": self.state.value, **self.details, **output}


@dataclass(frozen=True, slots=True)
class Health:
    """All checks of one process, by name."""

    checks: Mapping[str, HealthCheck]

    @property
    def state(self) -> HealthState:
        """The worst state of any check."""
        states = {check.state for check in self.checks.values()}
        return next((state for state in _WORST_STATES if state in states), HealthState.PASS)

    def as_json(self, has_output: bool = True) -> dict[str, Any]:
        """Return ``{"status": "pass|warn|fail", "checks": {name: {"status": …}}}``.

        Args:
            has_output: with the texts of problems, which not everybody may read.
        """
        checks = {name: check.as_json(has_output) for name, check in self.checks.items()}
        return {"status": self.state.value, "checks": checks}
