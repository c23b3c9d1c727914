"""Explain why no node accepts a claim."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.exclusions import (
    Exclusions,
    render_exclusions,
    render_nearest,
)
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import ClaimRefusedError

RefusedNode = tuple[CandidateNode, Sequence[str]]
"""A candidate that was asked, and the ledger's reasons to refuse the claim."""


def leave_out(exclusions: Exclusions, failed: Iterable[Collection[AdmissionCheck]]) -> Exclusions:
    """Return exclusions without those of some nodes, which still count as nodes.

    Args:
        failed: the checks that each of these nodes fails.

    >>> exclusions = Exclusions(3, {AdmissionCheck.CPU: 2, AdmissionCheck.UP: 1})
    >>> dict(leave_out(exclusions, [{AdmissionCheck.CPU}]).counts)
    {<AdmissionCheck.CPU: 'cpu'>: 1, <AdmissionCheck.UP: 'up'>: 1}
    """
    left_out = Counter(check for checks in failed for check in checks)
    return replace(exclusions, counts=Counter(exclusions.counts) - left_out)


def refuse(
    request: ClaimRequest,
    others: Exclusions,
    refused: Sequence[RefusedNode] = (),
) -> ClaimRefusedError:
    """Return the error to raise when no node accepts a claim; its last reason is the nearest node.

    Args:
        others: why other nodes are no candidates.
        refused: the candidates that were asked.
    """
    explanation = render_exclusions(others, request)
    nearest = others.nearest
    checks = () if nearest is None else nearest.checks
    asked = {(candidate.host, candidate.nodename) for candidate, _ in refused}
    last = (
        []
        if nearest is None or (nearest.host, nearest.nodename) in asked
        else [render_nearest(nearest)]
    )
    if not refused:
        why = explanation or "a node that accepts it has appeared since; try again"
        return ClaimRefusedError([f"no candidate: {why}", *last], checks)
    reasons = [
        f"{candidate.host}/{candidate.nodename}: {reason}"
        for candidate, of_node in refused
        for reason in of_node
    ]
    reasons += [f"others: {explanation}"] if explanation else []
    return ClaimRefusedError([*reasons, *last], checks)
