"""Implement the part of the store port that lists and sums over SQL."""

from nodetracker.db import (
    fleet_nodes,
    history,
    host_warnings,
    nodes,
    overview,
    services,
    usage,
    workloads,
)
from nodetracker.db.connection.engine import Database
from nodetracker.db.ledger import claims, migrations
from nodetracker.model.change import HistoryEntry
from nodetracker.model.claim import Claim
from nodetracker.model.fleet import FleetNode, FleetQuery, FleetSums
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    ServiceQuery,
    UsageSum,
    WarningQuery,
    WorkloadQuery,
    WorkloadRow,
)
from nodetracker.model.migration import Migration
from nodetracker.model.overview import OverviewRows
from nodetracker.model.page import Page
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import WarningRecord


class SqlFleetReader:
    """`nodetracker.ports.FleetReader` over SQL."""

    _database: Database

    def list_fleet(self, query: FleetQuery) -> Page[FleetNode]:
        """See `Store`."""
        return self._database.read(lambda c: fleet_nodes.list_fleet(c, query))

    def sum_fleet(self) -> FleetSums:
        """See `Store`."""
        return self._database.read(fleet_nodes.sum_fleet)

    def read_overview(self) -> OverviewRows:
        """See `Store`."""
        return self._database.read(overview.read_overview)

    def list_service_page(self, query: ServiceQuery) -> Page[ServiceRecord]:
        """See `Store`."""
        return self._database.read(lambda c: services.list_service_page(c, query))

    def find_service(self, service: int | str) -> ServiceRecord:
        """See `Store`."""
        return self._database.read(lambda c: services.find_service(c, service))

    def sum_usage(self, host: str | None = None, project_id: str | None = None) -> list[UsageSum]:
        """See `Store`."""
        return self._database.read(lambda c: usage.sum_usage(c, host, project_id))

    def list_workloads(self, query: WorkloadQuery) -> Page[WorkloadRow]:
        """See `Store`."""
        return self._database.read(lambda c: workloads.list_workloads(c, query))

    def list_claim_page(self, query: ClaimQuery) -> Page[Claim]:
        """See `Store`."""
        return self._database.read(lambda c: claims.list_claim_page(c, query))

    def list_migration_page(self, query: MigrationQuery) -> Page[Migration]:
        """See `Store`."""
        return self._database.read(lambda c: migrations.list_migration_page(c, query))

    def list_history_page(self, query: HistoryQuery) -> Page[HistoryEntry]:
        """See `Store`."""
        return self._database.read(lambda c: history.list_history_page(c, query))

    def list_device_page(self, query: DeviceQuery) -> Page[TrackedDevice]:
        """See `Store`."""
        return self._database.read(lambda c: nodes.list_device_page(c, query))

    def list_warning_page(self, query: WarningQuery) -> Page[WarningRecord]:
        """See `Store`."""
        return self._database.read(lambda c: host_warnings.list_warning_page(c, query))
