"""One node as a scheduler has just read it."""

from dataclasses import dataclass

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.grants import evaluate_claim
from nodetracker.accounting.ledger.locked import assume_locked
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.ports import AdmissionPolicy


@dataclass(frozen=True, slots=True)
class HostState:
    """The part of a node that admission needs, as it was read."""

    node: LedgerNode

    @property
    def key(self) -> tuple[str, str]:
        """Host and nodename."""
        return self.node.host, self.node.nodename

    def evaluate(self, request: ClaimRequest, policy: AdmissionPolicy) -> Admission:
        """Evaluate a claim as the ledger would, if the node has not changed since it was read."""
        return evaluate_claim(request, assume_locked(self.node, request.workload.uuid), policy)
