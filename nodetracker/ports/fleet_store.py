"""The part of the store that every role reads: services, nodes and warnings of all hosts."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from nodetracker.model.node import NodeRecord
from nodetracker.model.service import ServiceRecord
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
        self, service_down_time: int, host: str | None = None
    ) -> list[ServiceRecord]:
        """Return the services by which hosts that are down are found, in order of host and binary.

        They are those of conductors and of the REST service, and of agents that are forced
        down or send no heartbeats, which are few of a large fleet.

        Args:
            service_down_time: seconds without a heartbeat after which a service is down.
            host: the only one whose agent is returned; None = all.
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
