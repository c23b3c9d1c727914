"""Evaluate the health of an agent, and of a REST service, from its current status."""

from dataclasses import replace
from typing import Any

from nodetracker.model.health import (
    AgentStatus,
    ApiStatus,
    Health,
    HealthCheck,
    HealthState,
    PlacementStatus,
)
from nodetracker.model.text import count_noun

MISSED_INTERVALS = 3
"""Audits that may be missed before the rows count as outdated."""

MAX_CLOCK_SKEW_SECONDS = 5.0
"""Difference between a host's clock and the database's above which a warning is reported."""

_MAX_NAMED = 3


def evaluate_health(status: AgentStatus) -> Health:
    """Evaluate an agent: ``fail`` when it does not work, ``warn`` when parts of it fail.

    Only the given status is used, so the result is immediate even if something hangs.

    Returns:
        The checks ``audit``, ``database``, ``driver``, ``heartbeat``, ``nodes``, ``clock``,
        ``rpc``, ``notifications`` and ``placement``.
    """
    return Health(
        {
            "audit": _evaluate_audit(status),
            "database": _evaluate_database(status.database_error),
            "driver": _evaluate_driver(status),
            "heartbeat": _evaluate_heartbeat(
                status.heartbeat_age_seconds, status.service_down_time
            ),
            "nodes": _evaluate_nodes(status),
            "clock": _evaluate_clock(status),
            "rpc": _evaluate_optional(status.has_broker, status.rpc_error),
            "notifications": _evaluate_optional(status.has_broker, status.notifications_error),
            "placement": _evaluate_placement(status.placement),
        }
    )


def evaluate_api_health(status: ApiStatus) -> Health:
    """Evaluate a REST service: ``fail`` when it cannot use the database, as `evaluate_health`.

    Returns:
        The checks ``database``, ``broker``, ``user_file``, ``heartbeat`` and ``overview``.
    """
    return Health(
        {
            "database": _evaluate_database(status.database_error),
            "broker": _evaluate_optional(status.has_broker, status.broker_error),
            "user_file": _evaluate_optional(status.has_user_file, status.user_file_error),
            "heartbeat": _evaluate_api_heartbeat(status),
            "overview": HealthCheck(details={"age_seconds": _rounded(status.overview_age_seconds)}),
        }
    )


def _evaluate_audit(status: AgentStatus) -> HealthCheck:
    age, interval = status.audit.age_seconds, status.audit_interval
    details = {"age_seconds": _rounded(age), "interval_seconds": interval}
    if not status.has_started:
        return _failed("the agent is starting; no audit has been attempted yet", details)
    if age is None:
        return _failed("no audit has been stored since the start", details)
    if interval is not None and age > MISSED_INTERVALS * interval:
        return _failed(f"the last audit was stored {age:.0f} s ago", details)
    return HealthCheck(details=details)


def _evaluate_database(error: str | None) -> HealthCheck:
    return HealthCheck() if error is None else _failed(error)


def _evaluate_driver(status: AgentStatus) -> HealthCheck:
    """Evaluate the listing of nodes; while some nodes are fine, some sources respond."""
    if status.driver_error is None:
        return HealthCheck()
    if status.fine_nodes:
        return HealthCheck(HealthState.WARN, status.driver_error)
    return _failed(status.driver_error)


def _evaluate_heartbeat(age: float | None, service_down_time: float) -> HealthCheck:
    details = {"age_seconds": _rounded(age)}
    if age is None:
        return _failed("no heartbeat has been written since the start", details)
    if age > service_down_time:
        return _failed(f"the last heartbeat was written {age:.0f} s ago", details)
    return HealthCheck(details=details)


def _evaluate_api_heartbeat(status: ApiStatus) -> HealthCheck:
    """Evaluate the heartbeat of a service that answers requests without one, too."""
    if not status.has_heartbeat:
        return HealthCheck(output="not reported by this process")
    found = _evaluate_heartbeat(status.heartbeat_age_seconds, status.service_down_time)
    is_failing = found.state is HealthState.FAIL
    return replace(found, state=HealthState.WARN) if is_failing else found


def _evaluate_nodes(status: AgentStatus) -> HealthCheck:
    nodes = {
        name: {"age_seconds": _rounded(entry["age_seconds"]), "output": entry["error"]}
        for name, entry in sorted(status.audit.nodes.items())
    }
    details = {"fine": status.fine_nodes, "nodes": nodes}
    if not nodes:
        return HealthCheck(details=details)
    total = count_noun(len(nodes) + status.fine_nodes, "node")
    why = [f"{name}: {entry['output']}" for name, entry in nodes.items()]
    output = f"{len(nodes)} of {total} failing: {'; '.join(why[:_MAX_NAMED])}"
    rest = f"; and {len(why) - _MAX_NAMED} more" if len(why) > _MAX_NAMED else ""
    return HealthCheck(HealthState.WARN, output + rest, details)


def _evaluate_clock(status: AgentStatus) -> HealthCheck:
    skew = status.clock_skew_seconds
    details = {"skew_seconds": _rounded(skew)}
    if skew is None or abs(skew) <= MAX_CLOCK_SKEW_SECONDS:
        return HealthCheck(details=details)
    word = "ahead of" if skew > 0 else "behind"
    output = f"this host's clock is {abs(skew):.1f} s {word} the database's"
    return HealthCheck(HealthState.WARN, output, details)


def _evaluate_optional(is_configured: bool, error: str | None) -> HealthCheck:
    """Evaluate a subsystem that audits and heartbeats do not depend on."""
    if not is_configured:
        return HealthCheck(output="not configured")
    return HealthCheck() if error is None else HealthCheck(HealthState.WARN, error)


def _evaluate_placement(status: PlacementStatus | None) -> HealthCheck:
    """Evaluate the reporter to placement, which audits and claims do not depend on."""
    if status is None:
        return HealthCheck(output="not configured")
    details = {
        "waiting_nodes": status.waiting_nodes,
        "age_seconds": _rounded(status.report_age_seconds),
        "name_conflicts": status.name_conflicts,
    }
    if status.error is not None:
        return HealthCheck(HealthState.WARN, status.error, details)
    if status.name_conflicts:
        output = f"other providers have the names of {count_noun(status.name_conflicts, 'node')}"
        return HealthCheck(HealthState.WARN, output, details)
    return HealthCheck(details=details)


def _failed(output: str, details: dict[str, Any] | None = None) -> HealthCheck:
    return HealthCheck(HealthState.FAIL, output, details or {})


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
