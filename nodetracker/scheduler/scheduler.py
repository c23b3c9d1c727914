"""Place claims without a host: try the best candidate, then the next one.

The ledger decides. The cache only determines the order of attempts, so
schedulers need not know of each other.
"""

from collections.abc import Callable
from typing import TypeVar

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.grants import find_existing_grant, require_amounts
from nodetracker.accounting.ledger.moves import move_of
from nodetracker.errors import ClaimRefusedError, NotFoundError
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.migration import SAME_NODE_REQUIRED, Migration
from nodetracker.ports import AdmissionPolicy, SchedulerStore
from nodetracker.scheduler.host_manager import HostManager
from nodetracker.scheduler.selection import (
    Candidate,
    Selection,
    order_subset,
    select_candidates,
)
from nodetracker.settings import SchedulerSettings

T = TypeVar("T")


class Scheduler:
    """Finds nodes for requests and claims resources there.

    Args:
        manager: its fleet is used as it is; the caller decides when to refresh it.
        settings: weights, and the number of candidates among which a claim chooses.
    """

    def __init__(
        self,
        store: SchedulerStore,
        manager: HostManager,
        policy: AdmissionPolicy,
        settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008
    ) -> None:
        self._store = store
        self._manager = manager
        self._policy = policy
        self._settings = settings

    def select(self, request: ClaimRequest) -> Selection:
        """Return the candidates of a request, the best first."""
        multipliers = self._settings.multipliers
        return select_candidates(self._manager.fleet, request, self._policy, multipliers)

    def create_claim(self, request: ClaimRequest) -> Claim:
        """Claim on the best candidate that grants it; the same request returns the same claim.

        Raises:
            ClaimRefusedError: no candidate exists, or all refused; every
                reason is named with its node.
            ClaimConflictError: another request has its uuid.
            RequestError: the claim would hold nothing.
        """
        require_amounts(request)
        known = find_existing_grant(self._store.list_claims(uuid=request.uuid), request)
        if known is not None:
            return known
        claim = self._ask_each(
            request,
            lambda c: self._store.create_claim(request, c.host, c.nodename, self._policy),
        )
        self._manager.consume(claim)
        return claim

    def create_migration(self, request: ClaimRequest) -> Migration:
        """Claim a move's destination on the best candidate that grants it.

        A move that stays on its node tries only that node. The same request
        returns the same migration.

        Raises:
            ClaimRefusedError: as `create_claim`.
            ClaimConflictError: as `create_claim`.
            RequestError: the request has no ``migration``, or the claim would hold nothing.
        """
        wanted = move_of(request)
        require_amounts(request)
        place = self._find_claim(request.uuid)
        if place is None and wanted.migration_type in SAME_NODE_REQUIRED:
            place = self._find_claim(wanted.source_claim)
            if place is None:
                raise ClaimRefusedError([f"no such claim: {wanted.source_claim}"])
        if place is not None:
            return self._store.create_migration(request, place.host, place.nodename, self._policy)
        return self._ask_each(
            request,
            lambda c: self._store.create_migration(request, c.host, c.nodename, self._policy),
        )

    def _find_claim(self, uuid: str) -> Claim | None:
        return next(iter(self._store.list_claims(uuid=uuid)), None)

    def try_claim(self, request: ClaimRequest) -> tuple[Candidate, Admission]:
        """Return the best candidate that would grant it, with its admission; write nothing.

        Raises:
            ClaimRefusedError: as `create_claim`.
        """

        def ask(candidate: Candidate) -> tuple[Candidate, Admission]:
            host, nodename = candidate.host, candidate.nodename
            try:
                answer = self._store.try_claim(request, host, nodename, self._policy)
            except NotFoundError as error:
                raise ClaimRefusedError([str(error)]) from None
            if answer.reasons:
                raise ClaimRefusedError(answer.reasons)
            return candidate, answer

        return self._ask_each(request, ask)

    def _ask_each(self, request: ClaimRequest, ask: Callable[[Candidate], T]) -> T:
        selection = self.select(request)
        reasons = []
        size = self._settings.host_subset_size
        for candidate in order_subset(selection.candidates, request, size):
            try:
                return ask(candidate)
            except ClaimRefusedError as error:
                place = f"{candidate.host}/{candidate.nodename}"
                reasons += [f"{place}: {reason}" for reason in error.reasons]
        if not reasons:
            raise no_candidate(selection)
        others = [f"others: {selection.against}"] if selection.against else []
        raise ClaimRefusedError([*reasons, *others])


def no_candidate(selection: Selection) -> ClaimRefusedError:
    """Return the error to raise when no node would accept a claim."""
    return ClaimRefusedError([f"no candidate: {selection.against}"])
