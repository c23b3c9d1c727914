"""Render migrations as plain data, for the command line and REST."""

from typing import Any

from nodetracker.model.claim import Migration
from nodetracker.model.text import render_time


def render_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of ``migration list`` for one migration."""
    return {
        "uuid": migration.uuid,
        "workload_uuid": migration.workload_uuid,
        "migration_type": migration.migration_type.value,
        "status": migration.status.value,
        "source_host": migration.source_host,
        "source_node": migration.source_node,
        "dest_host": migration.dest_host,
        "dest_node": migration.dest_node,
        "source_claim": migration.source_claim,
        "dest_claim": migration.dest_claim,
        "created_at": render_time(migration.created_at),
    }
