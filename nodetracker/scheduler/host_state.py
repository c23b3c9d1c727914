"""Evaluate claims on one cached node by the ledger's own rule."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from nodetracker.accounting.ledger import grants
from nodetracker.accounting.ledger.admission import Admission, free_amounts
from nodetracker.accounting.ledger.locked import LockedNode
from nodetracker.accounting.ledger.node_claims import add_claim
from nodetracker.accounting.usage import Charge, charge_of_claims, is_larger
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
        return grants.evaluate_claim(request, self._as_locked(request.workload.uuid, now), policy)

    def consume(self, claim: Claim) -> "HostState":
        """Return the node with a granted claim, as the ledger wrote it.

        The cached devices may be outdated. Those that the claim cannot have
        according to the cache are left unchanged.
        """
        locked = self._as_locked(claim.workload.uuid, claim.created_at)
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

    def _as_locked(self, workload_uuid: str, now: datetime) -> LockedNode:
        """Return the node as a ledger transaction for this workload would read it."""
        version, values = self.node.version, self.node.values
        guests = {**self.node.larger, **self.node.unclaimed}
        mine = [claim for claim in self.node.claims if claim.workload.uuid == workload_uuid]
        used: Counter[str] = Counter()
        for claim in self.node.claims:
            used.update(claim.amounts.resources)
        return LockedNode(
            id=version.id,
            host=version.host,
            nodename=version.nodename,
            values=values,
            service=self.service,
            guest=guests.get(workload_uuid),
            now=now,
            claimed=charge_of_claims(mine, int(values.overhead.get("memory_mb", 0))),
            claim_placements={c.uuid: c.numa for c in self.node.claims if c.numa is not None},
            guest_placements={
                guest.uuid: guest.pins.placement
                for guest in self.node.unclaimed.values()
                if guest.pins.placement is not None
            },
            devices=self.node.devices,
            used_resources=used,
        )
