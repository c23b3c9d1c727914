"""What a ledger transaction does to one node: pure, on what was read under the lock."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.admission import Admission, admit
from nodetracker.accounting.liveness import is_service_up
from nodetracker.accounting.usage import (
    Charge,
    charge_of_claim,
    charge_of_guest,
    charge_of_row,
    usage_columns,
)
from nodetracker.model.claim import Claim, ClaimKind, ClaimRequest, ClaimState, ReleaseReason
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.service import ServiceGate


@dataclass(frozen=True, slots=True)
class LockedNode:
    """A node as a ledger transaction reads it, its row locked.

    Attributes:
        values: only what admission and usage need; the rest is as a new row's.
        service: of the host's agent, None when there is none.
        guest: of the workload in question as stored, None when there is none.
        now: the database's time.
    """

    id: int
    host: str
    nodename: str
    values: NodeValues
    service: ServiceGate | None
    guest: Guest | None
    now: datetime

    @property
    def overhead_mb(self) -> int:
        """Memory that the driver adds to each instance, in MiB."""
        overhead: Any = self.values.overhead.get("memory_mb", 0)
        return int(overhead)


def judge_claim(
    request: ClaimRequest,
    node: LockedNode,
    used_resources: Mapping[str, int],
    service_down_time: int,
) -> Admission:
    """Judge a claim on a node: whether the node takes any now, and whether it fits."""
    charge = charge_of_claim(request.amounts, request.workload.kind, node.overhead_mb)
    answer = admit(request, node.values, charge, credit_of(node), used_resources)
    return Admission(answer.verdicts, (*_closed_reasons(node, service_down_time), *answer.reasons))


def credit_of(node: LockedNode) -> Charge:
    """Return what the workload's guest is charged already while no claim covers it."""
    guest = node.guest
    if guest is None or guest.claim_uuid is not None:
        return Charge()
    return charge_of_guest(guest, node.overhead_mb)


def make_claim(request: ClaimRequest, node: LockedNode, claim_timeout: int) -> Claim:
    """Build the claim of a request that was admitted; one whose guest is there is confirmed."""
    is_there = node.guest is not None and node.guest.missing_since is None
    return Claim(
        uuid=request.uuid,
        node_id=node.id,
        host=node.host,
        nodename=node.nodename,
        workload=request.workload,
        kind=ClaimKind.CREATE if request.migration is None else ClaimKind.MOVE,
        state=ClaimState.CONFIRMED if is_there else ClaimState.HELD,
        amounts=request.amounts,
        request_hash=request.request_hash,
        created_at=node.now,
        updated_at=node.now,
        expires_at=None if is_there else node.now + timedelta(seconds=claim_timeout),
        migration_uuid=None if request.migration is None else request.migration.uuid,
    )


def release(claim: Claim, reason: ReleaseReason, now: datetime) -> Claim:
    """Return a claim as it is once released."""
    return replace(
        claim,
        state=ClaimState.RELEASED,
        reason=reason.value,
        expires_at=None,
        updated_at=now,
    )


def charge_row(node: LockedNode, added: Charge, removed: Charge) -> dict[str, Any]:
    """Return the usage columns after something was charged and something taken off."""
    values = node.values
    total = charge_of_row(values) + added - removed
    return usage_columns(total, values.reserved, values.memory_mb, values.local_gb)


def _closed_reasons(node: LockedNode, service_down_time: int) -> list[str]:
    """Say why a node takes no claim whatever it asks for."""
    service = node.service
    if service is None:
        return [f"host {node.host} has no service"]
    reasons = []
    if service.disabled:
        why = f": {service.disabled_reason}" if service.disabled_reason else ""
        reasons.append(f"host {node.host} is disabled{why}")
    if service.maintenance:
        reasons.append(f"host {node.host} is in maintenance")
    if not is_service_up(service, node.now, service_down_time):
        reasons.append(f"host {node.host} is down")
    return reasons
