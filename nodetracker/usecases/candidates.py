"""Find the nodes on which a request can claim, the best first, and why others are none of them."""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.candidates import hash_nodes
from nodetracker.accounting.ledger.claims import evaluate_candidate, list_left, require_amounts
from nodetracker.accounting.ledger.exclusions import Exclusions
from nodetracker.accounting.ledger.migrations import complete_move, list_dest_refusals
from nodetracker.accounting.ledger.packing import grant_alike
from nodetracker.accounting.ledger.transaction import LockedNode, assume_locked, share_node
from nodetracker.accounting.usage import charge_of_claim
from nodetracker.model.amounts import PARTS
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
    CandidatePosition,
    RoomCount,
)
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.settings import SchedulerSettings
from nodetracker.ports import AdmissionPolicy, CandidatePolicy, FleetReader, SchedulerStore

EVALUATED = 20
"""The most nodes that are evaluated together by the ledger's rule."""

LATER_PART = 200
"""The least number of nodes of a part when none of the first part accepts the claim."""

MAX_COUNTED = 10_000
"""Claims that are granted on copies to count how many fit."""

COUNT_SECONDS = 5.0
"""How long that may take."""

ALL = 2**31 - 1
"""As the size of a part: all nodes."""

PAGE_SIZE = 1000
"""Candidates of a page of a list without a limit."""


def is_plain(request: ClaimRequest, node: CandidateNode) -> bool:
    """Return whether the store's question has compared all that the ledger compares.

    It leaves NUMA cells, PCI devices and further resource classes to the
    ledger, and all amounts where the workload has a guest; and of a request
    without memory, whether a driver's overhead needs any.
    """
    return (
        not node.has_guest
        and request.numa is None
        and not request.pci_requests
        and not request.amounts.resources
        and request.amounts.memory_mb > 0
    )


def count_by_amounts(request: ClaimRequest, node: CandidateNode) -> int | None:
    """Return how many claims alike fit by what a node has free; None if more than that decides."""
    amounts = request.amounts
    is_sure = node.overhead_mb is not None and is_plain(request, node)
    if not is_sure or request.limits or amounts.pcpus:
        return None
    charge = charge_of_claim(amounts, request.workload.kind, node.overhead_mb or 0)
    return min(node.free[name] // charge[name] for name in PARTS if charge[name])


def may_be_destination(request: ClaimRequest, source: Claim | None, node_id: int) -> bool:
    """Return whether a node may be the destination of a move, whatever is free there.

    Args:
        source: of the move, None if it is unknown or the request is for no move.
    """
    if request.migration is None or source is None:
        return True
    return not list_dest_refusals(request.migration, source, node_id)


def as_new(request: ClaimRequest) -> ClaimRequest:
    """Return a request of which it does not matter whether it was granted before."""
    return replace(request, has_new_uuid=True)


def order_subset(subset: Iterable[CandidateNode], request: ClaimRequest) -> list[CandidateNode]:
    """Return the best candidates in an order that depends on the request.

    The same request always has the same order; requests with other uuids have
    others, so that they ask different nodes first.
    """
    hash_of = hash_nodes(request.uuid)
    return sorted(subset, key=lambda candidate: hash_of(candidate.id))


def _by_weight(node: CandidateNode) -> tuple[float, str, str]:
    return -node.weight, node.host, node.nodename


class CandidateFinder:
    """Finds nodes for requests; keeps nothing between them.

    Args:
        settings: weights, and the numbers of nodes among which a claim chooses.
    """

    def __init__(
        self,
        store: SchedulerStore,
        policy: AdmissionPolicy,
        settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._policy = policy
        self._settings = settings
        self._monotonic = monotonic

    def select(
        self, request: ClaimRequest, limit: int | None = 20, of_all: bool = False
    ) -> list[CandidateNode]:
        """Return the first candidates of a request, as `select_page`."""
        return self.select_page(request, limit, of_all)[0]

    def select_page(
        self,
        request: ClaimRequest,
        limit: int | None,
        of_all: bool = False,
        after: CandidatePosition | None = None,
    ) -> tuple[list[CandidateNode], CandidatePosition | None]:
        """Return candidates of a request, the best first, and where the next ones begin.

        Equal weights are ordered by host and nodename. The source of a move is none
        of its candidates if the workload has to leave it, and the only one if it has to stay.

        Args:
            request: its host and nodename, if set, restrict the nodes.
            limit: maximum number of candidates; None = all.
            of_all: weigh all nodes and return the best of them; False = as claims do, the best
                of the first part, or of `limit` nodes, then of the next.
            after: where the candidates before these ended; lists that go on from there have
                each node once.

        Returns:
            The second is None after the last candidates.
        """
        if after is not None:
            request = replace(request, uuid=after.request_uuid)
        request, source = self._complete(as_new(request))
        order = CandidateOrder.NAMED if of_all else CandidateOrder.SPREAD
        start, taken = (after.after, after.taken) if after else (None, 0)
        found: list[CandidateNode] = []
        for page in self._find_parts(request, order, limit or PAGE_SIZE, start):
            part = page.nodes if of_all else sorted(page.nodes, key=_by_weight)
            listed = 0
            for node in self._list_accepting(request, part, limit or PAGE_SIZE):
                if may_be_destination(request, source, node.id):
                    listed += 1
                    if listed > taken:
                        found.append(node)
                if len(found) == limit:
                    is_end = node is part[-1] and page.next is None
                    position = CandidatePosition(request.uuid, start, listed)
                    return found, None if is_end else position
            start, taken = page.next, 0
        return found, None

    def explain(self, request: ClaimRequest) -> Exclusions:
        """Return how many nodes each check excludes, and the nearest one with what it lacks."""
        return self._store.count_exclusions(self._complete(request)[0], self._policy)

    def count(self, request: ClaimRequest, first: Collection[CandidateNode] = ()) -> RoomCount:
        """Return how many more claims like this one fit on the nodes of the fleet.

        Where amounts alone decide they are divided; otherwise the ledger's rule grants one after
        the other on copies, at most `MAX_COUNTED` and for `COUNT_SECONDS`.

        Args:
            first: nodes that are counted before others.

        Raises:
            RequestError: the claim would hold nothing.
        """
        require_amounts(request)
        request, source = self._complete(as_new(request))
        request = replace(request, workload=replace(request.workload, uuid=str(uuid4())))
        preferred = {node.id for node in first}
        pages = self._find_parts(request, CandidateOrder.SPREAD, ALL)
        nodes = [
            node
            for page in pages
            for node in page.nodes
            if may_be_destination(request, source, node.id)
        ]
        counts = {node.id: count_by_amounts(request, node) for node in nodes}
        known = {node_id: count for node_id, count in counts.items() if count is not None}
        unsure = sorted(counts.keys() - known.keys(), key=lambda node_id: node_id not in preferred)
        granted, is_cut = self._count_granted(replace(request, migration=None), unsure)
        return RoomCount(known | granted, is_cut)

    def _count_granted(
        self, request: ClaimRequest, node_ids: Sequence[int]
    ) -> tuple[dict[int, int], bool]:
        """Return how many claims the rule grants on each node, and whether it was stopped."""
        end, left = self._monotonic() + COUNT_SECONDS, MAX_COUNTED
        counts: dict[int, int] = {}
        for start in range(0, len(node_ids), LATER_PART):
            part = node_ids[start : start + LATER_PART]
            for node in self._store.load_ledger_nodes(part, [request]):
                counts[node.id] = 0
                for _ in grant_alike(request, share_node(node), self._policy):
                    counts[node.id] += 1
                    left -= 1
                    if not left or self._monotonic() > end:
                        return counts, True
                if self._monotonic() > end:
                    return counts, True
        return counts, False

    def _find_candidates(self, request: ClaimRequest, wanted: int = 1) -> Iterator[CandidateNode]:
        """Yield the candidates in the order in which the request asks them, read part by part.

        None for a request that may be a repeated one, if a claim has its uuid.

        Args:
            wanted: how many are asked if none refuses.
        """
        subset_size = self._settings.host_subset_size
        for page in self._find_parts(request, CandidateOrder.SPREAD, subset_size):
            accepting = self._list_accepting(request, page.nodes, max(wanted, subset_size))
            subset = list(itertools.islice(accepting, subset_size))
            yield from order_subset(subset, request)
            yield from accepting
            subset_size = max(0, subset_size - len(subset))

    def _find_parts(
        self,
        request: ClaimRequest,
        order: CandidateOrder,
        wanted: int,
        after: CandidateCursor | None = None,
    ) -> Iterator[CandidatePage]:
        """Yield all candidates, at least as many as wanted at a time."""
        settings = self._settings
        policy = CandidatePolicy(self._policy.service_down_time, settings.multipliers, order)
        size = wanted if order is CandidateOrder.NAMED else max(settings.nodes_to_weigh, wanted)
        is_named = request.host is not None or request.nodename is not None
        if order is CandidateOrder.SPREAD and (is_named or not settings.nodes_to_weigh):
            size = ALL
        while True:
            size = size if after is None else max(size, LATER_PART)
            page = self._store.find_candidates(request, policy, size, after)
            yield page
            if page.next is None:
                return
            after = page.next

    def _list_accepting(
        self, request: ClaimRequest, part: Sequence[CandidateNode], wanted: int
    ) -> Iterator[CandidateNode]:
        """Yield the nodes that accept a claim; those in doubt are evaluated, some at a time.

        Args:
            wanted: how many are evaluated first; then twice as many each time.
        """
        first, size = 0, wanted
        while first < len(part):
            size = min(size, EVALUATED)
            nodes = part[first : first + size]
            unsure = [node.id for node in nodes if not is_plain(request, node)]
            left = {
                locked.id: list_left(request, locked, found)
                for locked, found in self._evaluate(request, unsure)
                if not found.refusals
            }
            refusing = set(unsure) - left.keys()
            for node in nodes:
                if node.id not in refusing:
                    yield replace(node, left=left[node.id]) if left.get(node.id) else node
            first, size = first + size, 2 * size

    def evaluate(self, request: ClaimRequest, node_ids: Sequence[int]) -> dict[int, Admission]:
        """Evaluate a claim on nodes as candidates, by at most four statements for all.

        Deleted nodes are left out.
        """
        return {node.id: found for node, found in self._evaluate(request, node_ids)}

    def _evaluate(
        self, request: ClaimRequest, node_ids: Sequence[int]
    ) -> Iterator[tuple[LockedNode, Admission]]:
        for node in self._store.load_ledger_nodes(node_ids, [request]) if node_ids else ():
            locked = assume_locked(node, request.workload.uuid)
            yield locked, evaluate_candidate(request, locked, self._policy)

    def _complete(self, request: ClaimRequest) -> tuple[ClaimRequest, Claim | None]:
        """Return a request as the ledger will evaluate it, and the claim that a move leaves.

        The claim is None if it does not exist or the request is for no move.
        """
        if request.migration is not None:
            for source in self._store.list_claims(uuid=request.migration.source_claim):
                return complete_move(request, source), source
        return request, None


def evaluate_named(
    reader: FleetReader, finder: CandidateFinder, request: ClaimRequest, name: str
) -> list[tuple[str, str, Admission]]:
    """Evaluate a claim on the nodes of a host, on those with a name, or on ``HOST/NODENAME``.

    Returns:
        At most `EVALUATED` nodes, each with its host, name and answer.
    """
    host, _, nodename = name.partition("/")
    queries = [FleetQuery(limit=EVALUATED, host=name), FleetQuery(limit=EVALUATED, nodename=name)]
    if nodename:
        queries.append(FleetQuery(limit=EVALUATED, host=host, nodename=nodename))
    pages = (reader.list_fleet(query).items for query in queries)
    nodes = [found.node for found in next(filter(None, pages), ())]
    answers = finder.evaluate(request, [node.id for node in nodes])
    return [(node.host, node.nodename, answers[node.id]) for node in nodes if node.id in answers]
