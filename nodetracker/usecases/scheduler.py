"""Place claims and moves: on the node that is named, or on the best candidate, then the next one.

Command line, REST and agents request claims here. The ledger decides, so schedulers need
not know of each other.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import (
    repeat_grant,
    require_active,
    require_amounts,
    require_no_move,
)
from nodetracker.accounting.ledger.exclusions import RefusedNode, leave_out, refuse
from nodetracker.accounting.ledger.migrations import move_of, require_open
from nodetracker.accounting.ledger.packing import kind_of
from nodetracker.model.candidate import CandidateNode
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
    StoreUnavailableError,
)
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.time_limit import find_limit
from nodetracker.usecases.candidates import CandidateFinder, as_new
from nodetracker.usecases.reads import find_node

T = TypeVar("T")

CLAIMS_AT_ONCE = 50
"""Claims of one transaction."""

CONTENDED_SECONDS = 20.0
"""How long a list is tried after others were first for the first time, if no request limits it."""
_PAUSE_SECONDS = 0.1


def _kind_of(request: ClaimRequest, with_guest: Collection[str]) -> Hashable:
    """Return what requests have in common which are alike but for uuids and names.

    Args:
        with_guest: workloads whose guest is charged already, of which a node may accept a claim
            that it refuses of others.
    """
    uuid = request.workload.uuid if request.workload.uuid in with_guest else ""
    return kind_of(request), request.host, request.nodename, request.migration, uuid


def _answer_again(claim: Claim, request: ClaimRequest) -> Claim | NodetrackerError:
    """Return what a request gets that has the uuid of a claim, as the ledger would answer it."""
    try:
        return require_active(repeat_grant(claim, request))
    except NodetrackerError as error:
        return error


class _Contention:
    """How long the requests of one list are tried while others write the same rows.

    Attributes:
        error: the last one, None before the first.
    """

    def __init__(self) -> None:
        self.error: StoreUnavailableError | None = None
        self._deadline = math.inf

    def note(self, error: StoreUnavailableError) -> None:
        """Note an error that says so, and wait a moment, of which each of the others has another.

        Raises:
            StoreUnavailableError: it says something else.
        """
        if not error.is_contended:
            raise error
        if self.error is None:
            self._deadline = time.monotonic() + find_limit().seconds_to_retry(CONTENDED_SECONDS)
        self.error = error
        time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - no secret

    @property
    def is_over(self) -> bool:
        """Whether nothing more is tried."""
        return time.monotonic() >= self._deadline


class Scheduler(CandidateFinder):
    """Claims resources on the nodes that it finds."""

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

        def find() -> Claim | None:
            require_no_move(request)  # as the ledger would, if a node had been asked
            claims = self._store.find_claims([request.uuid])
            return next((repeat_grant(claim, request) for claim in claims), None)

        place = self._find_place(request)
        return require_active(self._ask_each(request, place, self._store.create_claim, find))

    def create_claims(self, requests: Sequence[ClaimRequest]) -> list[Claim | NodetrackerError]:
        """Do for each request what `create_claim` does; return its claim or error, in their order.

        Those that were granted before are found first, all by one statement. Requests alike, but
        for their uuids and names, share a search, and are spread over the nodes that it finds;
        up to `CLAIMS_AT_ONCE` are one transaction, and half as many where others write the same
        rows at each try. Where one is refused, those alike are refused for the same reasons.

        Args:
            requests: with a uuid each of their own.

        Raises:
            StoreUnavailableError: the database did not answer; some may have been granted.
        """
        answers = self._find_granted(requests)
        waiting = [request for request in requests if request.uuid not in answers]
        kinds = self._list_kinds(waiting)
        placed = self._spread(waiting, kinds)
        contention = _Contention()
        for start in range(0, len(placed), CLAIMS_AT_ONCE):
            part = placed[start : start + CLAIMS_AT_ONCE]
            answers |= {
                claim.uuid: claim
                for claim in self._create_part(part, contention)
                if claim.is_active
            }
        refused: dict[Hashable, ClaimRefusedError] = {}
        for request in waiting:
            if request.uuid not in answers:
                kind = kinds[request.uuid]
                answers[request.uuid] = self._create_singly(request, kind, refused, contention)
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

    def _list_kinds(self, requests: Sequence[ClaimRequest]) -> dict[str, Hashable]:
        """Return a request's uuid -> its kind, which those alike have in common."""
        workloads = {request.workload.uuid for request in requests}
        with_guest = self._store.find_guests(workloads) if len(requests) > 1 else ()
        return {request.uuid: _kind_of(request, with_guest) for request in requests}

    def _spread(
        self, requests: Sequence[ClaimRequest], kinds: Mapping[str, Hashable]
    ) -> list[PlacedRequest]:
        """Return the requests for which there are nodes, each with one of these.

        Args:
            kinds: from `_list_kinds`.
        """
        alike: dict[Hashable, list[ClaimRequest]] = {}
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
            place = self._find_place(request)
        except (NotFoundError, RefusedError):  # which `create_claim` raises as well
            return []
        if place is not None:
            return [place]
        candidates = itertools.islice(self._find_candidates(as_new(request), count), count)
        return [(candidate.host, candidate.nodename) for candidate in candidates]

    def _create_part(self, placed: Sequence[PlacedRequest], contention: _Contention) -> list[Claim]:
        """Return the claims that are granted of requests for some nodes.

        Servers of a cluster that are all written through find out at the commit who was first.
        The fewer rows a transaction writes, the likelier it is that it is.
        """
        if contention.is_over:
            return []
        try:
            return list(filter(None, self._store.create_claims(placed, self._policy)))
        except StoreUnavailableError as error:
            contention.note(error)
        if len(placed) == 1:
            return []
        middle = len(placed) // 2
        halves = placed[:middle], placed[middle:]
        return [claim for half in halves for claim in self._create_part(half, contention)]

    def _create_singly(
        self,
        request: ClaimRequest,
        kind: Hashable,
        refused: dict[Hashable, ClaimRefusedError],
        contention: _Contention,
    ) -> Claim | NodetrackerError:
        """Create a claim, unless one alike was refused.

        Args:
            refused: errors by kind; gets this request's.
        """
        if kind in refused:
            return refused[kind]
        if contention.error is not None and contention.is_over:
            return contention.error
        try:
            return self.create_claim(request)
        except ClaimRefusedError as error:
            return refused.setdefault(kind, error)
        except StoreUnavailableError as error:
            contention.note(error)
            return error
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

    def create_migrations(
        self, requests: Sequence[ClaimRequest]
    ) -> list[Migration | NodetrackerError]:
        """Do for each request what `create_migration` does, one after the other.

        Returns:
            The migration or error of each, in their order.

        Raises:
            StoreUnavailableError: the database did not answer; some may have been granted.
        """
        contention = _Contention()
        return [self._try_migration(request, contention) for request in requests]

    def _try_migration(
        self, request: ClaimRequest, contention: _Contention
    ) -> Migration | NodetrackerError:
        if contention.error is not None and contention.is_over:
            return contention.error
        try:
            return self.create_migration(request)
        except StoreUnavailableError as error:
            contention.note(error)
            return error
        except NodetrackerError as error:
            return error

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
        return self._ask_each(as_new(request), None, ask, lambda: None)

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
        busy: list[CandidateNode] = []
        found = ((candidate, True) for candidate in self._find_candidates(request))
        for node, skip_locked in itertools.chain(found, ((node, False) for node in busy)):
            try:
                return create(request, node.host, node.nodename, self._policy, skip_locked)
            except NodeBusyError:  # only where locks are skipped
                busy.append(node)
            except MoveSourceError:
                raise
            except ClaimRefusedError as error:
                refused.append((node, error))
        existing = find()
        if existing is None:
            raise self._refuse(request, refused)
        return existing

    def _refuse(self, request: ClaimRequest, refused: Sequence[RefusedNode]) -> ClaimRefusedError:
        """Return the error of a request that no node accepts; `refused` are not among the others.

        Raises:
            RequestError: as the ledger, if a node had been asked.
        """
        require_amounts(request)
        evaluated = self.evaluate(request, [candidate.id for candidate, _ in refused])
        failed = [{refusal.check for refusal in found.refusals} for found in evaluated.values()]
        return refuse(request, leave_out(self.explain(request), failed), refused)

    def _move_to_claim(self, request: ClaimRequest, uuid: str) -> Migration | None:
        """Request a move to the node of a claim, None when the claim does not exist."""
        for claim in self._store.list_claims(uuid=uuid):
            return self._store.create_migration(request, claim.host, claim.nodename, self._policy)
        return None
