"""Render services as plain data, for the command line and REST."""

from datetime import datetime
from typing import Any

from nodetracker.accounting.reports.summary import state_of, status_of
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.text import render_time

COMPUTE_ZONE = "nova"
"""Nova's name for the zone of hosts without one."""

INTERNAL_ZONE = "internal"
"""Nova's name for the zone of all services that manage no host."""


def zone_of(binary: str) -> str:
    """Return the availability zone of a service.

    >>> zone_of("nodetracker-compute"), zone_of("nodetracker-conductor")
    ('nova', 'internal')

    Source: Nova's default_availability_zone and internal_service_availability_zone.
    """
    return COMPUTE_ZONE if binary == COMPUTE_BINARY else INTERNAL_ZONE


def render_host(service: ServiceRecord) -> dict[str, Any]:
    """Return the columns of ``host list`` for one service."""
    return {
        "host_name": service.host,
        "service": service.binary,
        "zone": zone_of(service.binary),
    }


def render_disabling(service: ServiceRecord | None) -> dict[str, str | None]:
    """Return why, since when and by whom a service is disabled; all null while it is not."""
    if service is None:
        return {"disabled_reason": None, "disabled_at": None, "disabled_by": None}
    return {
        "disabled_reason": service.disabled_reason,
        "disabled_at": render_time(service.disabled_at),
        "disabled_by": service.disabled_by,
    }


def render_service(
    service: ServiceRecord, now: datetime, service_down_time: int, outage_since: datetime | None
) -> dict[str, Any]:
    """Return the columns of ``service list`` for one service."""
    skew = service.clock_skew_ms
    return {
        "id": service.uuid,
        "binary": service.binary,
        "host": service.host,
        "status": status_of(service),
        "state": state_of(service, now, service_down_time, outage_since),
        "updated_at": render_time(service.updated_at or service.created_at),
        **render_disabling(service),
        "epoch": service.epoch,
        "clock_skew_seconds": None if skew is None else skew / 1000,
    }
