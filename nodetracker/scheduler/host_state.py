"""Evaluate claims on one cached node by the ledger's own rule."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from nodetracker.accounting.ledger import grants
from nodetracker.accounting.ledger.admission import Admission, free_amounts
from nodetracker.accounting.ledger.grants import LockedNode
from nodetracker.accounting.numa.usage import list_placements
from nodetracker.accounting.usage import Charge, charge_of_claim
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
        used: Counter[str] = Counter()
        for claim in self.node.claims:
            used.update(claim.amounts.resources)
        locked = self._as_locked(request.workload.uuid, now)
        return grants.evaluate_claim(
            request, locked, used, policy.service_down_time, policy.is_packing, policy.aliases
        )

    def consume(self, claim: Claim) -> "HostState":
        """Return the node with a granted claim, as the ledger wrote it.

        The cached devices may be outdated. Those that the claim cannot have
        according to the cache are left unchanged.
        """
        locked = self._as_locked(claim.workload.uuid, claim.created_at)
        charge = charge_of_claim(claim.amounts, claim.workload.kind, locked.overhead_mb)
        inventory = grants.inventory_given(locked, claim)
        columns = grants.charge_row(locked, charge, grants.credit_of(locked), inventory)
        placements = [*locked.placements, *([claim.numa] if claim.numa else [])]
        columns["numa_topology"] = grants.topology_column(
            self.node.values.numa_topology, placements
        )
        rest = {
            uuid: guest
            for uuid, guest in self.node.unclaimed.items()
            if uuid != claim.workload.uuid
        }
        try:
            devices = grants.assign_devices(locked, claim)
        except RefusedError:
            devices = dict(self.node.devices)
        node = replace(
            self.node,
            values=replace(self.node.values, **columns),
            claims=(*self.node.claims, claim),
            unclaimed=rest,
            devices=devices,
        )
        return replace(self, node=node, is_estimate=True)

    def _as_locked(self, workload_uuid: str, now: datetime) -> LockedNode:
        """Return the node as a ledger transaction for this workload would read it."""
        version = self.node.version
        return LockedNode(
            id=version.id,
            host=version.host,
            nodename=version.nodename,
            values=self.node.values,
            service=self.service,
            guest=self.node.unclaimed.get(workload_uuid),
            now=now,
            placements=list_placements(
                self.node.claims,
                (guest for uuid, guest in self.node.unclaimed.items() if uuid != workload_uuid),
            ),
            devices=self.node.devices,
        )
