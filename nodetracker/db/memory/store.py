"""Combine the parts of the memory store, and store history in a list."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

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

    def purge(
        self, before: datetime, tables: Collection[str] = (), is_part: bool = False
    ) -> Mapping[str, int]:
        """See `Store`."""
        with self._writing() as rows:
            history = [entry for entry in rows.history if entry.at >= before]
            warnings = {
                key: record
                for key, record in rows.warnings.items()
                if record.resolved_at is None or record.resolved_at >= before
            }
            migrations = {
                migration.uuid: migration
                for migration in rows.migrations.values()
                if migration.is_open or migration.updated_at >= before
            }
            referenced = {m.source_claim for m in migrations.values()}
            referenced |= {m.dest_claim for m in migrations.values()}
            claims = {
                claim.uuid: claim
                for claim in rows.claims.values()
                if claim.is_active or claim.updated_at >= before or claim.uuid in referenced
            }
            removals = {
                row_id: removal
                for row_id, removal in rows.provider_removals.items()
                if removal.attempts or removal.created_at >= before
            }
            kept: dict[str, Any] = {
                "history": history,
                "warnings": warnings,
                "migrations": migrations,
                "claims": claims,
                "provider_removals": removals,
            }
            kept = {name: kept[name] for name in tables or kept}
            deleted = {name: len(getattr(rows, name)) - len(kept[name]) for name in kept}
            if "claims" in kept:
                gone = rows.claims.keys() - claims.keys()
                for node_id in {rows.claims[uuid].node_id for uuid in gone}:
                    bump_generation(rows, node_id)
            for name, remaining in kept.items():
                setattr(rows, name, remaining)
            return deleted

    def close(self) -> None:
        """See `Store`; this one holds no resources."""
