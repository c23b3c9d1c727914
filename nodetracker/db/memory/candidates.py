"""Find the candidates for a claim among all nodes in dicts."""

from nodetracker.accounting.ledger.candidates import ScreenedNode, list_candidates
from nodetracker.db.memory.tables import MemoryRows
from nodetracker.model.candidate import CandidateCursor, CandidatePage
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import CandidatePolicy


class MemoryCandidates(MemoryRows):
    """The part of `nodetracker.ports.Store` that finds candidates."""

    def find_candidates(
        self,
        request: ClaimRequest,
        policy: CandidatePolicy,
        limit: int,
        after: CandidateCursor | None = None,
    ) -> CandidatePage:
        """See `Store`."""
        with self._reading() as tables:
            services = {
                host: service.availability
                for (host, binary), service in tables.services.items()
                if binary == COMPUTE_BINARY
            }
            nodes = [
                ScreenedNode(
                    record.id,
                    record.host,
                    record.nodename,
                    record.values,
                    services.get(record.host),
                    request.workload.uuid in record.guests,
                )
                for record in tables.nodes.values()
            ]
            return list_candidates(nodes, request, policy, self._clock(), limit, after)
