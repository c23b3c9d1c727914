"""Summarize nodes, the fleet and hosts by project for operators."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.liveness import is_cut_off, is_service_up
from nodetracker.model.guest import PowerState
from nodetracker.model.listing import UsageSum
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.service import ServiceRecord
from nodetracker.model.units import usage_gib_from_mib, usage_units_from_milli

SUMMARY_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "running_vms", "total_containers",
)  # fmt: skip
"""Columns of a node that `summarize_node` needs; it needs the audits of its service, too."""

STATES = ("up", "down", "unreachable")
"""What `state_of` returns."""

STATUSES = ("enabled", "disabled")
"""What `status_of` returns."""


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One line of ``node list``; state is liveness, status is set by the administrator."""

    host: str
    nodename: str
    state: str
    status: str
    vcpus: int
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    local_gb: int
    local_gb_used: int
    running_vms: int
    total_containers: int
    audit_age_seconds: float | None


def state_of(
    service: ServiceRecord | None,
    now: datetime,
    service_down_time: int,
    outage_since: datetime | None = None,
) -> str:
    """Return ``up``, ``down``, or ``unreachable``; a host without a service is down.

    An agent is unreachable when its heartbeats are sent through the message
    broker and the broker carries no messages, so its state is unknown. Like a
    host that is down, it gets no claims.

    Args:
        outage_since: start of the broker's outage, from `find_broker_outage`.
    """
    if service is None:
        return "down"
    if is_service_up(service, now, service_down_time):
        return "up"
    is_unreachable = is_cut_off(service, now, service_down_time, outage_since)
    return "unreachable" if is_unreachable else "down"


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


def count_running_vms(values: NodeValues) -> int:
    """Return the number of instances that run; ``running_vms`` counts all, as Nova's does."""
    return int(values.stats.get(f"num_vm_{PowerState.RUNNING}", 0))


def summarize_node(
    record: NodeRecord,
    service: ServiceRecord | None,
    now: datetime,
    service_down_time: int,
    outage_since: datetime | None = None,
) -> NodeSummary:
    """Build a node's line from its row and its host's service; see `state_of`."""
    values = record.values
    return NodeSummary(
        host=record.host,
        nodename=record.nodename,
        state=state_of(service, now, service_down_time, outage_since),
        status=status_of(service),
        vcpus=values.vcpus,
        vcpus_used=values.vcpus_used,
        memory_mb=values.memory_mb,
        memory_mb_used=values.memory_mb_used,
        local_gb=values.local_gb,
        local_gb_used=values.local_gb_used,
        running_vms=values.running_vms,
        total_containers=values.total_containers,
        audit_age_seconds=audit_age_seconds(service, record.nodename, now),
    )


@dataclass(frozen=True, slots=True)
class HostUsage:
    """One line of ``host show``: a project's usage of a host."""

    host: str
    project: str
    cpu: int
    memory_mb: int
    disk_gb: int


HOST_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
)  # fmt: skip
"""The columns of a node that `describe_host` reads."""


def describe_host(
    host: str, nodes: Sequence[NodeValues], usage: Sequence[UsageSum]
) -> list[HostUsage]:
    """Build the lines of ``host show``: capacity, usage, and usage by project.

    ``(used_max)`` is the sum of all workloads without reserved amounts.
    Workloads without a claim are ``(unclaimed)``; if their driver reports a
    project, they are also included in its line.

    Args:
        nodes: of the host, in `HOST_COLUMNS`.
        usage: of the host, from `FleetReader.sum_usage`.
    """
    total = HostUsage(
        host,
        "(total)",
        sum(node.vcpus for node in nodes),
        sum(node.memory_mb for node in nodes),
        sum(node.local_gb for node in nodes),
    )
    used = HostUsage(
        host,
        "(used_now)",
        sum(node.vcpus_used for node in nodes),
        sum(node.memory_mb_used for node in nodes),
        sum(node.local_gb_used for node in nodes),
    )
    groups = [
        ("(used_max)", list(usage)),
        ("(unclaimed)", [found for found in usage if not found.is_claimed]),
        *(
            (project, [found for found in usage if found.project_id == project])
            for project in sorted({found.project_id for found in usage if found.project_id})
        ),
    ]
    return [total, used, *(_sum_group(host, project, group) for project, group in groups)]


def _sum_group(host: str, project: str, group: Iterable[UsageSum]) -> HostUsage:
    found = list(group)
    return HostUsage(
        host,
        project,
        usage_units_from_milli(sum(item.vcpu_milli for item in found)),
        sum(item.memory_mb for item in found),
        usage_gib_from_mib(sum(item.disk_mb for item in found)),
    )


def as_row(line: NodeSummary | HostUsage) -> dict[str, Any]:
    """Return a line as column -> value, in order."""
    return asdict(line)
