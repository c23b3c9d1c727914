"""The part of the store that schedulers use: all nodes, and the ledger."""

from collections.abc import Collection
from typing import Protocol

from nodetracker.accounting.ledger.exclusions import Exclusions
from nodetracker.model.candidate import CandidateCursor, CandidatePage
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.settings import AdmissionPolicy, CandidatePolicy
from nodetracker.ports.ledger_store import LedgerStore
from nodetracker.ports.methods import repeatable


class SchedulerStore(LedgerStore, Protocol):
    """What admission needs of all nodes, and the claims that schedulers make there."""

    @repeatable
    def find_candidates(
        self,
        request: ClaimRequest,
        policy: CandidatePolicy,
        limit: int,
        after: CandidateCursor | None = None,
    ) -> CandidatePage:
        """Return the nodes that may accept a claim, the best first, by one statement.

        It excludes only nodes that the ledger would refuse now. NUMA cells, PCI
        devices and the usage of further resource classes are not considered.
        The same request returns nodes in the same order.

        Args:
            request: its host and nodename, if set, restrict the nodes.
            limit: the most nodes to return. A page may have fewer, or none,
                although others follow: services are read only of the best
                nodes, which may all be down or disabled.
            after: `CandidatePage.next` of the page before; pages neither skip
                nor repeat a node whose usage does not change.
        """

    @repeatable
    def load_ledger_nodes(
        self, node_ids: Collection[int], request: ClaimRequest | None = None
    ) -> list[LedgerNode]:
        """Return what admission needs of these nodes, by at most four statements.

        Deleted nodes are left out. Without a lock, a node's claims, guests and
        devices may be newer than its row.

        Args:
            request: claims, guests and devices by which it is not evaluated may
                be left out.
        """

    @repeatable
    def list_ledger_nodes(self, after: int, limit: int) -> list[LedgerNode]:
        """Return what admission needs of the next nodes in order of id, as `load_ledger_nodes`.

        Args:
            after: id of the last node of the previous page, 0 for the first.
            limit: maximum number of nodes.
        """

    @repeatable
    def count_exclusions(self, request: ClaimRequest, policy: AdmissionPolicy) -> Exclusions:
        """Count the nodes that each check excludes, independent of each other.

        The request's host and nodename restrict the nodes. Of more than
        `MOST_EVALUATED` nodes, NUMA cells and PCI devices are evaluated only on as
        many that pass all other checks. For a fleet it takes up to a second; call
        it when no candidate was found.
        """
