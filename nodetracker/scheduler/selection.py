"""Select candidates: the nodes that would accept a claim, the best first. Pure."""

from dataclasses import dataclass

from nodetracker.accounting.usage import Charge
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy
from nodetracker.scheduler.filters import filter_states
from nodetracker.scheduler.host_manager import Fleet
from nodetracker.scheduler.weighers import Multipliers, weigh


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
