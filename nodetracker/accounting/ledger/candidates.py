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
from nodetracker.settings import CandidatePolicy

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
    ordering = _Ordering(request, policy, scale)
    found = sorted(
        (
            ordering.place(node, free[node.id])
            for node in passed
            if _accepts_claims(node.service, now, policy.service_down_time)
        ),
        key=ordering.key,
    )
    start = 0
    if after is not None:
        start = bisect.bisect_right(found, ordering.key_of(after), key=ordering.key)
    page = found[start : start + limit]
    last = page[-1][1] if page and len(page) == limit else None
    return CandidatePage(tuple(node for node, _ in page), last)


class _Ordering:
    """Places nodes in the order of a policy."""

    def __init__(self, request: ClaimRequest, policy: CandidatePolicy, scale: Scale) -> None:
        self._hash = weights.node_hash(request.uuid)
        self._policy = policy
        self._scale = scale
        self._best = weights.best_weight(scale, policy.multipliers)
        self._height = weights.step_height(request.amounts, scale, policy.multipliers)

    def place(self, node: ScreenedNode, free: Amounts) -> tuple[CandidateNode, CandidateCursor]:
        """Return a candidate with its position."""
        weight = weights.weigh(free, self._scale, self._policy.multipliers)
        is_named = self._policy.order is CandidateOrder.NAMED
        rank = weight if is_named else weights.count_steps(weight, self._best, self._height)
        place = (node.id, node.host, node.nodename)
        return CandidateNode(*place, weight, free, node.has_guest), CandidateCursor(
            self._scale, rank, self._hash.of(node.id), *place
        )

    def key(self, placed: tuple[CandidateNode, CandidateCursor]) -> Key:
        """Return the key to sort by."""
        return self.key_of(placed[1])

    def key_of(self, position: CandidateCursor) -> Key:
        """Return the key of a position."""
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
