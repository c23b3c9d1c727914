"""Render the history of nodes as plain data, for the command line and REST."""

from collections.abc import Sequence
from typing import Any

from nodetracker.accounting.reports.changes import collect_names, describe_entry
from nodetracker.model.change import HistoryEntry
from nodetracker.model.text import render_time


def render_history_entry(entry: HistoryEntry) -> dict[str, Any]:
    """Return the columns of ``node history`` for one change."""
    return {
        "at": render_time(entry.at),
        "host": entry.host,
        "nodename": entry.nodename,
        "what": entry.what.value,
        "diff": dict(entry.diff),
    }


def render_history_page(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the items of a page of the history in REST, with what changed as texts.

    Args:
        entries: newest first. Guests that none of them adds are named by their uuid.
    """
    names = collect_names(entries[::-1])
    return [
        {
            "id": entry.id,
            **render_history_entry(entry),
            "changes": [change.text for change in describe_entry(entry, names)],
        }
        for entry in entries
    ]
