"""Render the history of nodes as plain data, for the command line and REST."""

from typing import Any

from nodetracker.model.change import HistoryEntry
from nodetracker.rendering import render_time


def render_history_entry(entry: HistoryEntry) -> dict[str, Any]:
    """Return the columns of ``node history`` for one change."""
    return {
        "at": render_time(entry.at),
        "host": entry.host,
        "nodename": entry.nodename,
        "what": entry.what.value,
        "diff": dict(entry.diff),
    }
