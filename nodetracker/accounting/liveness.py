"""Evaluate whether services are up, down or unreachable. No other module decides this."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from nodetracker.model.errors import RefusedError
from nodetracker.model.service import (
    AGENTS,
    API_BINARY,
    BROKER,
    CONDUCTOR_BINARY,
    ServiceAvailability,
    ServiceRecord,
)

MISSED_HEARTBEATS = 3
"""Heartbeats that a service may miss before it is down."""

_MIN_AGENTS = 2


Heartbeats = ServiceRecord | ServiceAvailability
"""What has the attributes of a service that decide whether it is up."""


def is_service_up(service: Heartbeats, now: datetime, service_down_time: int) -> bool:
    """Return whether a service has a recent heartbeat and is not forced down.

    Args:
        now: the database's time, like the times of `service`; hosts' clocks
            are not used.
        service_down_time: seconds without a heartbeat after which a service is down.
    """
    return not service.forced_down and has_recent_heartbeat(service, now, service_down_time)


def has_ended(service: Heartbeats) -> bool:
    """Return whether the holder of a service's row has reported its own end.

    Any takeover raises the epoch, also one by a version that does not know ``ended_epoch``.
    """
    return service.ended_epoch == service.epoch


def has_recent_heartbeat(service: Heartbeats, now: datetime, service_down_time: int) -> bool:
    """Return whether a service runs by its heartbeats, even if it is forced down."""
    if has_ended(service):
        return False
    last = service.last_seen_up or service.created_at
    return (now - last).total_seconds() <= service_down_time


def check_node_is_deletable(
    service: Heartbeats | None, host: str, nodename: str, now: datetime, service_down_time: int
) -> None:
    """Check that no live agent would create a deleted node again.

    Args:
        service: of the host's agent.

    Raises:
        RefusedError: the agent is alive.
    """
    if service is not None and has_recent_heartbeat(service, now, service_down_time):
        raise RefusedError(
            f"host {host} is up and would create node {nodename} again; stop its agent first"
        )


class Liveness(NamedTuple):
    """What decides whether services are up, down or unreachable.

    Attributes:
        now: the database's time.
        outage: since when no agent reaches a conductor, from `find_conductor_outage`.
    """

    now: datetime
    service_down_time: int
    outage: datetime | None = None

    @classmethod
    def of(
        cls, services: Iterable[ServiceRecord], now: datetime, service_down_time: int
    ) -> "Liveness":
        """Return what decides at a time; the arguments are those of `find_conductor_outage`."""
        return cls(now, service_down_time, find_conductor_outage(services, now, service_down_time))


def find_conductor_outage(
    services: Iterable[ServiceRecord], now: datetime, service_down_time: int
) -> datetime | None:
    """Return since when no agent reaches any conductor; None if some do, or if unknown.

    One silent agent may be down. When all of at least two are silent at once, while
    conductors are up, the way to the conductors is the likely cause. A conductor through which
    agents call is one by its last heartbeat: it may be cut off since, together with them.

    Args:
        services: all of the fleet, or at least those of conductors and the REST service.
    """
    recent = now - timedelta(seconds=service_down_time / 2)
    lost: list[datetime] = []
    agents = 0
    for service in services:
        if service.binary != CONDUCTOR_BINARY or not is_service_up(service, now, service_down_time):
            continue
        entries = service.last_audit.get("nodes", {})
        entry = entries.get(AGENTS) or entries.get(BROKER)
        if entry is None:
            if service.last_seen_up is not None and service.last_seen_up >= recent:
                return None
            continue
        agents += entry.get("agents", _MIN_AGENTS)
        if entry["age_seconds"] is not None and service.last_seen_up is not None:
            lost.append(service.last_seen_up - timedelta(seconds=entry["age_seconds"]))
    return max(lost, default=None) if agents >= _MIN_AGENTS else None


def is_first_watcher(
    services: Iterable[ServiceRecord], host: str, binary: str, now: datetime, service_down_time: int
) -> bool:
    """Return whether a service is the one that warns of hosts that are down.

    Of the conductors and API services that are up, it is the first by host and binary.

    Args:
        services: all of the fleet, or at least those of conductors and the REST service.
    """
    watchers = [
        (service.host, service.binary)
        for service in services
        if service.binary in (API_BINARY, CONDUCTOR_BINARY)
        and is_service_up(service, now, service_down_time)
    ]
    return min(watchers, default=None) == (host, binary)


def is_cut_off(service: ServiceRecord, liveness: Liveness) -> bool:
    """Return whether an agent without heartbeats may only be cut off from the conductors.

    Its heartbeats came through them and stopped when those of all others did.
    """
    now, service_down_time, outage = liveness
    if outage is None or service.last_seen_up is None:
        return False
    if service.forced_down or has_ended(service):
        return False
    is_by_conductor = service.last_audit.get("by_conductor") or service.last_audit.get("by_broker")
    if not is_by_conductor or has_recent_heartbeat(service, now, service_down_time):
        return False
    interval = limit_interval(service, service_down_time)
    return service.last_seen_up >= outage - timedelta(seconds=MISSED_HEARTBEATS * interval)


def limit_interval(service: ServiceRecord, service_down_time: int) -> int:
    """Return the seconds between a service's heartbeats, as others may wait for them.

    A host reports its own interval, so it is limited: one that reports less often is down.
    """
    return min(max(1, service.incarnation.report_interval), service_down_time)


def explain_short_down_time(service_down_time: int, report_interval: int) -> str | None:
    """Return why a live host could be considered down, None if it could not.

    Args:
        service_down_time: seconds without a heartbeat after which a service is down.
        report_interval: seconds between heartbeats.
    """
    if service_down_time >= MISSED_HEARTBEATS * report_interval:
        return None
    return (
        f"service_down_time: {service_down_time} is less than three times "
        f"report_interval ({report_interval}): a single late heartbeat would "
        "mark the host as down"
    )
