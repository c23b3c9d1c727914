"""Candidates: the nodes that would take a claim, the best first; pure."""

from dataclasses import dataclass

from nodetracker.accounting.usage import Charge
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy
from nodetracker.scheduler.filters import filter_states
from nodetracker.scheduler.host_manager import Fleet
from nodetracker.scheduler.weighers import Multipliers, weigh


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would take a claim.

    Attributes:
        free: what it has left by its own word, before the claim.
    """

    host: str
    nodename: str
    weight: float
    free: Charge


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates of one request, the best first, and what speaks against the other nodes.

    Attributes:
        against: filter and number of nodes, e.g. ``cpu: 3 of 5 nodes``; "" =
            there is no node that is not a candidate.
    """

    candidates: tuple[Candidate, ...]
    against: str


def select_candidates(
    fleet: Fleet, request: ClaimRequest, policy: AdmissionPolicy, multipliers: Multipliers
) -> Selection:
    """Choose and order the candidates; of equal weight, by host and nodename.

    Args:
        request: its host and nodename, where given, leave only nodes so named.
    """
    states = [
        state
        for (host, nodename), state in sorted(fleet.states.items())
        if request.host in (None, host) and request.nodename in (None, nodename)
    ]
    if not states:
        names = [("on host", request.host), ("called", request.nodename)]
        told = "".join(f" {word} {name}" for word, name in names if name is not None)
        return Selection((), f"there is no node{told}")
    filtered = filter_states(states, request, fleet.now, policy)
    weights = weigh([state.free for state in filtered.passed], multipliers)
    candidates = [
        Candidate(*state.key, weight, state.free)
        for state, weight in zip(filtered.passed, weights, strict=True)
    ]
    ordered = sorted(candidates, key=lambda c: (-c.weight, c.host, c.nodename))
    return Selection(tuple(ordered), filtered.explain())
