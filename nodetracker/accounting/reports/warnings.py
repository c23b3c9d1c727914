"""Render warnings as plain data, for the command line and REST."""

from typing import Any

from nodetracker.model.text import render_time
from nodetracker.model.warning import WarningRecord


def render_warning(record: WarningRecord) -> dict[str, Any]:
    """Return the columns of ``warning list`` for one warning."""
    warning = record.warning
    return {
        "host": record.host,
        "kind": warning.kind.value,
        "nodename": warning.nodename,
        "item": warning.item,
        "message": warning.message,
        "first_seen": render_time(record.first_seen),
        "last_seen": render_time(record.last_seen),
        "count": record.count,
        "resolved_at": render_time(record.resolved_at),
        "earlier": record.earlier,
    }
