"""Explain why nodes are not candidates, or refused: counts by check, and the nearest node."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest

from nodetracker.accounting.ledger.admission import (
    AMOUNT_CHECKS,
    Admission,
    AdmissionCheck,
    render_reason,
)
from nodetracker.accounting.pci.admission import RequestFinding
from nodetracker.model.amounts import Missing, ReasonParts, ResourceVerdict
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.text import count_noun
from nodetracker.model.units import MIB_PER_GIB, MILLI

MAX_EVALUATED = 1000
"""Most nodes that are evaluated to explain a refusal."""

FURTHER = 4

_PARTS = MILLI * MIB_PER_GIB
"""Any amount is a whole number of such parts of its unit: differences of them are exact."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A node that refuses a claim.

    Attributes:
        checks: those that it fails, in the order of `AdmissionCheck`.
        shortage: sum over these of the missing shares of what is requested, which are at most 1
            of further classes and PCI devices, 2 where a node has none at all, and 1 for any
            other check.
        missing: resource class -> amount by which too little is free or the
            claim is larger than the node, in the class's unit.
        reasons, parts: every reason, as the ledger reports it, and its parts.
    """

    host: str
    nodename: str
    checks: tuple[AdmissionCheck, ...]
    shortage: float
    missing: Mapping[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    parts: tuple[ReasonParts, ...] = ()

    @property
    def rank(self) -> tuple[int, float, str, str]:
        """Order of nodes, the nearest first: fewest failed checks, then the least shortage."""
        return len(self.checks), self.shortage, self.host, self.nodename


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Reasons why nodes that a request may name are not candidates.

    Attributes:
        total: number of these nodes.
        counts: check -> number of nodes that it excludes; a node that fails
            several checks is counted by each.
        too_large: check -> number of those nodes that have enough free, but accept no claim
            of so much.
        lower_bounds: the checks that were not evaluated on all nodes.
        nearest: of the excluded nodes that were evaluated, that with the fewest failed
            checks, then the least shortage; equal ones by host and nodename. None without any.
        further: the `FURTHER` nearest ones after it, as far as they were evaluated.
    """

    total: int
    counts: Mapping[AdmissionCheck, int] = field(default_factory=dict)
    lower_bounds: frozenset[AdmissionCheck] = frozenset()
    nearest: NearMiss | None = None
    further: tuple[NearMiss, ...] = field(default=(), compare=False)
    too_large: Mapping[AdmissionCheck, int] = field(default_factory=dict, compare=False)


def evaluate_miss(host: str, nodename: str, admission: Admission) -> NearMiss | None:
    """Return what a node lacks for a claim, None when it would accept the claim."""
    if not admission.refusals:
        return None
    lacking = {
        verdict.resource: (_missing_of(verdict), _count_parts(verdict.requested))
        for verdict in admission.verdicts
        if not verdict.fits
    }
    shares = {
        AMOUNT_CHECKS[resource]: parts / requested
        for resource, (parts, requested) in lacking.items()
        if resource in AMOUNT_CHECKS
    }
    shares[AdmissionCheck.CLASSES] = sum(
        min(1.0, parts / requested)
        for resource, (parts, requested) in lacking.items()
        if resource not in AMOUNT_CHECKS
    ) + sum(
        _NONE_AT_ALL
        for refusal in admission.refusals
        if refusal.check is AdmissionCheck.CLASSES and not refusal.parts
    )
    if admission.pci is not None:
        shares[AdmissionCheck.PCI] = sum(map(_missing_share, admission.pci.findings)) or 1.0
    checks = admission.checks
    shortage = sum(shares.get(check, 1.0) for check in checks)
    missing = {resource: parts / _PARTS for resource, (parts, _) in lacking.items()}
    reasons = admission.reasons, admission.parts
    return NearMiss(host, nodename, checks, shortage, missing, *reasons)


_NONE_AT_ALL = 2.0


def _missing_share(finding: RequestFinding) -> float:
    if not finding.pools:
        return _NONE_AT_ALL
    count = finding.request.count
    return max(0, count - finding.usable) / count


def count_misses(misses: Collection[NearMiss | None]) -> Exclusions:
    """Count evaluated nodes; those that would accept the claim are None."""
    refusing = [miss for miss in misses if miss is not None]
    counts = Counter(check for miss in refusing for check in miss.checks)
    too_large = Counter(check for miss in refusing for check in _list_too_large(miss))
    nearest, *further = [*nsmallest(1 + FURTHER, refusing, lambda miss: miss.rank), None]
    found = Exclusions(len(misses), counts, frozenset(), nearest, tuple(filter(None, further)))
    return replace(found, too_large=too_large)


def _list_too_large(miss: NearMiss) -> set[AdmissionCheck]:
    """Return the checks that fail by the size of the claim alone."""
    found: dict[AdmissionCheck, list[bool]] = {}
    for parts in miss.parts:
        for verdict in parts:
            if isinstance(verdict, ResourceVerdict):
                check = AMOUNT_CHECKS.get(verdict.resource, AdmissionCheck.CLASSES)
                found.setdefault(check, []).append(verdict.is_free)
    return {check for check, free in found.items() if all(free)}


def render_exclusions(exclusions: Exclusions, request: ClaimRequest) -> str:
    """Return why nodes are excluded as text, "" when none is.

    >>> from nodetracker.model.amounts import Amounts
    >>> from nodetracker.model.claim import Workload
    >>> request = ClaimRequest("u", Workload("w"), Amounts(), "", host="h1")
    >>> render_exclusions(Exclusions(0), request)
    'no node exists on host h1'
    >>> counts = {AdmissionCheck.NUMA: 3, AdmissionCheck.UP: 1}
    >>> render_exclusions(Exclusions(5, counts, frozenset({AdmissionCheck.NUMA})), request)
    'up: 1 of 5 nodes, numa: at least 3 of 5 nodes'
    """
    if exclusions.total == 0:
        names = [("on host", request.host), ("named", request.nodename)]
        place = "".join(f" {word} {name}" for word, name in names if name is not None)
        return f"no node exists{place}"
    return ", ".join(
        f"{check}: {'at least ' if check in exclusions.lower_bounds else ''}"
        f"{exclusions.counts[check]} of {count_noun(exclusions.total, 'node')}"
        for check in AdmissionCheck
        if exclusions.counts.get(check)
    )


def explain_nearest(miss: NearMiss) -> ReasonParts:
    """Return what the nearest node lacks: the amounts, or every reason if there are others.

    >>> checks = (AdmissionCheck.CPU,)
    >>> explain_nearest(NearMiss("h7", "n1", checks, 0.5, {"VCPU": 2.0}, ("Free vcpu ...",)))
    ('nearest: h7/n1 lacks ', Missing(resource='VCPU', amount=2.0))
    >>> explain_nearest(NearMiss("h7", "n1", (AdmissionCheck.UP,), 1.0, {}, ("host h7 is down",)))
    ('nearest: h7/n1: ', 'host h7 is down')
    """
    place = f"nearest: {miss.host}/{miss.nodename}"
    if not miss.missing or len(miss.missing) != len(miss.reasons):
        return (f"{place}: ", *_join(list_parts(miss)))
    return (f"{place} lacks ", *_join([(Missing(*item),) for item in miss.missing.items()]))


def _join(each: Iterable[ReasonParts]) -> list[str | ResourceVerdict | Missing]:
    """Return parts with commas between those of each reason."""
    return [part for parts in each for part in (", ", *parts)][1:]


def list_parts(refused: Admission | NearMiss | ClaimRefusedError) -> list[ReasonParts]:
    """Return the parts of each reason, the sentence where an older process has sent no more."""
    known = itertools.chain(refused.parts, itertools.repeat(()))
    return [parts or (reason,) for reason, parts in zip(refused.reasons, known, strict=False)]


RefusedNode = tuple[CandidateNode, ClaimRefusedError]
"""A candidate that was asked, and the ledger's refusal."""


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
        others: why other nodes are not candidates.
        refused: the candidates that were asked.
    """
    explanation = render_exclusions(others, request)
    nearest = others.nearest
    checks = () if nearest is None else nearest.checks
    asked = {(candidate.host, candidate.nodename) for candidate, _ in refused}
    parts: list[ReasonParts] = [
        (f"{candidate.host}/{candidate.nodename}: ", *of_reason)
        for candidate, error in refused
        for of_reason in list_parts(error)
    ]
    if not refused:
        why = explanation or "a node that accepts it has appeared since; try again"
        parts.append((f"no candidate: {why}",))
    elif explanation:
        parts.append((f"others: {explanation}",))
    if nearest is not None and (nearest.host, nearest.nodename) not in asked:
        parts.append(explain_nearest(nearest))
    return ClaimRefusedError(list(map(render_reason, parts)), checks, parts)


def _missing_of(verdict: ResourceVerdict) -> int:
    """Return how many parts are missing, by what is free or by the size of the node."""
    requested, excess = _count_parts(verdict.requested), _count_parts(verdict.excess or 0)
    return excess if verdict.free is None else max(requested - _count_parts(verdict.free), excess)


def _count_parts(amount: float) -> int:
    return round(amount * _PARTS)
