"""Order the nodes that pass screening for a claim, and cut pages of them."""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from nodetracker.accounting import weights
from nodetracker.accounting.ledger.screening import free_of, screen
from nodetracker.accounting.liveness import is_service_up
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
    Scale,
)
from nodetracker.model.claim import Amounts, ClaimRequest
from nodetracker.model.node import NodeValues
from nodetracker.model.service import ServiceAvailability
from nodetracker.model.settings import CandidatePolicy

Key = tuple[float, int, int] | tuple[float, str, str]


@dataclass(frozen=True, slots=True)
class ScreenedNode:
    """What is known of a node before a claim on it is evaluated.

    Attributes:
        service: of the host's agent, None when the host has none.
        has_guest: the node has a guest of the workload.
    """

    id: int
    host: str
    nodename: str
    values: NodeValues
    service: ServiceAvailability | None
    has_guest: bool


def list_candidates(
    nodes: Iterable[ScreenedNode],
    request: ClaimRequest,
    policy: CandidatePolicy,
    now: datetime,
    limit: int,
    after: CandidateCursor | None,
) -> CandidatePage:
    """Return a page of the nodes that may accept a claim, as `SchedulerStore.find_candidates`.

    Args:
        nodes: all nodes.
        now: the database's time.
    """
    passed = [
        node
        for node in nodes
        if request.host in (None, node.host)
        and request.nodename in (None, node.nodename)
        and not screen(request, node.values, node.has_guest)
    ]
    free = {node.id: free_of(node.values) for node in passed}
    scale = weights.scale_of(list(free.values())) if after is None else after.scale
    ordering = CandidateOrdering(request, policy, scale)
    candidates = (
        ordering.weigh(node.id, node.host, node.nodename, free[node.id], node.has_guest)
        for node in passed
        if _accepts_claims(node.service, now, policy.service_down_time)
    )
    found = sorted(
        ((node, ordering.locate(node)) for node in candidates),
        key=lambda placed: ordering.key_of(placed[1]),
    )
    start = 0
    if after is not None:
        start = bisect.bisect_right(
            found, ordering.key_of(after), key=lambda placed: ordering.key_of(placed[1])
        )
    page = found[start : start + limit]
    last = page[-1][1] if page and len(page) == limit else None
    return CandidatePage(tuple(node for node, _ in page), last)


class CandidateOrdering:
    """Weighs nodes and places them in the order of a policy."""

    def __init__(self, request: ClaimRequest, policy: CandidatePolicy, scale: Scale) -> None:
        self._hash = weights.node_hash(request.uuid)
        self._policy = policy
        self._scale = scale
        self._best = weights.best_weight(scale, policy.multipliers)
        self._height = weights.step_height(request.amounts, scale, policy.multipliers)

    def weigh(
        self, node_id: int, host: str, nodename: str, free: Amounts, has_guest: bool
    ) -> CandidateNode:
        """Return a node with its weight."""
        weight = weights.weigh(free, self._scale, self._policy.multipliers)
        return CandidateNode(node_id, host, nodename, weight, free, has_guest)

    def locate(self, node: CandidateNode, has_stale_limits: bool = False) -> CandidateCursor:
        """Return the position of a weighed node.

        Args:
            has_stale_limits: its free amounts and so its weight are not known: it comes last.
        """
        penalty = weights.STALE if has_stale_limits else 0.0
        if self._policy.order is CandidateOrder.NAMED:
            rank = node.weight - penalty
        else:
            rank = weights.count_steps(node.weight, self._best, self._height) + penalty
        return CandidateCursor(
            self._scale, rank, self._hash.of(node.id), node.id, node.host, node.nodename
        )

    def key_of(self, position: CandidateCursor) -> Key:
        """Return the key of a position, to sort by."""
        if self._policy.order is CandidateOrder.NAMED:
            return -position.rank, position.host, position.nodename
        return position.rank, position.hash, position.node_id


def _accepts_claims(
    service: ServiceAvailability | None, now: datetime, service_down_time: int
) -> bool:
    return (
        service is not None
        and not service.disabled
        and not service.maintenance
        and is_service_up(service, now, service_down_time)
    )
