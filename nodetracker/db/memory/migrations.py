"""Migrations over dicts: moves of claims from one node to another."""

from nodetracker.accounting.ledger import moves
from nodetracker.accounting.ledger.moves import Ending
from nodetracker.db.memory.claims import MemoryClaims, find_existing_grant, release, write_active
from nodetracker.db.memory.tables import Tables, bump_generation, node_ids_of, place_migration
from nodetracker.errors import ClaimRefusedError, NotFoundError
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.migration import Migration, MigrationStatus
from nodetracker.ports import AdmissionPolicy


class MemoryMigrations(MemoryClaims):
    """The part of `nodetracker.ports.Store` that decides about moves."""

    def create_migration(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Migration:
        """See `Store`."""
        wanted = moves.move_of(request)
        with self._writing() as tables:
            again = find_existing_grant(tables, request)
            if again is not None:
                return place_migration(tables, tables.migrations[again.migration_uuid or ""])
            dest = self._lock_node(tables, host, nodename, request.workload.uuid)
            if dest is None:
                raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
            reasons = moves.move_reasons(
                request, tables.claims, tables.migrations.values(), dest.id
            )
            granted = self._grant(tables, request, dest, policy, reasons)
            source = tables.claims[wanted.source_claim]
            migration = moves.make_migration(request, source, granted)
            tables.migrations[migration.uuid] = migration
            if source.node_id != granted.node_id:
                bump_generation(tables, source.node_id)
            return place_migration(tables, migration)

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            migration = _find_migration(tables, uuid)
            return self._end(
                tables, migration, moves.plan_confirm(migration, tables.claims, self._clock())
            )

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            migration = _find_migration(tables, uuid)
            return self._end(
                tables, migration, moves.plan_revert(migration, tables.claims, self._clock())
            )

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """See `Store`."""
        with self._writing() as tables:
            migration = _find_migration(tables, uuid)
            return self._end(tables, migration, moves.plan_status(migration, status, self._clock()))

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

    def _end(self, tables: Tables, migration: Migration, ending: Ending | None) -> Migration:
        if ending is None:
            return place_migration(tables, migration)
        ids = node_ids_of(tables, migration)
        if ending.confirmed is not None:
            node, _ = self._lock_claim(tables, ending.confirmed.uuid)
            write_active(tables, node, ending.confirmed)
            ids.discard(node.id)
        if ending.released is not None:
            claim, reason = ending.released
            node, _ = self._lock_claim(tables, claim.uuid)
            release(tables, node, claim, reason)
            ids.discard(claim.node_id)
        for node_id in ids:
            bump_generation(tables, node_id)
        tables.migrations[migration.uuid] = ending.migration
        return place_migration(tables, ending.migration)


def _find_migration(tables: Tables, uuid: str) -> Migration:
    try:
        return tables.migrations[uuid]
    except KeyError:
        raise NotFoundError(f"there is no migration {uuid}") from None
