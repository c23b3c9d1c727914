"""The part of the store that schedulers use: all nodes, and the ledger."""

from collections.abc import Collection
from typing import Protocol

from nodetracker.model.fleet import LedgerNode, LedgerVersions
from nodetracker.ports.ledger_store import LedgerStore
from nodetracker.ports.methods import repeatable


class SchedulerStore(LedgerStore, Protocol):
    """What admission needs of all nodes, and the claims that schedulers make there."""

    @repeatable
    def load_ledger_versions(self) -> LedgerVersions:
        """Return the versions of all nodes, the availability of their services and the time.

        One statement, however many nodes exist.
        """

    @repeatable
    def load_ledger_nodes(self, node_ids: Collection[int]) -> list[LedgerNode]:
        """Return what admission needs of these nodes, by a fixed number of statements.

        Deleted nodes are left out. A node's version is read before its claims,
        guests and devices; when these are newer, the node is read again later.
        """
