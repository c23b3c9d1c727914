"""The part of the store that all roles read: services, nodes, warnings, pages of all nouns."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from nodetracker.model.change import HistoryEntry
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.fleet import FleetNode, FleetQuery, FleetSums, OverviewRows
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    HostsDownQuery,
    HostSum,
    MigrationQuery,
    Page,
    ServiceQuery,
    UsageSum,
    WarningQuery,
    WorkloadQuery,
    WorkloadRow,
)
from nodetracker.model.node import NodeRecord
from nodetracker.model.pci import NodeGpus, TrackedDevice
from nodetracker.model.service import ServiceRecord
from nodetracker.model.tolerance import HostTolerance
from nodetracker.model.trend import TrendQuery, TrendSample
from nodetracker.model.warning import WarningRecord
from nodetracker.ports.methods import repeatable


class FleetStore(Protocol):
    """Services, nodes and warnings as they are stored.

    Times are UTC by the database's clock; every method is one transaction.
    Every method may raise StoreUnavailableError (try again later; nothing was
    written, unless the answer to a commit was lost) or SchemaError (run
    ``nodetracker-manage db sync``).
    """

    @repeatable
    def now(self) -> datetime:
        """Return the database's time."""

    @repeatable
    def list_services(
        self, host: str | None = None, binary: str | None = None, agent_id: str | None = None
    ) -> list[ServiceRecord]:
        """Return services in order of host and binary."""

    @repeatable
    def list_outage_services(
        self,
        service_down_time: int,
        host: str | None = None,
        query: HostsDownQuery | None = None,
    ) -> list[ServiceRecord]:
        """Return the services by which hosts that are down are found, in order of host and binary.

        They are those of conductors and of the REST service, and of agents that are forced
        down or send no heartbeats, which are few of a large fleet.

        Args:
            service_down_time: seconds without a heartbeat after which a service is down.
            host: the only one whose agent is returned; None = all.
            query: only those agents that it selects, none of which has a recent heartbeat.
        """

    @repeatable
    def list_nodes(self, host: str | None = None, nodename: str | None = None) -> list[NodeRecord]:
        """Return rows without guests and devices, in order of host and nodename."""

    @repeatable
    def load_nodes(self, host: str, node_ids: Collection[int] | None = None) -> list[NodeRecord]:
        """Return nodes of a host with guests and devices, by a fixed number of statements.

        They have their active claims, and of the expired ones those that expired within
        the last hour and those whose workload has an unclaimed guest or an open migration.

        Args:
            node_ids: only these rows; None = all of the host's.
        """

    @repeatable
    def list_warnings(self, host: str | None = None) -> list[WarningRecord]:
        """Return unresolved and resolved warnings, in order of when they were first seen."""

    def close(self) -> None:
        """Close all connections."""


class FleetReader(Protocol):
    """Lists of whole fleets, for operators and their programs.

    A page is one statement, however many rows exist, and is read by its
    key, not by an offset. Every method may raise the errors of `FleetStore`;
    every list raises RequestError when nothing has the uuid `PageQuery.after`.
    """

    @repeatable
    def list_fleet(self, query: FleetQuery) -> Page[FleetNode]:
        """Return nodes with the services of their hosts' agents."""

    @repeatable
    def sum_fleet(self) -> FleetSums:
        """Return the sums over all nodes whose service is enabled, by one statement."""

    @repeatable
    def read_overview(self) -> OverviewRows:
        """Return the rows of the overview, by at most six statements."""

    @repeatable
    def list_tolerances(
        self, host: str | None = None, with_plans: bool = False
    ) -> list[HostTolerance]:
        """Return the stored answers whether hosts may be lost, in order of host, by one statement.

        Args:
            host: only this one's.
            with_plans: otherwise their plans are not read.
        """

    @repeatable
    def read_trend(self, query: TrendQuery) -> list[TrendSample]:
        """Return samples of the fleet or of a node, oldest first, by one statement.

        Hours and days that were not sampled are missing.
        """

    @repeatable
    def read_node_hours(
        self, uuids: Sequence[str], since: datetime
    ) -> Mapping[str, Sequence[TrendSample]]:
        """Return by uuid the hours of nodes from a time on, oldest first, by two statements.

        Nodes that do not exist are missing.
        """

    @repeatable
    def list_service_page(self, query: ServiceQuery) -> Page[ServiceRecord]:
        """Return services, by default in order of id."""

    @repeatable
    def sum_hosts(self, hosts: Collection[str] | None = None) -> Mapping[str, HostSum]:
        """Return what hosts with nodes have by host, all or these, by one statement."""

    @repeatable
    def find_service(self, service: int | str) -> ServiceRecord:
        """Return the service with an id or uuid.

        Raises:
            NotFoundError: no such service.
        """

    @repeatable
    def sum_usage(self, host: str | None = None, project_id: str | None = None) -> list[UsageSum]:
        """Return the amounts of workloads by project and kind, by one statement.

        In order of project, kind, and claimed ones first. Projects without workloads are absent.
        """

    @repeatable
    def list_workloads(self, query: WorkloadQuery) -> Page[WorkloadRow]:
        """Return workloads on nodes, in order of uuid, node and claim, unclaimed guests last.

        A page has all rows of at most `PageQuery.limit` workloads.
        """

    @repeatable
    def list_claim_page(self, query: ClaimQuery) -> Page[Claim]:
        """Return claims, oldest first."""

    @repeatable
    def list_migration_page(self, query: MigrationQuery) -> Page[Migration]:
        """Return migrations, oldest first."""

    @repeatable
    def list_history_page(self, query: HistoryQuery) -> Page[HistoryEntry]:
        """Return what agents changed, newest first."""

    @repeatable
    def list_device_page(self, query: DeviceQuery) -> Page[TrackedDevice]:
        """Return the PCI devices of a node, in order of address."""

    @repeatable
    def list_gpus(self) -> list[NodeGpus]:
        """Return the GPUs of each node that has any, by two statements."""

    @repeatable
    def list_custom_traits(self) -> dict[str, tuple[str, ...]]:
        """Return the custom traits of each node that has any, by its uuid."""

    @repeatable
    def list_warning_page(self, query: WarningQuery) -> Page[WarningRecord]:
        """Return stored warnings, in order of when they were first seen."""


class ReadingStore(FleetStore, FleetReader, Protocol):
    """All that operators read of the fleet."""
