"""Evaluate claims on one cached node by the ledger's own rule."""

from dataclasses import dataclass, replace
from datetime import datetime

from nodetracker.accounting.ledger import grants
from nodetracker.accounting.ledger.admission import Admission, free_amounts
from nodetracker.accounting.ledger.locked import assume_locked
from nodetracker.accounting.ledger.node_claims import add_claim
from nodetracker.accounting.usage import Charge, is_larger
from nodetracker.errors import RefusedError
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.service import ServiceAvailability
from nodetracker.ports import AdmissionPolicy


@dataclass(frozen=True, slots=True)
class HostState:
    """The part of a node that admission needs.

    Attributes:
        node: as it was read, with claims consumed since.
        service: the availability of the host's agent, None without an agent.
        is_estimate: a claim was consumed since it was read, so the next
            refresh reads it again.
    """

    node: LedgerNode
    service: ServiceAvailability | None
    is_estimate: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Host and nodename."""
        return self.node.version.host, self.node.version.nodename

    @property
    def free(self) -> Charge:
        """Free amounts within the node's own limits; may be negative."""
        return free_amounts(self.node.values)

    def evaluate(self, request: ClaimRequest, now: datetime, policy: AdmissionPolicy) -> Admission:
        """Evaluate a claim as the ledger would, if the node has not changed since it was read.

        Args:
            now: the database's time.
        """
        locked = assume_locked(self.node, self.service, request.workload.uuid, now)
        return grants.evaluate_claim(request, locked, policy)

    def consume(self, claim: Claim) -> "HostState":
        """Return the node with a granted claim, as the ledger wrote it.

        The cached devices may be outdated. Those that the claim cannot have
        according to the cache are left unchanged.
        """
        locked = assume_locked(self.node, self.service, claim.workload.uuid, claim.created_at)
        try:
            after = add_claim(locked, claim)
        except RefusedError:
            after = add_claim(locked, replace(claim, devices=()))
        unclaimed, larger = dict(self.node.unclaimed), dict(self.node.larger)
        for guests in (unclaimed, larger):
            guests.pop(claim.workload.uuid, None)
        if after.guest is not None and is_larger(after.guest, claim):
            larger[after.guest.uuid] = after.guest
        node = replace(
            self.node,
            values=after.values,
            claims=(*self.node.claims, claim),
            unclaimed=unclaimed,
            devices=after.devices,
            larger=larger,
        )
        return replace(self, node=node, is_estimate=True)
