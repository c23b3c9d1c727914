"""Summarize and render nodes, and list what may be done to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodetracker.accounting.reports.services import (
    DISABLING,
    audit_age_seconds,
    state_of,
    status_of,
)
from nodetracker.model.guest import PowerState
from nodetracker.model.node import NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.serializer import encode, pick
from nodetracker.model.service import ServiceRecord

SUMMARY_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "running_vms", "total_containers",
)  # fmt: skip
"""Columns of a node that `summarize_node` needs; it needs the audits of its service, too."""

_UPDATE = "nodetracker:services:update"
_SETTINGS = {  # setting of a host -> title and effect of setting and of unsetting it
    "disabled": (
        ("Disable", "No node of the host accepts new claims. What runs there is not touched."),
        ("Enable", "All nodes of the host accept claims again."),
    ),
    "maintenance": (
        ("Start maintenance", "No node of the host accepts new claims until maintenance ends."),
        ("End maintenance", "All nodes of the host accept claims again, if it is enabled."),
    ),
    "forced_down": (
        (
            "Force down",
            "The host counts as down whatever its heartbeats say. Be sure that it is, before its "
            "workloads start elsewhere.",
        ),
        ("Undo force down", "The heartbeats of the host count again."),
    ),
}


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


def render_node(
    record: NodeRecord,
    service: ServiceRecord | None,
    now: datetime,
    service_down_time: int,
    outage_since: datetime | None,
) -> dict[str, Any]:
    """Return the columns of ``node show``, without the age of the last good reading.

    Args:
        record: all of its columns.
    """
    shown: dict[str, Any] = {
        **pick(record, "id", "uuid", "host", "hypervisor_hostname=nodename"),
        **render_node_state(service, now, service_down_time, outage_since),
        **pick(service, "last_seen_up"),
        **pick(record.values, "booted_at"),
    }
    for name in NODE_COLUMNS:
        shown[name] = encode(getattr(record.values, name))
        if name == "running_vms":  # which counts all, as Nova's does
            shown["vms_running"] = count_running_vms(record.values)
    return shown | pick(record, "generation", "epoch", "created_at", "updated_at")


def render_node_state(
    service: ServiceRecord | None,
    now: datetime,
    service_down_time: int,
    outage_since: datetime | None,
) -> dict[str, Any]:
    """Return the columns that the service of a node's host decides; see `state_of`."""
    return {
        "state": state_of(service, now, service_down_time, outage_since),
        "status": status_of(service),
        **pick(service, *DISABLING),
        "maintenance": service is not None and service.maintenance,
        "forced_down": service is not None and service.forced_down,
    }


def count_running_vms(values: NodeValues) -> int:
    """Return the number of instances that run; ``running_vms`` counts all, as Nova's does."""
    return int(values.stats.get(f"num_vm_{PowerState.RUNNING}", 0))


@dataclass(frozen=True, slots=True)
class NodeAction:
    """A request that changes a node or its host.

    Attributes:
        effect: what it does, in sentences.
        rule: of the policy, for the request.
        takes_reason: the body may have ``disabled_reason``.
        is_dangerous: it loses something, or workloads may run twice.
    """

    title: str
    effect: str
    rule: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    takes_reason: bool = False
    is_dangerous: bool = False


def list_actions(uuid: str, state: str, service: ServiceRecord | None) -> list[NodeAction]:
    """Return the actions on a node.

    Args:
        uuid: of the node.
        state: of its host, see `state_of`.
        service: of the host's agent.
    """
    path = f"/v1/nodes/{uuid}"
    found = [] if service is None else [_switch(service, name) for name in _SETTINGS]
    if state == "up":
        effect = "The agent of the host reads the node now and corrects its row."
        rule = "nodetracker:nodes:audit"
        found.append(NodeAction("Audit now", effect, rule, "POST", f"{path}/audit"))
    if state == "down":
        effect = (
            "Its row is deleted with its guests and devices. Active claims prevent that; an agent "
            "that starts again creates the row again."
        )
        rule = "nodetracker:nodes:delete"
        found.append(NodeAction("Delete node", effect, rule, "DELETE", path, is_dangerous=True))
    return found


def _switch(service: ServiceRecord, name: str) -> NodeAction:
    """Return the action that changes a setting of the host."""
    is_set = bool(getattr(service, name))
    title, effect = _SETTINGS[name][is_set]
    return NodeAction(
        title,
        effect,
        _UPDATE,
        "PATCH",
        f"/v1/services/{service.uuid}",
        {name: not is_set},
        takes_reason=name == "disabled" and not is_set,
        is_dangerous=name == "forced_down" and not is_set,
    )
