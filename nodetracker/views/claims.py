"""Render claims, dry runs, candidates and migrations for the command line and REST."""

from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission, AdmissionCheck
from nodetracker.accounting.ledger.exclusions import Exclusions, NearMiss, list_parts
from nodetracker.model.amount_text import Role, render_mib, render_number, render_resource
from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, VCPU, Missing, ResourceVerdict
from nodetracker.model.candidate import CandidateNode, ResourceLeft, RoomCount
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.serializer import encode, pick
from nodetracker.views.nodes import render_damage
from nodetracker.views.values import count_many

_WEIGHT_DECIMALS = 6
_LACKS = {
    AdmissionCheck.SERVICE: "have no agent",
    AdmissionCheck.ENABLED: "are disabled",
    AdmissionCheck.MAINTENANCE: "are in maintenance",
    AdmissionCheck.UP: "are down or unreachable",
    AdmissionCheck.SPARE: "are spare",
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

_OF_ONE = {"are": "is", "fit": "fits", "have": "has", "lack": "lacks"}

_TOO_LARGE = {
    AdmissionCheck.CPU: "so many CPUs",
    AdmissionCheck.PCPU: "so many pinned CPUs",
    AdmissionCheck.RAM: "so much memory",
    AdmissionCheck.ORDINARY_RAM: "so much memory outside huge pages",
    AdmissionCheck.DISK: "so much disk",
}


_AMOUNTS = ("vcpus=amounts.vcpus", "memory_mb=amounts.memory_mb", "disk_gb=amounts.disk_gb")


CLAIM_COLUMNS = (
    "uuid", "workload_uuid=workload.uuid", "kind", "state", "host", "nodename", *_AMOUNTS,
    "expires_at", "reason", "pcpus=amounts.pcpus", "resources=amounts.resources", "devices",
    "workload_name=workload.name",
)  # fmt: skip
"""The columns of ``claim list``, as `pick` has them."""

CLAIM_DETAILS = (
    "uuid", "workload_uuid=workload.uuid", "workload_name=workload.name", "kind", "state", "host",
    "nodename", *_AMOUNTS, "expires_at", "reason", "workload_kind=workload.kind",
    "project_id=workload.project_id", "pcpus=amounts.pcpus", "resources=amounts.resources", "numa",
    "devices", "migration_uuid", "created_at", "updated_at", "by_door",
)  # fmt: skip
"""The attributes of a claim that REST shows, as `pick` has them."""


def render_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list`` for one claim; REST shows `CLAIM_DETAILS`."""
    return pick(claim, *CLAIM_COLUMNS)


def render_claim_details(claim: Claim) -> dict[str, Any]:
    """Return a claim as REST shows it."""
    return pick(claim, *CLAIM_DETAILS) | render_damage(claim)


MIGRATION_COLUMNS = (
    "uuid", "workload_uuid", "migration_type", "status", "source_host", "source_node", "dest_host",
    "dest_node", "source_claim", "dest_claim", "created_at", "workload_name",
)  # fmt: skip
"""The columns of ``migration list``, which REST shows, too."""


def render_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of ``migration list`` for one migration."""
    return pick(migration, *MIGRATION_COLUMNS) | render_damage(migration)


_NAMES = {VCPU: "CPU", MEMORY: "memory", ORDINARY: "memory outside huge pages", DISK: "disk"}
"""Resource class -> its name for people, if it has another one."""


def explain_reasons(refused: Admission | NearMiss | ClaimRefusedError) -> list[dict[str, Any]]:
    """Return for each reason of a refusal its text for people, and its amounts as numbers.

    Args:
        refused: by one that an older process has sent, the text is the sentence.
    """
    return [
        {
            "text": "".join(map(_explain_part, parts)),
            "amounts": [_list_amounts(part) for part in parts if isinstance(part, ResourceVerdict)],
        }
        for parts in list_parts(refused)
    ]


def explain_error(error: Exception) -> str:
    """Return an error's text for people."""
    if not isinstance(error, ClaimRefusedError):
        return str(error)
    return "; ".join(reason["text"] for reason in explain_reasons(error))


def _explain_part(part: str | ResourceVerdict | Missing) -> str:
    """Return a part of a reason for people, with amounts in binary units.

    >>> _explain_part(Missing("MEMORY_MB", 1536)), _explain_part(Missing("VCPU", 2))
    ('1.5 GiB of memory', '2 VCPU')
    """
    if isinstance(part, str):
        return part
    name = _NAMES.get(part.resource, part.resource)
    if isinstance(part, Missing):
        amount = render_resource(part.resource, part.amount, Role.REQUESTED)
        is_size = part.resource in (MEMORY, ORDINARY, DISK)
        return f"{amount} of {name}" if is_size else f"{amount} {part.resource}"
    beside = (part.refused, Role.REQUESTED)
    requested = render_resource(part.resource, *beside)
    if not part.is_free:
        free = render_resource(part.resource, part.free, Role.FREE, beside)
        return f"{name}: {free} free, {requested} requested"
    largest = render_resource(part.resource, part.largest, Role.FREE, beside)
    return f"{name}: {requested} requested, {largest} is the most of one claim"


def _list_amounts(verdict: ResourceVerdict) -> dict[str, Any]:
    """Return the amounts in a reason, in the unit of the resource class."""
    return {
        "resource": verdict.resource,
        "free": None if verdict.is_free else verdict.free,
        "requested": verdict.refused,
        "max_unit": verdict.largest if verdict.is_free else None,
    }


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
        "explanations": explain_reasons(answer),
        "numa": encode(answer.numa),
        "numa_reasons": list(answer.numa_reasons),
        "resources": verdicts,
        "pci": pools,
    }


def render_no_candidate(error: ClaimRefusedError) -> dict[str, Any]:
    """Return a dry run's columns when no node would accept the claim."""
    none: dict[str, Any] = {"numa": None, "numa_reasons": [], "resources": [], "pci": []}
    none["explanations"] = explain_reasons(error)
    return {"host": None, "nodename": None, "fits": False, "reasons": list(error.reasons), **none}


def render_candidate(candidate: CandidateNode, count: RoomCount | None = None) -> dict[str, Any]:
    """Return the columns of ``candidate list`` for one node.

    Args:
        count: how many claims like the requested one fit, None if that was not counted.
    """
    return {
        **pick(candidate, "host", "nodename"),
        "weight": round(candidate.weight, _WEIGHT_DECIMALS),
        **pick(
            candidate.free, "free_vcpus=vcpus", "free_memory_mb=memory_mb", "free_disk_gb=disk_gb"
        ),
        "left": [encode(left) | {"text": _describe_left(left)} for left in candidate.left],
        "count": count and count.by_node.get(candidate.id, 0),
    }


def describe_count(count: RoomCount) -> str:
    """Return e.g. ``at least 37 more of these fit``."""
    bound = "at least " if count.is_at_least else ""
    verb = "fits" if count.total == 1 else "fit"
    return f"{bound}{count.total:,} more of these {verb}"


def _describe_left(left: ResourceLeft) -> str:
    """Return e.g. ``2 PCPU`` or ``cell 0: 4 CPUs, 12 GiB``."""
    amount = "unlimited" if left.free is None else render_number(left.free, Role.FREE)
    if not left.resource.startswith("cell "):
        return f"{amount} {left.resource}"
    memory = "unlimited memory" if left.memory_mb is None else render_mib(left.memory_mb, Role.FREE)
    return f"{left.resource}: {amount} CPUs, {memory}"


NEAREST = ("host", "nodename", "checks", "missing", "reasons")
"""What is shown of a node that lacks little, beside `explain_reasons`."""


def render_excluded(exclusions: Exclusions) -> dict[str, Any]:
    """Return why nodes are not candidates: by check, and what the nearest one lacks."""
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
    return pick(miss, *NEAREST) | {"explanations": explain_reasons(miss)}


def _explain_check(check: AdmissionCheck, exclusions: Exclusions) -> str:
    """Return how many nodes a check excludes, e.g. ``4 of 5 nodes have too few CPUs free``."""
    bound = "at least " if check in exclusions.lower_bounds else ""
    count, too_large = exclusions.counts[check], exclusions.too_large.get(check, 0)
    nodes = f"{bound}{count:,} of {count_many(exclusions.total, 'node')}"
    limit = f"no claim of {_TOO_LARGE.get(check, 'so much of another resource')}"
    if too_large == count:
        return f"{nodes} {'allows' if count == 1 else 'allow'} {limit}"
    others = f", or allow {limit} ({too_large:,})" if too_large else ""
    verb, _, rest = _LACKS.get(check, check.value).partition(" ")
    return f"{nodes} {_OF_ONE.get(verb, verb) if count == 1 else verb} {rest}{others}"
