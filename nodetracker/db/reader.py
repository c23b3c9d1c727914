"""Implement the part of the store port that only reads over SQL.

It imports nothing that writes, so that commands that only read start quickly.
"""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from nodetracker.db import (
    claims,
    fleet,
    history,
    host_warnings,
    migrations,
    nodes,
    services,
    workloads,
)
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.model.change import HistoryEntry
from nodetracker.model.claim import Claim, ClaimState, Migration, MigrationStatus
from nodetracker.model.fleet import FleetNode, FleetQuery, FleetSums, OverviewRows
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    Page,
    ServiceQuery,
    UsageSum,
    WarningQuery,
    WorkloadQuery,
    WorkloadRow,
)
from nodetracker.model.node import NodeRecord
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import WarningRecord


def open_reader(settings: DatabaseSettings) -> "SqlReader":
    """Build the part of the store that only reads; the first call opens the first connection.

    Raises:
        ConfigError: the URL cannot be used.
    """
    return SqlReader(Database(settings))


class SqlReader:
    """`nodetracker.ports.ReadingStore` over SQLite, MariaDB, MySQL and PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_fleet(self, query: FleetQuery) -> Page[FleetNode]:
        """See `Store`."""
        return self._database.read(lambda c: fleet.list_fleet(c, query))

    def sum_fleet(self) -> FleetSums:
        """See `Store`."""
        return self._database.read(fleet.sum_fleet)

    def read_overview(self) -> OverviewRows:
        """See `Store`."""
        return self._database.read(fleet.read_overview)

    def list_service_page(self, query: ServiceQuery) -> Page[ServiceRecord]:
        """See `Store`."""
        return self._database.read(lambda c: services.list_service_page(c, query))

    def find_service(self, service: int | str) -> ServiceRecord:
        """See `Store`."""
        return self._database.read(lambda c: services.find_service(c, service))

    def sum_usage(self, host: str | None = None, project_id: str | None = None) -> list[UsageSum]:
        """See `Store`."""
        return self._database.read(lambda c: workloads.sum_usage(c, host, project_id))

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

    def now(self) -> datetime:
        """See `Store`."""
        return self._database.read(lambda c: c.execute(sa.select(utc_now())).scalar_one())

    def list_services(
        self, host: str | None = None, binary: str | None = None, agent_id: str | None = None
    ) -> list[ServiceRecord]:
        """See `Store`."""
        return self._database.read(lambda c: services.list_services(c, host, binary, agent_id))

    def list_outage_services(
        self, service_down_time: int, host: str | None = None
    ) -> list[ServiceRecord]:
        """See `Store`."""
        return self._database.read(
            lambda c: services.list_outage_services(c, service_down_time, host)
        )

    def list_nodes(self, host: str | None = None, nodename: str | None = None) -> list[NodeRecord]:
        """See `Store`."""
        return self._database.read(lambda c: nodes.list_nodes(c, host, nodename))

    def load_nodes(self, host: str, node_ids: Collection[int] | None = None) -> list[NodeRecord]:
        """See `Store`."""
        return self._database.read(lambda c: nodes.load_nodes(c, host, node_ids))

    def list_warnings(self, host: str | None = None) -> list[WarningRecord]:
        """See `Store`."""
        return self._database.read(lambda c: host_warnings.list_warnings(c, host))

    def list_claims(
        self, host: str | None = None, state: ClaimState | None = None, uuid: str | None = None
    ) -> list[Claim]:
        """See `Store`."""
        return self._database.read(lambda c: claims.list_claims(c, host, state, uuid))

    def list_migrations(
        self,
        host: str | None = None,
        uuid: str | None = None,
        status: MigrationStatus | None = None,
    ) -> list[Migration]:
        """See `Store`."""
        return self._database.read(lambda c: migrations.list_migrations(c, host, uuid, status))

    def close(self) -> None:
        """See `Store`."""
        self._database.close()
