"""Place claims and moves: on the node that is named, or on the best candidate, then the next one.

Command line, REST and agents request claims here. The ledger decides, so schedulers need
not know of each other.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.candidates import hash_nodes
from nodetracker.accounting.ledger.claims import (
    evaluate_claim,
    list_left,
    repeat_grant,
    require_active,
    require_amounts,
    require_no_move,
)
from nodetracker.accounting.ledger.exclusions import Exclusions, RefusedNode, leave_out, refuse
from nodetracker.accounting.ledger.migrations import (
    complete_move,
    list_dest_refusals,
    move_of,
    require_open,
)
from nodetracker.accounting.ledger.transaction import LockedNode, assume_locked
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
    CandidatePosition,
)
from nodetracker.model.claim import (
    SAME_NODE_REQUIRED,
    Claim,
    ClaimRequest,
    Migration,
    PlacedRequest,
)
from nodetracker.model.errors import (
    ClaimRefusedError,
    MoveSourceError,
    NodeBusyError,
    NodetrackerError,
    NotFoundError,
    RefusedError,
    RequestError,
    StoreUnavailableError,
)
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.settings import SchedulerSettings
from nodetracker.ports import AdmissionPolicy, CandidatePolicy, FleetReader, SchedulerStore
from nodetracker.usecases.reads import find_node


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


def may_be_destination(request: ClaimRequest, source: Claim | None, node_id: int) -> bool:
    """Return whether a node may be the destination of a move, whatever is free there.

    Args:
        source: of the move, None if it is unknown or the request is for no move.
    """
    if request.migration is None or source is None:
        return True
    return not list_dest_refusals(request.migration, source, node_id)


def _as_new(request: ClaimRequest) -> ClaimRequest:
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


def _describe_kind(request: ClaimRequest, with_guest: Collection[str]) -> str:
    """Return a text that requests have in common which are alike but for uuids and names.

    Args:
        with_guest: workloads whose guest is charged already, of which a node may accept a claim
            that it refuses of others.
    """
    uuid = request.workload.uuid if request.workload.uuid in with_guest else ""
    workload = replace(request.workload, uuid=uuid, name="", user_id="")
    alike = replace(request, uuid="", workload=workload, request_hash="", has_new_uuid=False)
    return repr(alike)


def _answer_again(claim: Claim, request: ClaimRequest) -> Claim | NodetrackerError:
    """Return what a request gets that has the uuid of a claim, as the ledger would answer it."""
    try:
        return require_active(repeat_grant(claim, request))
    except NodetrackerError as error:
        return error


T = TypeVar("T")

EVALUATED = 20
"""The most nodes that are evaluated together by the ledger's rule."""

CLAIMS_AT_ONCE = 50
"""Claims of one transaction."""

LATER_PART = 200
"""The least number of nodes of a part when none of the first part accepts the claim."""

ALL = 2**31 - 1
"""As the size of a part: all nodes."""

PAGE_SIZE = 1000
"""Candidates of a page of a list without a limit."""


class Scheduler:
    """Finds nodes for requests and claims resources there; keeps nothing between requests.

    Args:
        settings: weights, and the numbers of nodes among which a claim chooses.
    """

    def __init__(
        self,
        store: SchedulerStore,
        policy: AdmissionPolicy,
        settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008
    ) -> None:
        self._store = store
        self._policy = policy
        self._settings = settings

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
        request, source = self._complete(_as_new(request))
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

    def create_claim(self, request: ClaimRequest) -> Claim:
        """Claim on the node that the request names, or on the best candidate that grants it.

        The same request returns the same claim.

        Raises:
            NotFoundError: the request names a host without nodes.
            RefusedError: it names a host with several nodes and none of them, or its claim
                was granted before and is released.
            ClaimRefusedError: the node refused, no candidate exists, or all refused; every
                reason is named, those of candidates with their node.
            ClaimConflictError: another request has its uuid.
            RequestError: the request is for a move, or the claim would hold nothing.
        """
        require_no_move(request)  # the ledger is not asked where no candidate exists
        require_amounts(request)

        def find() -> Claim | None:
            claims = self._store.find_claims([request.uuid])
            return next((repeat_grant(claim, request) for claim in claims), None)

        place = self._find_place(request)
        return require_active(self._ask_each(request, place, self._store.create_claim, find))

    def create_claims(self, requests: Sequence[ClaimRequest]) -> list[Claim | NodetrackerError]:
        """Do for each request what `create_claim` does; return its claim or error, in their order.

        Those that were granted before are found first, all by one statement. Requests alike, but
        for their uuids and names, share a search, and are spread over the nodes that it finds;
        up to `CLAIMS_AT_ONCE` are one transaction. Where one is refused, those alike are refused
        for the same reasons.

        Args:
            requests: with a uuid each of their own.

        Raises:
            StoreUnavailableError: the database did not answer; some may have been granted.
        """
        answers = self._find_granted(requests)
        waiting = [request for request in requests if request.uuid not in answers]
        kinds = self._describe_kinds(waiting)
        placed = self._spread(waiting, kinds)
        for start in range(0, len(placed), CLAIMS_AT_ONCE):
            part = placed[start : start + CLAIMS_AT_ONCE]
            granted = filter(None, self._store.create_claims(part, self._policy))
            answers |= {claim.uuid: claim for claim in granted if claim.is_active}
        refused: dict[str, ClaimRefusedError] = {}
        for request in waiting:
            if request.uuid not in answers:
                kind = kinds[request.uuid]
                answers[request.uuid] = self._create_singly(request, kind, refused)
        if refused:  # perhaps as somebody sent the same list at the same time
            answers |= self._find_granted(
                [r for r in waiting if isinstance(answers[r.uuid], ClaimRefusedError)]
            )
        return [answers[request.uuid] for request in requests]

    def try_claims(self, requests: Sequence[ClaimRequest]) -> list[Claim | NodetrackerError]:
        """Return what `create_claims` would; each request counts those before it; keep nothing.

        Raises: as `create_claims`.
        """
        return self._store.rehearse(
            lambda store: Scheduler(store, self._policy, self._settings).create_claims(requests)
        )

    def _find_granted(
        self, requests: Sequence[ClaimRequest]
    ) -> dict[str, Claim | NodetrackerError]:
        """Return uuid -> answer, of those requests whose uuid a claim has."""
        by_uuid = {request.uuid: request for request in requests}
        found = self._store.find_claims(list(by_uuid)) if by_uuid else ()
        return {claim.uuid: _answer_again(claim, by_uuid[claim.uuid]) for claim in found}

    def _describe_kinds(self, requests: Sequence[ClaimRequest]) -> dict[str, str]:
        """Return a request's uuid -> its kind, which those alike have in common."""
        workloads = {request.workload.uuid for request in requests}
        with_guest = self._store.find_guests(workloads) if len(requests) > 1 else ()
        return {request.uuid: _describe_kind(request, with_guest) for request in requests}

    def _spread(
        self, requests: Sequence[ClaimRequest], kinds: Mapping[str, str]
    ) -> list[PlacedRequest]:
        """Return the requests for which there are nodes, each with one of these.

        Args:
            kinds: from `_describe_kinds`.
        """
        alike: dict[str, list[ClaimRequest]] = {}
        for request in requests:
            alike.setdefault(kinds[request.uuid], []).append(request)
        placed = []
        for group in alike.values():
            nodes = itertools.cycle(self._find_places(group[0], len(group)))
            placed += [
                PlacedRequest(request, *place) for request, place in zip(group, nodes, strict=False)
            ]
        return placed

    def _find_places(self, request: ClaimRequest, count: int) -> list[tuple[str, str]]:
        try:
            require_no_move(request)
            place = self._find_place(request)
        except (NotFoundError, RefusedError, RequestError):  # which `create_claim` raises as well
            return []
        if place is not None:
            return [place]
        candidates = itertools.islice(self._find_candidates(_as_new(request), count), count)
        return [(candidate.host, candidate.nodename) for candidate in candidates]

    def _create_singly(
        self, request: ClaimRequest, kind: str, refused: dict[str, ClaimRefusedError]
    ) -> Claim | NodetrackerError:
        """Create a claim, unless one alike was refused.

        Args:
            refused: errors by kind; gets this request's.
        """
        if kind in refused:
            return refused[kind]
        try:
            return self.create_claim(request)
        except ClaimRefusedError as error:
            return refused.setdefault(kind, error)
        except StoreUnavailableError:
            raise
        except NodetrackerError as error:
            return error

    def create_migration(self, request: ClaimRequest) -> Migration:
        """Claim a move's destination on the node that the request names, or as `create_claim`.

        Without a host, a move that stays on its node asks only that node. The same request
        returns the same migration.

        Raises:
            MoveSourceError: the source cannot be moved; no further candidate is asked.
            NotFoundError, ClaimRefusedError, ClaimConflictError: as `create_claim`.
            RefusedError: as `create_claim`, or it was reverted or cancelled.
            RequestError: the request has no ``migration``, or the claim would hold nothing.
        """
        wanted = move_of(request)
        require_amounts(request)

        def find() -> Migration | None:
            return self._move_to_claim(request, request.uuid)

        place = self._find_place(request)
        if place is None and wanted.migration_type in SAME_NODE_REQUIRED:
            migration = self._move_to_claim(request, wanted.source_claim) or find()
            if migration is None:
                raise MoveSourceError([f"no such claim: {wanted.source_claim}"])
        else:
            existing = None if place or request.has_new_uuid else find()
            if existing is not None:
                return require_open(existing)
            if place is None:
                request, _ = self._complete(request)
            migration = self._ask_each(request, place, self._store.create_migration, find)
        return require_open(migration)

    def try_claim(self, request: ClaimRequest) -> tuple[str, str, Admission]:
        """Return the node where `create_claim` would claim, and its admission; write nothing.

        Returns:
            Host, nodename, and the admission: of a node that the request names even if it
            would refuse the claim.

        Raises:
            NotFoundError: the request names a node that does not exist, or as `create_claim`.
            RefusedError, ClaimRefusedError: as `create_claim`, the latter of candidates only.
            RequestError: as `create_claim`.
        """
        require_no_move(request)
        require_amounts(request)

        def ask(
            request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy, _: bool
        ) -> tuple[str, str, Admission]:
            try:
                answer = self._store.try_claim(request, host, nodename, policy)
            except NotFoundError as error:
                raise ClaimRefusedError([str(error)]) from None
            if answer.reasons:
                raise ClaimRefusedError(answer.reasons, answer.checks, answer.parts)
            return host, nodename, answer

        place = self._find_place(request)
        if place is not None:
            return *place, self._store.try_claim(request, *place, self._policy)
        return self._ask_each(_as_new(request), None, ask, lambda: None)

    def _find_place(self, request: ClaimRequest) -> tuple[str, str] | None:
        """Return host and nodename of the node that a request names, None if it names no host.

        A node that is named in full is left to the ledger to find.

        Raises:
            NotFoundError: the host has no nodes.
            RefusedError: the host has several nodes and the request names none.
        """
        if request.host is None:
            return None
        if request.nodename is not None:
            return request.host, request.nodename
        node = find_node(self._store, request.host)
        return node.host, node.nodename

    def _ask_each(
        self,
        request: ClaimRequest,
        place: tuple[str, str] | None,
        create: Callable[[ClaimRequest, str, str, AdmissionPolicy, bool], T],
        find: Callable[[], T | None],
    ) -> T:
        """Return what a node grants, or the first candidate if `place` is None.

        Candidates whose row is locked are asked last.

        Args:
            create: see `LedgerStore.create_claim`.
            find: returns what the same request was granted before.
        """
        if place is not None:
            return create(request, *place, self._policy, False)
        refused: list[RefusedNode] = []
        busy = []
        for candidate in self._find_candidates(request):
            try:
                return create(request, candidate.host, candidate.nodename, self._policy, True)
            except NodeBusyError:
                busy.append(candidate)
            except MoveSourceError:
                raise
            except ClaimRefusedError as error:
                refused.append((candidate, error))
        for candidate in busy:
            try:
                return create(request, candidate.host, candidate.nodename, self._policy, False)
            except MoveSourceError:
                raise
            except ClaimRefusedError as error:
                refused.append((candidate, error))
        existing = find()
        if existing is None:
            raise self._refuse(request, refused)
        return existing

    def _refuse(self, request: ClaimRequest, refused: Sequence[RefusedNode]) -> ClaimRefusedError:
        """Return the error of a request that no node accepts; the refusing ones are no others."""
        evaluated = self.evaluate(request, [candidate.id for candidate, _ in refused])
        failed = [{refusal.check for refusal in found.refusals} for found in evaluated.values()]
        return refuse(request, leave_out(self.explain(request), failed), refused)

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
        """Evaluate a claim on nodes as the ledger would, by at most four statements for all.

        Deleted nodes are left out.
        """
        return {node.id: found for node, found in self._evaluate(request, node_ids)}

    def _evaluate(
        self, request: ClaimRequest, node_ids: Sequence[int]
    ) -> Iterator[tuple[LockedNode, Admission]]:
        for node in self._store.load_ledger_nodes(node_ids, request) if node_ids else ():
            locked = assume_locked(node, request.workload.uuid)
            yield locked, evaluate_claim(request, locked, self._policy)

    def _complete(self, request: ClaimRequest) -> tuple[ClaimRequest, Claim | None]:
        """Return a request as the ledger will evaluate it, and the claim that a move leaves.

        The claim is None if it does not exist or the request is for no move.
        """
        if request.migration is not None:
            for source in self._store.list_claims(uuid=request.migration.source_claim):
                return complete_move(request, source), source
        return request, None

    def _move_to_claim(self, request: ClaimRequest, uuid: str) -> Migration | None:
        """Request a move to the node of a claim, None when the claim does not exist."""
        for claim in self._store.list_claims(uuid=uuid):
            return self._store.create_migration(request, claim.host, claim.nodename, self._policy)
        return None


def evaluate_named(
    reader: FleetReader, scheduler: Scheduler, request: ClaimRequest, name: str
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
    answers = scheduler.evaluate(request, [node.id for node in nodes])
    return [(node.host, node.nodename, answers[node.id]) for node in nodes if node.id in answers]
