"""Which nodes would take a claim, and what speaks against the others.

The filters are the ledger's own checks (`accounting.admission.Check`, in the
order in which they are told), so a node that passes is one that the ledger
grants. A check that the ledger learns is a filter without a line here.
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
    """What the filters left.

    Attributes:
        passed: nodes that would take the claim.
        dropped: filter -> the nodes that it speaks against; a node that fails
            several is counted by each, as none hides another.
        total: nodes that were looked at.
    """

    passed: tuple[HostState, ...]
    dropped: Mapping[AdmissionCheck, int]
    total: int

    def explain(self) -> str:
        """Say what speaks against the nodes that did not pass; "" when all did.

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
    """Judge every node by the ledger's checks.

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
