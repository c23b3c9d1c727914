"""Run ledger transactions on migrations in dicts."""

from nodetracker.accounting.ledger.claims import require_amounts
from nodetracker.accounting.ledger.migrations import (
    decide_move,
    decide_move_confirm,
    decide_move_revert,
    decide_move_status,
    move_of,
)
from nodetracker.db.memory.claims import MemoryClaims, find_existing_grant
from nodetracker.db.memory.locked import lock_migration, lock_move
from nodetracker.db.memory.tables import place_migration
from nodetracker.db.memory.writes import apply_write
from nodetracker.model.claim import ClaimRequest, Migration, MigrationStatus
from nodetracker.ports import AdmissionPolicy


class MemoryMigrations(MemoryClaims):
    """The part of `nodetracker.ports.Store` that stores migrations."""

    def create_migration(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Migration:
        """See `Store`; no row is ever locked."""
        move_of(request)
        require_amounts(request)
        with self._writing() as tables:
            existing = find_existing_grant(tables, request)
            if existing is not None:
                return place_migration(tables, tables.migrations[existing.migration_uuid or ""])
            locked = lock_move(tables, self._clock(), request, host, nodename)
            return apply_write(tables, decide_move(request, locked, policy))

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            locked = lock_migration(tables, self._clock(), uuid)
            return apply_write(tables, decide_move_confirm(locked))

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            locked = lock_migration(tables, self._clock(), uuid)
            return apply_write(tables, decide_move_revert(locked))

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            locked = lock_migration(tables, self._clock(), uuid)
            return apply_write(tables, decide_move_status(locked, status))

    def list_migrations(
        self,
        host: str | None = None,
        uuid: str | None = None,
        status: MigrationStatus | None = None,
    ) -> list[Migration]:
        """See `Store`."""
        with self._reading() as tables:
            found = (place_migration(tables, migration) for migration in tables.migrations.values())
            return [
                migration
                for migration in sorted(found, key=lambda migration: migration.created_at)
                if host in (None, migration.source_host, migration.dest_host)
                and uuid in (None, migration.uuid)
                and status in (None, migration.status)
            ]
