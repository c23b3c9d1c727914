"""Render nodes, and what the services of their hosts decide."""

from typing import Any

from nodetracker.accounting.liveness import Liveness
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.guest import PowerState
from nodetracker.model.node import NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.serializer import encode, pick
from nodetracker.model.service import ServiceRecord
from nodetracker.model.text import render_time
from nodetracker.views.measured import render_measurements
from nodetracker.views.services import (
    DISABLING,
    FORCING,
    MAINTENANCE,
    find_down_since,
    find_since,
    state_of,
    status_of,
)


def render_node(
    record: NodeRecord, service: ServiceRecord | None, liveness: Liveness
) -> dict[str, Any]:
    """Return the columns of ``node show``, without the age of the last good reading.

    Args:
        record: all of its columns.
        service: with its last audit.
    """
    state = render_node_state(service, liveness)
    shown: dict[str, Any] = {
        **pick(record, "id", "uuid", "host", "hypervisor_hostname=nodename"),
        **state,
        **render_since(service, liveness),
        **pick(service, "last_seen_up"),
        **pick(record.values, "booted_at"),
        **render_measurements(record, service, state["state"]),
    }
    for name in NODE_COLUMNS:
        shown[name] = encode(getattr(record.values, name))
        if name == "running_vms":  # which counts all, as Nova's does
            shown["vms_running"] = count_running_vms(record.values)
    shown |= pick(record, "generation", "epoch", "created_at", "updated_at")
    return shown | render_damage(record)


def render_damage(row: NodeRecord | Claim | Migration) -> dict[str, Any]:
    """Return the damaged columns of a row, nothing of a row without any."""
    return {"damaged": list(row.damaged)} if row.damaged else {}


def render_node_state(service: ServiceRecord | None, liveness: Liveness) -> dict[str, Any]:
    """Return the columns that the service of a node's host decides; see `state_of`."""
    return {
        "state": state_of(service, liveness),
        "status": status_of(service),
        **pick(service, *DISABLING),
        "maintenance": service is not None and service.maintenance,
        **pick(service, *MAINTENANCE),
        "forced_down": service is not None and service.forced_down,
        **pick(service, *FORCING),
        "spare": service is not None and service.spare,
    }


def render_since(service: ServiceRecord | None, liveness: Liveness) -> dict[str, str | None]:
    """Return since when the service of a node's host is as it is shown, and since when down."""
    return {
        "since": render_time(find_since(service, liveness)),
        "down_since": render_time(find_down_since(service, liveness)),
    }


def count_running_vms(values: NodeValues) -> int:
    """Return the number of instances that run; ``running_vms`` counts all, as Nova's does."""
    return int(values.stats.get(f"num_vm_{PowerState.RUNNING}", 0))
