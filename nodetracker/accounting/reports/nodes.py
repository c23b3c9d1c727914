"""Render nodes as plain data, for the command line and REST."""

from datetime import datetime
from typing import Any

from nodetracker.accounting.reports.services import render_disabling
from nodetracker.accounting.reports.summary import count_running_vms, state_of, status_of
from nodetracker.model.node import NODE_COLUMNS, NodeRecord
from nodetracker.model.service import ServiceRecord
from nodetracker.model.text import render_time, to_plain


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
        **render_disabling(service),
        "maintenance": service is not None and service.maintenance,
        "forced_down": service is not None and service.forced_down,
    }


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
        "id": record.id,
        "uuid": record.uuid,
        "host": record.host,
        "hypervisor_hostname": record.nodename,
        **render_node_state(service, now, service_down_time, outage_since),
        "last_seen_up": render_time(None if service is None else service.last_seen_up),
        "booted_at": render_time(record.values.booted_at),
    }
    for name in NODE_COLUMNS:
        shown[name] = to_plain(getattr(record.values, name))
        if name == "running_vms":  # which counts all, as Nova's does
            shown["vms_running"] = count_running_vms(record.values)
    return shown | {
        "generation": record.generation,
        "epoch": record.epoch,
        "created_at": render_time(record.created_at),
        "updated_at": render_time(record.updated_at),
    }
