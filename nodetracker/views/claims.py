"""Render claims, dry runs, candidates and migrations for the command line and REST."""

import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission, AdmissionCheck
from nodetracker.accounting.ledger.exclusions import Exclusions, NearMiss
from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, VCPU
from nodetracker.model.candidate import CandidateNode, ResourceLeft
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.serializer import encode, pick
from nodetracker.model.text import count_noun
from nodetracker.views.nodes import render_damage
from nodetracker.views.values import render_mib, render_plain, render_resource

_WEIGHT_DECIMALS = 6
_LACKS = {
    AdmissionCheck.SERVICE: "have no agent",
    AdmissionCheck.ENABLED: "are disabled",
    AdmissionCheck.MAINTENANCE: "are in maintenance",
    AdmissionCheck.UP: "are down or unreachable",
    AdmissionCheck.TRAITS: "lack a trait",
    AdmissionCheck.FACTS: "are not read well enough",
    AdmissionCheck.CPU: "have too few CPUs free",
    AdmissionCheck.PCPU: "have too few CPUs to pin",
    AdmissionCheck.RAM: "have too little memory free",
    AdmissionCheck.ORDINARY_RAM: "have too little memory outside huge pages free",
    AdmissionCheck.DISK: "have too little disk free",
    AdmissionCheck.CLASSES: "lack another resource",
    AdmissionCheck.NUMA: "fit no NUMA cell",
    AdmissionCheck.PCI: "lack a device",
}


_AMOUNTS = ("vcpus=amounts.vcpus", "memory_mb=amounts.memory_mb", "disk_gb=amounts.disk_gb")


def render_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list`` for one claim; REST shows `CLAIM_DETAILS`."""
    return pick(
        claim, "uuid", "workload_uuid=workload.uuid", "kind", "state", "host", "nodename",
        *_AMOUNTS, "expires_at", "reason", "pcpus=amounts.pcpus", "resources=amounts.resources",
        "devices",
    )  # fmt: skip


CLAIM_DETAILS = (
    "uuid", "workload_uuid=workload.uuid", "workload_name=workload.name", "kind", "state", "host",
    "nodename", *_AMOUNTS, "expires_at", "reason", "workload_kind=workload.kind",
    "project_id=workload.project_id", "pcpus=amounts.pcpus", "resources=amounts.resources", "numa",
    "devices", "migration_uuid", "created_at", "updated_at",
)  # fmt: skip
"""The attributes of a claim that REST shows, as `pick` has them."""


def render_claim_details(claim: Claim) -> dict[str, Any]:
    """Return a claim as REST shows it."""
    return pick(claim, *CLAIM_DETAILS) | render_damage(claim)


def render_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of ``migration list`` for one migration."""
    return {name: item for name, item in encode(migration).items() if name != "updated_at"}


_AMOUNT = r"(-?[0-9]+(?:\.[0-9]+)?)"
_TOO_LITTLE = re.compile(
    rf"Free (\S+(?: outside huge pages)?) {_AMOUNT}(| VCPU| MB| GB)"
    rf" < requested {_AMOUNT}\3(?! [VMG])"
)
_TOO_LARGE = re.compile(rf"Requested (\S+) {_AMOUNT}(| VCPU| MB| GB) > max_unit {_AMOUNT}\3")
_LACKING = re.compile(rf"{_AMOUNT} ({MEMORY}|{DISK})")
_RESOURCES = {
    "vcpu": (VCPU, "CPU"),
    "memory": (MEMORY, "memory"),
    "memory outside huge pages": (ORDINARY, "memory outside huge pages"),
    "disk": (DISK, "disk"),
}
"""Name in a ledger's reason -> resource class, and its name for people."""


def explain_reasons(reasons: Iterable[str]) -> list[dict[str, Any]]:
    """Return for each reason of a refusal its text for people, and its amounts as numbers.

    Reasons are sentences of Nova's, an interface: agents and conductors send nothing else.

    >>> explain_reasons(["h1/n1: Free memory 31232.00 MB < requested 32768 MB"])[0]["text"]
    'h1/n1: memory: 30.5 GiB free, 32 GiB requested'
    """
    return [
        {"text": explain_reason(reason), "amounts": _list_amounts(reason)} for reason in reasons
    ]


def explain_reason(reason: str) -> str:
    """Return a reason of a refusal for people, with amounts in binary units.

    >>> explain_reason("nearest: h1/n1 lacks 1536 MEMORY_MB, 2 VCPU")
    'nearest: h1/n1 lacks 1.5 GiB of memory, 2 VCPU'
    >>> explain_reason("Requested vcpu 9 VCPU > max_unit 8 VCPU")
    'CPU: 9 requested, 8 is the most of one claim'
    """
    text = _TOO_LITTLE.sub(lambda found: _render_shortage(found, "free, {} requested"), reason)
    text = _TOO_LARGE.sub(
        lambda found: _render_shortage(found, "requested, {} is the most of one claim"), text
    )
    return _LACKING.sub(
        lambda found: (
            f"{render_resource(found[2], float(found[1]))} of "
            f"{'memory' if found[2] == MEMORY else 'disk'}"
        ),
        text,
    )


def _render_shortage(found: re.Match[str], rest: str) -> str:
    resource, name = _RESOURCES.get(found[1], (found[1], found[1]))
    first, last = (render_resource(resource, float(found[group])) for group in (2, 4))
    return f"{name}: {first} {rest.format(last)}"


def _list_amounts(reason: str) -> list[dict[str, Any]]:
    """Return the amounts in a reason, in the units of their resource classes."""
    found = [(_TOO_LITTLE, "free", "requested"), (_TOO_LARGE, "requested", "max_unit")]
    none = dict.fromkeys(("free", "requested", "max_unit"))
    return [
        {
            "resource": _RESOURCES.get(match[1], (match[1],))[0],
            **none,
            first: float(match[2]),
            last: float(match[4]),
        }
        for pattern, first, last in found
        for match in pattern.finditer(reason)
    ]


def render_admission(host: str, nodename: str, answer: Admission) -> dict[str, Any]:
    """Return a dry run's columns: what fits, and what does not and why."""
    verdicts = [encode(verdict) | {"fits": verdict.fits} for verdict in answer.verdicts]
    findings = () if answer.pci is None else answer.pci.findings
    addresses = () if answer.pci is None else answer.pci.addresses
    pools = [
        {
            **pick(finding, "alias=request.alias", "count=request.count", "usable"),
            "pools": [str(pool) for pool in finding.pools],
            "devices": list(assigned),
        }
        for finding, assigned in zip(findings, addresses or repeat(()), strict=False)
    ]
    return {
        "host": host,
        "nodename": nodename,
        "fits": not answer.reasons,
        "reasons": list(answer.reasons),
        "explanations": explain_reasons(answer.reasons),
        "numa": encode(answer.numa),
        "numa_reasons": list(answer.numa_reasons),
        "resources": verdicts,
        "pci": pools,
    }


def render_no_candidate(reasons: Sequence[str]) -> dict[str, Any]:
    """Return a dry run's columns when no node would accept the claim."""
    none: dict[str, Any] = {"numa": None, "numa_reasons": [], "resources": [], "pci": []}
    none["explanations"] = explain_reasons(reasons)
    return {"host": None, "nodename": None, "fits": False, "reasons": list(reasons), **none}


def render_candidate(candidate: CandidateNode) -> dict[str, Any]:
    """Return the columns of ``candidate list`` for one node."""
    return {
        **pick(candidate, "host", "nodename"),
        "weight": round(candidate.weight, _WEIGHT_DECIMALS),
        **pick(
            candidate.free, "free_vcpus=vcpus", "free_memory_mb=memory_mb", "free_disk_gb=disk_gb"
        ),
        "left": [encode(left) | {"text": _describe_left(left)} for left in candidate.left],
    }


def _describe_left(left: ResourceLeft) -> str:
    """Return e.g. ``2 PCPU`` or ``cell 0: 4 CPUs, 12 GiB``."""
    amount = "unlimited" if left.free is None else render_plain(left.free)
    if not left.resource.startswith("cell "):
        return f"{amount} {left.resource}"
    memory = "unlimited memory" if left.memory_mb is None else render_mib(left.memory_mb)
    return f"{left.resource}: {amount} CPUs, {memory}"


NEAREST = ("host", "nodename", "checks", "missing", "reasons")
"""What is shown of a node that lacks little, beside `explain_reasons`."""


def render_excluded(exclusions: Exclusions) -> dict[str, Any]:
    """Return why nodes are no candidates: by check, and what the nearest one lacks."""
    nearest = exclusions.nearest
    return {
        "total_nodes": exclusions.total,
        "checks": [
            {
                "check": check.value,
                "nodes": exclusions.counts[check],
                "is_lower_bound": check in exclusions.lower_bounds,
                "text": _explain_check(check, exclusions),
            }
            for check in AdmissionCheck
            if exclusions.counts.get(check)
        ],
        "nearest": nearest and _render_near(nearest),
        "further": list(map(_render_near, exclusions.further)),
    }


def _render_near(miss: NearMiss) -> dict[str, Any]:
    return pick(miss, *NEAREST) | {"explanations": explain_reasons(miss.reasons)}


def _explain_check(check: AdmissionCheck, exclusions: Exclusions) -> str:
    """Return how many nodes a check excludes, e.g. ``4 of 5 nodes have too few CPUs free``."""
    bound = "at least " if check in exclusions.lower_bounds else ""
    nodes = count_noun(exclusions.total, "node")
    return f"{bound}{exclusions.counts[check]} of {nodes} {_LACKS.get(check, check.value)}"
