"""The part of the store that operators use, by command line or through an agent."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from nodetracker.model.service import ServiceChange, ServiceRecord
from nodetracker.ports.fleet import FleetReader
from nodetracker.ports.fleet_store import FleetStore
from nodetracker.ports.ledger_store import LedgerStore
from nodetracker.ports.methods import repeatable
from nodetracker.ports.removal_store import RemovalStore


class ReadingStore(FleetStore, FleetReader, Protocol):
    """All that operators read of the fleet."""


class OperatorStore(ReadingStore, LedgerStore, RemovalStore, Protocol):
    """Services and nodes for administration, all lists, the ledger, and removals of providers.

    Deletions and renames are not repeatable: a second call reports that
    nothing exists under the name.
    """

    @repeatable
    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """Change what an administrator decides about a service; heartbeat columns are left alone.

        Raises:
            NotFoundError: no such service.
        """

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """Delete a service whose heartbeats have ended, with its nodes and warnings.

        Raises:
            NotFoundError: no such service.
            RefusedError: its last heartbeat is at most `service_down_time` seconds old.
        """

    def rename_host(self, old: str, new: str, binary: str, expected: ServiceRecord | None) -> int:
        """Move a host's rows to another host name, raise their epoch; return the number of nodes.

        The node that has the host's old name is renamed too; every node keeps its uuid.

        Args:
            expected: the services row from which the caller concluded that the
                host's agent does not run, None when it did not exist.

        Raises:
            NotFoundError: nothing exists under the old name.
            RefusedError: something exists under the new name.
            ConflictError: the services row has changed since; check it again.
        """

    def adopt_uuid(self, host: str, nodename: str, before: str, uuid: str) -> None:
        """Give a node the uuid of a provider in placement, and record that in the history.

        Args:
            before: the node's uuid on which the decision rests.

        Raises:
            NotFoundError: no such node.
            ConflictError: the node has another uuid by now.
            RefusedError: another node has the uuid.
        """

    def delete_node(self, host: str, nodename: str) -> None:
        """Delete one row with its guests and devices; record that, and its provider's removal.

        Raises:
            NotFoundError: no such node.
        """

    def purge(
        self, before: datetime, tables: Collection[str] = (), is_part: bool = False
    ) -> Mapping[str, int]:
        """Delete what ended before `before`; return table -> rows deleted.

        History, resolved warnings, migrations, released claims to which no
        migration refers any more, and removals of providers that nobody attempted.
        A request whose claim was purged is a new one.

        Args:
            tables: only these; none = all.
            is_part: delete at most 1,000 rows of each table, in one transaction each.
        """
