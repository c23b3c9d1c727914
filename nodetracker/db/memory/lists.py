"""List workloads, claims, migrations, history and warnings from dicts."""

from nodetracker.db.memory.tables import MemoryRows
from nodetracker.model.change import HistoryEntry
from nodetracker.model.claim import Claim
from nodetracker.model.listing import (
    ClaimQuery,
    HistoryQuery,
    MigrationQuery,
    WarningQuery,
    WorkloadQuery,
    WorkloadRow,
)
from nodetracker.model.migration import Migration
from nodetracker.model.page import Page
from nodetracker.model.warning import WarningRecord


class MemoryLists(MemoryRows):
    """The part of `nodetracker.ports.FleetReader` that lists other rows."""

    def list_workloads(self, query: WorkloadQuery) -> Page[WorkloadRow]:
        """See `Store`."""
        raise NotImplementedError

    def list_claim_page(self, query: ClaimQuery) -> Page[Claim]:
        """See `Store`."""
        raise NotImplementedError

    def list_migration_page(self, query: MigrationQuery) -> Page[Migration]:
        """See `Store`."""
        raise NotImplementedError

    def list_history_page(self, query: HistoryQuery) -> Page[HistoryEntry]:
        """See `Store`."""
        raise NotImplementedError

    def list_warning_page(self, query: WarningQuery) -> Page[WarningRecord]:
        """See `Store`."""
        raise NotImplementedError
