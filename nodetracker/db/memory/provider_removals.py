"""Store in dicts which providers are to be deleted from placement."""

import dataclasses
from datetime import datetime, timedelta

from nodetracker.db.memory.tables import MemoryRows, Tables
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY


class MemoryRemovals(MemoryRows):
    """The part of `nodetracker.ports.Store` that stores removals of providers."""

    def list_provider_removals(self, host: str | None = None) -> list[ProviderRemoval]:
        """See `Store`."""
        with self._reading() as tables:
            return [r for r in tables.provider_removals.values() if host in (None, r.host)]

    def take_provider_removals(self, query: RemovalQuery) -> list[ProviderRemoval]:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            due = [
                row_id
                for row_id, removal in tables.provider_removals.items()
                if _is_due(tables, removal, query, now)
            ]
            alive = {record.uuid for record in tables.nodes.values()}
            taken = []
            for row_id in due[: query.limit]:
                removal = tables.provider_removals[row_id]
                if removal.provider_uuid in alive:
                    del tables.provider_removals[row_id]
                    continue
                tables.provider_removals[row_id] = dataclasses.replace(
                    removal,
                    lease_until=now + timedelta(seconds=query.lease_seconds),
                    attempts=removal.attempts + 1,
                    error=None,
                )
                taken.append(tables.provider_removals[row_id])
            return taken

    def fail_provider_removal(self, provider_uuid: str, error: str, retry_seconds: float) -> None:
        """See `Store`."""
        with self._writing() as tables:
            until = self._clock() + timedelta(seconds=retry_seconds)
            for row_id, removal in tables.provider_removals.items():
                if _is_attempted(removal, provider_uuid):
                    tables.provider_removals[row_id] = dataclasses.replace(
                        removal, error=error, lease_until=until
                    )

    def finish_provider_removal(self, provider_uuid: str) -> None:
        """See `Store`."""
        with self._writing() as tables:
            tables.provider_removals = {
                row_id: removal
                for row_id, removal in tables.provider_removals.items()
                if not _is_attempted(removal, provider_uuid)
            }


def rename_removals(tables: Tables, old: str, new: str) -> None:
    """Assign a host's removals to its new name."""
    for row_id, removal in tables.provider_removals.items():
        if removal.host == old:
            tables.provider_removals[row_id] = dataclasses.replace(removal, host=new)


def _is_attempted(removal: ProviderRemoval, provider_uuid: str) -> bool:
    return removal.provider_uuid == provider_uuid and removal.attempts > 0


def _is_due(tables: Tables, removal: ProviderRemoval, query: RemovalQuery, now: datetime) -> bool:
    is_free = removal.lease_until is None or removal.lease_until <= now
    is_served = (removal.host, COMPUTE_BINARY) in tables.services
    return (
        (is_free or (query.is_urgent and removal.error is not None))
        and query.host in (None, removal.host)
        and not (query.is_unserved and is_served)
    )
