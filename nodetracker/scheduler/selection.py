"""Select candidates: the nodes that would accept a claim, the best first. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from nodetracker.accounting.usage import Charge
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy
from nodetracker.scheduler.filters import filter_states
from nodetracker.scheduler.host_manager import Fleet
from nodetracker.scheduler.weighers import weigh
from nodetracker.settings import Multipliers


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would accept a claim.

    Attributes:
        free: free amounts within its own limits, before the claim.
    """

    host: str
    nodename: str
    weight: float
    free: Charge


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates of one request, the best first, and why other nodes are excluded.

    Attributes:
        against: filter and number of nodes, e.g. ``cpu: 3 of 5 nodes``; ""
            when every node is a candidate.
    """

    candidates: tuple[Candidate, ...]
    against: str


def select_candidates(
    fleet: Fleet, request: ClaimRequest, policy: AdmissionPolicy, multipliers: Multipliers
) -> Selection:
    """Choose and order the candidates; equal weights are ordered by host and nodename.

    Args:
        request: its host and nodename, if set, restrict the nodes.
    """
    states = [
        state
        for (host, nodename), state in sorted(fleet.states.items())
        if request.host in (None, host) and request.nodename in (None, nodename)
    ]
    if not states:
        names = [("on host", request.host), ("named", request.nodename)]
        place = "".join(f" {word} {name}" for word, name in names if name is not None)
        return Selection((), f"no node exists{place}")
    filtered = filter_states(states, request, fleet.now, policy)
    weights = weigh([state.free for state in filtered.passed], multipliers)
    candidates = [
        Candidate(*state.key, weight, state.free)
        for state, weight in zip(filtered.passed, weights, strict=True)
    ]
    ordered = sorted(candidates, key=lambda c: (-c.weight, c.host, c.nodename))
    return Selection(tuple(ordered), filtered.explain())


def order_subset(
    candidates: Sequence[Candidate], request: ClaimRequest, size: int
) -> list[Candidate]:
    """Return the candidates with the best `size` of them in an order that depends on the request.

    The same request always has the same order; requests with other uuids have
    others, so that they try different nodes first.
    """
    subset = sorted(candidates[:size], key=lambda candidate: _hash(request, candidate))
    return [*subset, *candidates[size:]]


def _hash(request: ClaimRequest, candidate: Candidate) -> bytes:
    text = "/".join((request.uuid, candidate.host, candidate.nodename))
    return hashlib.sha256(text.encode()).digest()
