"""Implement the part of the store port that schedulers read over SQL."""

from collections.abc import Collection

from nodetracker.accounting.ledger.exclusions import Exclusions
from nodetracker.db import fleet
from nodetracker.db.candidates import find_candidates
from nodetracker.db.connection.engine import Database
from nodetracker.db.exclusions import count_exclusions
from nodetracker.model.candidate import CandidateCursor, CandidatePage
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.ports import AdmissionPolicy, CandidatePolicy


class SqlPlacing:
    """The part of `nodetracker.ports.SchedulerStore` that finds nodes, over SQL."""

    _database: Database

    def find_candidates(
        self,
        request: ClaimRequest,
        policy: CandidatePolicy,
        limit: int,
        after: CandidateCursor | None = None,
    ) -> CandidatePage:
        """See `Store`."""
        return self._database.read(lambda c: find_candidates(c, request, policy, limit, after))

    def load_ledger_nodes(
        self, node_ids: Collection[int], request: ClaimRequest | None = None
    ) -> list[LedgerNode]:
        """See `Store`."""
        return self._database.read(lambda c: fleet.load_ledger_nodes(c, node_ids, request))

    def list_ledger_nodes(self, after: int, limit: int) -> list[LedgerNode]:
        """See `Store`."""
        return self._database.read(lambda c: fleet.list_ledger_nodes(c, after, limit))

    def count_exclusions(self, request: ClaimRequest, policy: AdmissionPolicy) -> Exclusions:
        """See `Store`."""
        return self._database.read(lambda c: count_exclusions(c, request, policy))
