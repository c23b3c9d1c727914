"""Combine the parts of the memory store, and store history in a list."""

from collections.abc import Mapping
from datetime import datetime

from nodetracker.db.memory.candidates import MemoryCandidates
from nodetracker.db.memory.exclusions import MemoryExclusions
from nodetracker.db.memory.fleet import MemoryFleet
from nodetracker.db.memory.fleet_reader import MemoryFleetReader
from nodetracker.db.memory.host_warnings import MemoryWarnings
from nodetracker.db.memory.lists import MemoryLists
from nodetracker.db.memory.migrations import MemoryMigrations
from nodetracker.db.memory.nodes import MemoryNodes
from nodetracker.db.memory.overview import MemoryOverview
from nodetracker.db.memory.provider_removals import MemoryRemovals
from nodetracker.db.memory.services import MemoryServices
from nodetracker.db.memory.tables import bump_generation


class MemoryStore(
    MemoryNodes,
    MemoryMigrations,
    MemoryFleet,
    MemoryCandidates,
    MemoryExclusions,
    MemoryServices,
    MemoryWarnings,
    MemoryRemovals,
    MemoryFleetReader,
    MemoryOverview,
    MemoryLists,
):
    """`nodetracker.ports.Store` in this process's memory; thread-safe."""

    def now(self) -> datetime:
        """See `Store`."""
        return self._clock()

    def purge(self, before: datetime) -> Mapping[str, int]:
        """See `Store`."""
        with self._writing() as tables:
            history = [entry for entry in tables.history if entry.at >= before]
            warnings = {
                key: record
                for key, record in tables.warnings.items()
                if record.resolved_at is None or record.resolved_at >= before
            }
            migrations = {
                migration.uuid: migration
                for migration in tables.migrations.values()
                if migration.is_open or migration.updated_at >= before
            }
            referenced = {m.source_claim for m in migrations.values()}
            referenced |= {m.dest_claim for m in migrations.values()}
            claims = {
                claim.uuid: claim
                for claim in tables.claims.values()
                if claim.is_active or claim.updated_at >= before or claim.uuid in referenced
            }
            for node_id in {c.node_id for c in tables.claims.values() if c.uuid not in claims}:
                bump_generation(tables, node_id)
            removals = {
                row_id: removal
                for row_id, removal in tables.provider_removals.items()
                if removal.attempts or removal.created_at >= before
            }
            kept = {
                "history": history,
                "warnings": warnings,
                "migrations": migrations,
                "claims": claims,
                "provider_removals": removals,
            }
            deleted = {name: len(getattr(tables, name)) - len(kept[name]) for name in kept}
            tables.history, tables.warnings = history, warnings
            tables.migrations, tables.claims = migrations, claims
            tables.provider_removals = removals
            return deleted

    def close(self) -> None:
        """See `Store`; this one holds no resources."""
