"""Whether a service is up, and whether that can be told: the one place where it is judged."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from nodetracker.model.service import BROKER, CONDUCTOR_BINARY, ServiceRecord

MIN_MISSED_BEATS = 3
"""Heartbeats that a service may miss before it is down."""


class Heard(Protocol):
    """What of a service tells whether it is up."""

    @property
    def created_at(self) -> datetime:
        """When its row was made."""

    @property
    def last_seen_up(self) -> datetime | None:
        """When it was heard of last."""

    @property
    def forced_down(self) -> bool:
        """Whether an administrator says that it is down."""


def is_service_up(service: Heard, now: datetime, service_down_time: int) -> bool:
    """Tell whether a service has been heard of lately and is not forced down.

    Args:
        now: the database's time, as `service`'s own times are; no host's clock
            takes part.
        service_down_time: seconds of silence after which a service is down.
    """
    return not service.forced_down and is_heard_of(service, now, service_down_time)


def is_heard_of(service: Heard, now: datetime, service_down_time: int) -> bool:
    """Tell whether a service's process seems to live, whatever an administrator says of it."""
    heard = service.last_seen_up or service.created_at
    return (now - heard).total_seconds() <= service_down_time


def find_broker_outage(
    services: Iterable[ServiceRecord], now: datetime, service_down_time: int
) -> datetime | None:
    """Return since when the message broker carries nothing, None when it does or nobody knows.

    Conductors that are up know, each by asking itself through the broker; one
    that gets through is enough.

    Args:
        services: of the whole fleet.
    """
    lost: list[datetime] = []
    for service in services:
        if service.binary != CONDUCTOR_BINARY or not is_service_up(service, now, service_down_time):
            continue
        entry = service.last_audit.get("nodes", {}).get(BROKER)
        if entry is None:
            return None
        if entry["age_seconds"] is not None and service.last_seen_up is not None:
            lost.append(service.last_seen_up - timedelta(seconds=entry["age_seconds"]))
    return max(lost, default=None)


def is_cut_off(
    service: ServiceRecord, now: datetime, service_down_time: int, outage_since: datetime | None
) -> bool:
    """Tell whether a silent agent may be no more than cut off.

    Its heartbeats came through the broker, and until that carried nothing any more.

    Args:
        outage_since: from `find_broker_outage`.
    """
    if outage_since is None or service.forced_down or service.last_seen_up is None:
        return False
    if not service.last_audit.get("by_broker") or is_heard_of(service, now, service_down_time):
        return False
    interval = service.incarnation.report_interval
    return service.last_seen_up >= outage_since - timedelta(seconds=MIN_MISSED_BEATS * interval)


def explain_short_down_time(service_down_time: int, report_interval: int) -> str | None:
    """Say why a live host would look down; None when it would not.

    Args:
        service_down_time: seconds of silence after which a service is down.
        report_interval: seconds between heartbeats.
    """
    if service_down_time >= MIN_MISSED_BEATS * report_interval:
        return None
    return (
        f"service_down_time: {service_down_time} is less than three times "
        f"report_interval ({report_interval}): a single late heartbeat would "
        "make the host look down"
    )
