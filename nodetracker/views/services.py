"""Evaluate and render services: liveness, status, and the age of what their agents have read."""

import enum
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.liveness import (
    Liveness,
    has_recent_heartbeat,
    is_cut_off,
    is_service_up,
)
from nodetracker.model.serializer import pick
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.text import render_time

STATES = ("up", "down", "unreachable")
"""What `state_of` returns."""

STATUSES = ("enabled", "disabled")
"""What `status_of` returns."""

COMPUTE_ZONE = "nova"
"""Nova's name for the zone of hosts without one."""

INTERNAL_ZONE = "internal"
"""Nova's name for the zone of all services that manage no host."""

LATE_INTERVALS = 3
"""Audit intervals without a good reading after which a node is late."""


def state_of(service: ServiceRecord | None, liveness: Liveness) -> str:
    """Return ``up``, ``down``, or ``unreachable``; a host without a service is down.

    An agent is unreachable when its heartbeats are sent through conductors and
    reach none of them, like those of all others, so its state is unknown. Like a
    host that is down, it gets no claims.
    """
    if service is None:
        return "down"
    if is_service_up(service, liveness.now, liveness.service_down_time):
        return "up"
    return "unreachable" if is_cut_off(service, liveness) else "down"


def find_down_since(service: ServiceRecord | None, liveness: Liveness) -> datetime | None:
    """Return since when a service is down or unreachable; None = it is up, or unknown.

    Of one that is forced down while its heartbeats arrive it is unknown.
    """
    if service is None or has_recent_heartbeat(service, liveness.now, liveness.service_down_time):
        return None
    return service.last_seen_up or service.created_at


def find_since(service: ServiceRecord | None, liveness: Liveness) -> datetime | None:
    """Return since when a service is as it is shown; None = as it should be, or unknown.

    That it is down comes before that it is forced down, in maintenance and disabled.
    """
    if service is None:
        return None
    if since := find_down_since(service, liveness):
        return since
    if service.forced_down:
        return service.forced_down_at
    if service.maintenance:
        return service.maintenance_at
    return service.disabled_at if service.disabled else None


def status_of(service: ServiceRecord | None) -> str:
    """Return ``enabled`` or ``disabled``."""
    return "disabled" if service is not None and service.disabled else "enabled"


def audit_age_seconds(service: ServiceRecord | None, nodename: str, now: datetime) -> float | None:
    """Return the seconds since a node's last good reading; None = never.

    The heartbeat contains the age at its time; the time since then is added,
    by the database's clock only.
    """
    if service is None or service.last_seen_up is None:
        return None
    reported = _reported_age_seconds(service, nodename)
    if reported is None:
        return None
    since = max(0.0, (now - service.last_seen_up).total_seconds())
    return round(reported + since, 3)


def find_read_at(service: ServiceRecord | None, nodename: str) -> datetime | None:
    """Return when a node was last read completely, in whole seconds; None = never.

    Ages in heartbeats vary by milliseconds, so later heartbeats would report
    another time for the same reading.
    """
    if service is None or service.last_seen_up is None:
        return None
    reported = _reported_age_seconds(service, nodename)
    if reported is None:
        return None
    return (service.last_seen_up - timedelta(seconds=reported)).replace(microsecond=0)


def _reported_age_seconds(service: ServiceRecord, nodename: str) -> float | None:
    """Return the age of a node's last good reading at the time of the last heartbeat."""
    own = service.last_audit.get("nodes", {}).get(nodename)
    age = (service.last_audit if own is None else own).get("age_seconds")
    return None if age is None else float(age)


class Freshness(enum.StrEnum):
    """How recent the last good reading of a node is: a class, as ages change all the time."""

    FRESH = "fresh"
    LATE = "late"  # not read for three audit intervals
    STALE = "stale"  # its host is down or unreachable, or it was not read for too long
    NEVER = "never"  # never read completely


def freshness_of(
    state: str, age_seconds: float | None, audit_interval: float | None, held_fact_expiry: float
) -> Freshness:
    """Return how recent a node's last good reading is.

    Args:
        state: of its host's service.
        age_seconds: since the reading, None = never.
        audit_interval: seconds between audits, None = only on demand, or unknown.
        held_fact_expiry: seconds after which an unread node is stale. Where audits
            are less frequent, it becomes so after three of their intervals.

    >>> [freshness_of("up", age, 60, 600).value for age in (180, 181, 601)]
    ['fresh', 'late', 'stale']
    """
    if age_seconds is None:
        return Freshness.NEVER
    allowed = LATE_INTERVALS * audit_interval if audit_interval is not None else 0.0
    if state != "up" or age_seconds > max(held_fact_expiry, allowed):
        return Freshness.STALE
    is_late = audit_interval is not None and age_seconds > allowed
    return Freshness.LATE if is_late else Freshness.FRESH


def render_service(service: ServiceRecord, liveness: Liveness) -> dict[str, Any]:
    """Return the columns of ``service list`` for one service."""
    skew = service.clock_skew_ms
    return {
        **pick(service, "id=uuid", "binary", "host"),
        "status": status_of(service),
        "state": state_of(service, liveness),
        "updated_at": render_time(service.updated_at or service.created_at),
        **pick(service, *DISABLING),
        "epoch": service.epoch,
        "clock_skew_seconds": None if skew is None else skew / 1000,
    }


DISABLING = ("disabled_reason", "disabled_at", "disabled_by")
"""Why, since when and by whom a service is disabled; all null while it is not."""

FORCING = ("forced_down_reason", "forced_down_at", "forced_down_by")
"""Why, since when and by whom a service is forced down; all null while it is not."""


MAINTENANCE = ("maintenance_reason", "maintenance_at", "maintenance_by")
"""Why, since when and by whom a service's host is in maintenance; null while it is not."""


def render_host(service: ServiceRecord) -> dict[str, Any]:
    """Return the columns of ``host list`` for one service."""
    return {**pick(service, "host_name=host", "service=binary"), "zone": zone_of(service.binary)}


def zone_of(binary: str) -> str:
    """Return the availability zone of a service.

    >>> zone_of("nodetracker-compute"), zone_of("nodetracker-conductor")
    ('nova', 'internal')

    Source: Nova's default_availability_zone and internal_service_availability_zone.
    """
    return COMPUTE_ZONE if binary == COMPUTE_BINARY else INTERNAL_ZONE
