"""Run ledger transactions on claims in dicts."""

from nodetracker.accounting.ledger import claims
from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import decide_abort, decide_confirm, decide_renew
from nodetracker.db.memory.locked import lock_claim, lock_node
from nodetracker.db.memory.split_brains import find_split_brains
from nodetracker.db.memory.tables import MemoryRows, Tables
from nodetracker.db.memory.writes import apply_write
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, SplitBrain
from nodetracker.model.errors import NotFoundError
from nodetracker.ports import AdmissionPolicy


class MemoryClaims(MemoryRows):
    """The part of `nodetracker.ports.Store` that stores claims."""

    def create_claim(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Claim:
        """See `Store`; no row is ever locked."""
        claims.require_no_move(request)
        claims.require_amounts(request)
        with self._writing() as tables:
            existing = find_existing_grant(tables, request)
            if existing is not None:
                return existing
            node = lock_node(tables, self._clock(), host, nodename, request.workload.uuid)
            node = claims.require_node(node, host, nodename)
            return apply_write(tables, claims.decide_grant(request, node, policy))

    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Admission:
        """See `Store`."""
        with self._reading() as tables:
            node = lock_node(tables, self._clock(), host, nodename, request.workload.uuid)
            if node is None:
                raise NotFoundError(f"no such node: {nodename} on host {host}")
            return claims.evaluate_claim(request, node, policy)

    def confirm_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            locked = lock_claim(tables, self._clock(), uuid)
            return apply_write(tables, decide_confirm(locked))

    def renew_claim(self, uuid: str, policy: AdmissionPolicy) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            locked = lock_claim(tables, self._clock(), uuid)
            return apply_write(tables, decide_renew(locked, policy.claim_timeout))

    def abort_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        with self._writing() as tables:
            locked = lock_claim(tables, self._clock(), uuid)
            return apply_write(tables, decide_abort(locked))

    def list_claims(
        self,
        host: str | None = None,
        state: ClaimState | None = None,
        uuid: str | None = None,
    ) -> list[Claim]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                claim
                for claim in sorted(tables.claims.values(), key=lambda claim: claim.created_at)
                if host in (None, claim.host)
                and state in (None, claim.state)
                and uuid in (None, claim.uuid)
            ]

    def list_split_brains(self, host: str) -> list[SplitBrain]:
        """See `Store`."""
        with self._reading() as tables:
            return find_split_brains(tables, host)


def find_existing_grant(tables: Tables, request: ClaimRequest) -> Claim | None:
    """See `find_existing_grant`."""
    known = tables.claims.get(request.uuid)
    return claims.find_existing_grant([] if known is None else [known], request)
