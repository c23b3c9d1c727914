"""Render the description of a node as plain data."""

from typing import Any

from nodetracker.accounting.reports.describe import NodeDescription
from nodetracker.accounting.reports.history import render_history_entry
from nodetracker.accounting.reports.services import render_disabling
from nodetracker.accounting.reports.summary import status_of
from nodetracker.accounting.reports.warnings import render_warning
from nodetracker.model.text import render_time, to_plain
from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units


def render_description(described: NodeDescription) -> dict[str, Any]:
    """Return the columns of ``node describe``: amounts in the units of their resource class."""
    record, service = described.record, described.service
    return {
        "host": record.host,
        "nodename": record.nodename,
        "uuid": record.uuid,
        "state": described.state,
        "status": status_of(service),
        **render_disabling(service),
        "maintenance": service is not None and service.maintenance,
        "last_seen_up": render_time(None if service is None else service.last_seen_up),
        "audit_age_seconds": described.audit_age_seconds,
        "resources": {
            line.resource: {
                **{
                    name: whole_units(getattr(line.use, name), line.parts)
                    for name in ("total", "reserved", "claimed", "unclaimed", "free")
                },
                "allocation_ratio": line.ratio,
                "ratio_origin": line.origin or None,
            }
            for line in described.resources
        },
        "workloads": [
            {
                "uuid": use.uuid,
                "name": use.name,
                "claim": use.state,
                "vcpus": whole_units(use.charge.vcpu_milli, MILLI),
                "pcpus": use.charge.pcpus,
                "memory_mb": use.charge.memory_mb,
                "disk_gb": whole_units(use.charge.disk_mb, MIB_PER_GIB),
            }
            for use in described.workloads
        ],
        "pools": to_plain(described.pools),
        "facts": to_plain(record.values.facts),
        "warnings": [render_warning(found) for found in described.warnings],
        "history": [render_history_entry(entry) for entry in described.changes],
    }
