"""Judges whether an agent can do its job, from what it knows already."""

from typing import Any

from nodetracker.model.health import Check, Health, HealthState
from nodetracker.model.status import AgentStatus

MISSED_INTERVALS = 3
"""Audits that may be missed before what the rows say is no longer current."""

MAX_CLOCK_SKEW_SECONDS = 5.0
"""A host's clock that is further off the database's is warned of."""


def judge_health(status: AgentStatus) -> Health:
    """Judge an agent: ``fail`` when it cannot do its job, ``warn`` when parts are not fine.

    Nothing is asked of anybody, so the answer comes at once whatever hangs.

    Returns:
        The checks ``audit``, ``database``, ``driver``, ``heartbeat``, ``nodes``, ``clock``,
        ``rpc`` and ``notifications``.
    """
    return Health(
        {
            "audit": _judge_audit(status),
            "database": _judge_database(status),
            "driver": _judge_driver(status),
            "heartbeat": _judge_heartbeat(status),
            "nodes": _judge_nodes(status),
            "clock": _judge_clock(status),
            "rpc": _judge_side_line(status.rpc_error),
            "notifications": _judge_side_line(status.notifications_error),
        }
    )


def _judge_audit(status: AgentStatus) -> Check:
    age, interval = status.audit.age_seconds, status.audit_interval
    details = {"age_seconds": _rounded(age), "interval_seconds": interval}
    if not status.has_started:
        return _failed("the agent starts; no audit has been tried yet", details)
    if age is None:
        return _failed("no audit has been stored since the start", details)
    if interval is not None and age > MISSED_INTERVALS * interval:
        return _failed(f"the last audit was stored {age:.0f} s ago", details)
    return Check(details=details)


def _judge_database(status: AgentStatus) -> Check:
    return Check() if status.database_error is None else _failed(status.database_error)


def _judge_driver(status: AgentStatus) -> Check:
    """Judge the listing of nodes; while some nodes are fine, some sources answer."""
    if status.driver_error is None:
        return Check()
    if status.fine_nodes:
        return Check(HealthState.WARN, status.driver_error)
    return _failed(status.driver_error)


def _judge_heartbeat(status: AgentStatus) -> Check:
    age = status.heartbeat_age_seconds
    details = {"age_seconds": _rounded(age)}
    if age is None:
        return _failed("no heartbeat has been written since the start", details)
    if age > status.service_down_time:
        return _failed(f"the last heartbeat was written {age:.0f} s ago", details)
    return Check(details=details)


def _judge_nodes(status: AgentStatus) -> Check:
    nodes = {
        name: {"age_seconds": _rounded(entry["age_seconds"]), "output": entry["error"]}
        for name, entry in sorted(status.audit.nodes.items())
    }
    details = {"fine": status.fine_nodes, "nodes": nodes}
    if not nodes:
        return Check(details=details)
    total = len(nodes) + status.fine_nodes
    return Check(HealthState.WARN, f"{len(nodes)} of {total} nodes are not fine", details)


def _judge_clock(status: AgentStatus) -> Check:
    skew = status.clock_skew_seconds
    details = {"skew_seconds": _rounded(skew)}
    if skew is None or abs(skew) <= MAX_CLOCK_SKEW_SECONDS:
        return Check(details=details)
    word = "ahead of" if skew > 0 else "behind"
    output = f"this host's clock is {abs(skew):.1f} s {word} the database's"
    return Check(HealthState.WARN, output, details)


def _judge_side_line(error: str | None) -> Check:
    """Judge what neither audits nor heartbeats wait for."""
    return Check() if error is None else Check(HealthState.WARN, error)


def _failed(output: str, details: dict[str, Any] | None = None) -> Check:
    return Check(HealthState.FAIL, output, details or {})


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
