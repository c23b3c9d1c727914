"""Filter nodes by the ledger's own checks, and count the nodes that each check excludes.

The filters are the members of `AdmissionCheck`, so the ledger grants what passes
here, and a new check of the ledger is a filter without further code.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy
from nodetracker.scheduler.host_state import HostState


@dataclass(frozen=True, slots=True)
class Filtered:
    """Result of filtering.

    Attributes:
        passed: nodes that would accept the claim.
        dropped: filter -> number of nodes that it excludes; a node that fails
            several filters is counted by each.
        total: number of nodes that were evaluated.
    """

    passed: tuple[HostState, ...]
    dropped: Mapping[AdmissionCheck, int]
    total: int

    def explain(self) -> str:
        """Return why nodes did not pass, "" when all did.

        >>> Filtered((), {AdmissionCheck.CPU: 3, AdmissionCheck.UP: 1}, 5).explain()
        'up: 1 of 5 nodes, cpu: 3 of 5 nodes'
        """
        return ", ".join(
            f"{check}: {self.dropped[check]} of {self.total} nodes"
            for check in AdmissionCheck
            if self.dropped.get(check)
        )


def filter_states(
    states: Iterable[HostState], request: ClaimRequest, now: datetime, policy: AdmissionPolicy
) -> Filtered:
    """Evaluate every node by the ledger's checks.

    Args:
        now: the database's time.
    """
    passed = []
    dropped: Counter[AdmissionCheck] = Counter()
    total = 0
    for state in states:
        total += 1
        refusals = state.evaluate(request, now, policy).refusals
        dropped.update({refusal.check for refusal in refusals})
        if not refusals:
            passed.append(state)
    return Filtered(tuple(passed), dropped, total)
