"""Render warnings as plain data, and derive those of hosts that are down from their services."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.liveness import Liveness, has_ended, has_recent_heartbeat, is_cut_off
from nodetracker.model.serializer import pick
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.text import render_minute
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind, WarningRecord

WARNING = (
    "host", "kind=warning.kind", "nodename=warning.nodename", "item=warning.item",
    "message=warning.message", "first_seen", "last_seen", "count", "resolved_at", "earlier",
    "silenced_until", "silenced_reason", "silenced_by",
)  # fmt: skip
"""The columns of ``warning list``, as `pick` has them."""


def render_warning(record: WarningRecord) -> dict[str, Any]:
    """Return the columns of ``warning list`` for one warning."""
    return pick(record, *WARNING)


def is_listed(record: WarningRecord, now: datetime, *, is_silenced: bool, with_all: bool) -> bool:
    """Return whether a list shows a warning as it is now.

    Args:
        is_silenced: the list has silenced warnings only.
        with_all: otherwise, it has resolved and silenced ones as well.
    """
    if is_silenced:
        return record.is_silenced(now)
    return with_all or (record.resolved_at is None and not record.is_silenced(now))


@dataclass(frozen=True, slots=True)
class HostDown:
    """A host without a live agent.

    Attributes:
        since: time of its agent's last heartbeat, or of the row's creation without one.
    """

    since: datetime
    warning: HostWarning


@dataclass(frozen=True, slots=True)
class HostDownChanges:
    """What is to be stored: warnings to raise by host, and hosts whose warnings are resolved."""

    raised: Mapping[str, HostWarning]
    resolved: tuple[str, ...]


def find_hosts_down(services: Iterable[ServiceRecord], liveness: Liveness) -> dict[str, HostDown]:
    """Return the hosts whose agents send no heartbeats; forcing a host down changes nothing.

    Hosts that are only cut off from the message broker are unreachable, not down.

    Args:
        services: all of the fleet, or those of `Store.list_outage_services`.
    """
    now, service_down_time, _ = liveness
    return {
        service.host: _describe(service)
        for service in services
        if service.binary == COMPUTE_BINARY
        and not has_recent_heartbeat(service, now, service_down_time)
        and not is_cut_off(service, liveness)
    }


def list_due(
    down: Mapping[str, HostDown], now: datetime, watched_since: datetime, service_down_time: int
) -> frozenset[str]:
    """Return the hosts whose warning is stored: those that stay down for `service_down_time`.

    A restart of an agent is shorter. While the database was away no agent could send a
    heartbeat, so the time before that is not counted.

    Args:
        watched_since: since when the database has answered.
    """
    limit = timedelta(seconds=service_down_time)
    return frozenset(
        host for host, found in down.items() if now - max(found.since, watched_since) > limit
    )


def plan_host_down(
    down: Mapping[str, HostDown], due: Collection[str], stored: Iterable[WarningRecord]
) -> HostDownChanges:
    """Decide which warnings to store and to resolve.

    Args:
        due: from `list_due`.
        stored: warnings of all hosts.
    """
    active = {record.host for record in stored if _is_active(record)}
    return HostDownChanges(
        {host: down[host].warning for host in sorted(due) if host not in active},
        tuple(sorted(active - down.keys())),
    )


def merge_hosts_down(
    records: Iterable[WarningRecord], down: Mapping[str, HostDown], now: datetime
) -> list[WarningRecord]:
    """Return stored warnings with those of hosts as they are now, in order of `first_seen`.

    Args:
        down: the hosts to list, from `find_hosts_down`.
    """
    merged = []
    stored: set[str] = set()
    for record in records:
        if record.warning.kind is WarningKind.HOST_DOWN:
            stored.add(record.host)
            record = as_of_now(record, down.get(record.host), now)
        merged.append(record)
    merged += [
        WarningRecord(found.warning, host, found.since, found.since, 1, None)
        for host, found in down.items()
        if host not in stored
    ]
    return sorted(merged, key=lambda record: record.first_seen)


def as_of_now(record: WarningRecord, down: HostDown | None, now: datetime) -> WarningRecord:
    """Return a stored ``host_down`` as its host is now.

    Args:
        down: None if the host is not down.
    """
    if down is None:
        return replace(record, resolved_at=record.resolved_at or now)
    if record.resolved_at is None:
        return replace(record, warning=down.warning)
    return WarningRecord(
        down.warning, record.host, down.since, down.since, 1, None, record.id, record.earlier + 1
    )


def _describe(service: ServiceRecord) -> HostDown:
    since = service.last_seen_up or service.created_at
    when = render_minute(since)
    message = (
        f"the agent was stopped at {when}"
        if has_ended(service)
        else f"the agent has sent no heartbeat since {when}: it does not run or hangs, its machine "
        "is off, or it cannot reach the database"
    )
    return HostDown(since, HostWarning(WarningKind.HOST_DOWN, WHOLE_HOST, NO_ITEM, message))


def _is_active(record: WarningRecord) -> bool:
    return record.warning.kind is WarningKind.HOST_DOWN and record.resolved_at is None
