"""Count the nodes in dicts that each check excludes."""

from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.exclusions import Exclusions, count_misses, evaluate_miss
from nodetracker.db.memory.locked import read_locked
from nodetracker.db.memory.tables import MemoryRows
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy


class MemoryExclusions(MemoryRows):
    """The part of `nodetracker.ports.Store` that explains why nodes are no candidates."""

    def count_exclusions(self, request: ClaimRequest, policy: AdmissionPolicy) -> Exclusions:
        """See `Store`; evaluates every node by every check."""
        with self._reading() as tables:
            now = self._clock()
            nodes = (
                read_locked(tables, now, record, request.workload.uuid)
                for record in tables.nodes.values()
                if request.host in (None, record.host)
                and request.nodename in (None, record.nodename)
            )
            return count_misses(
                evaluate_miss(node.host, node.nodename, evaluate_claim(request, node, policy))
                for node in nodes
            )
