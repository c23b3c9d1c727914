"""Render claims, dry runs, candidates and migrations for the command line and REST."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission, AdmissionCheck
from nodetracker.accounting.ledger.exclusions import Exclusions
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.serializer import encode, pick
from nodetracker.model.text import count_noun

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
    AdmissionCheck.DISK: "have too little disk free",
    AdmissionCheck.CLASSES: "lack another resource",
    AdmissionCheck.NUMA: "fit no NUMA cell",
    AdmissionCheck.PCI: "lack a device",
}


_AMOUNTS = ("vcpus=amounts.vcpus", "memory_mb=amounts.memory_mb", "disk_gb=amounts.disk_gb")


def render_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list`` for one claim."""
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
"""The attributes of a claim that the ledger's callers get, as `pick` has them."""


def render_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of ``migration list`` for one migration."""
    return {name: item for name, item in encode(migration).items() if name != "updated_at"}


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
        "numa": encode(answer.numa),
        "numa_reasons": list(answer.numa_reasons),
        "resources": verdicts,
        "pci": pools,
    }


def render_no_candidate(reasons: Sequence[str]) -> dict[str, Any]:
    """Return a dry run's columns when no node would accept the claim."""
    none: dict[str, Any] = {"numa": None, "numa_reasons": [], "resources": [], "pci": []}
    return {"host": None, "nodename": None, "fits": False, "reasons": list(reasons), **none}


def render_candidate(candidate: CandidateNode) -> dict[str, Any]:
    """Return the columns of ``candidate list`` for one node."""
    return {
        **pick(candidate, "host", "nodename"),
        "weight": round(candidate.weight, _WEIGHT_DECIMALS),
        **pick(
            candidate.free, "free_vcpus=vcpus", "free_memory_mb=memory_mb", "free_disk_gb=disk_gb"
        ),
    }


NEAREST = ("host", "nodename", "checks", "missing", "reasons")
"""What is shown of the node that lacks least."""


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
        "nearest": nearest and pick(nearest, *NEAREST),
    }


def _explain_check(check: AdmissionCheck, exclusions: Exclusions) -> str:
    """Return how many nodes a check excludes, e.g. ``4 of 5 nodes have too few CPUs free``."""
    bound = "at least " if check in exclusions.lower_bounds else ""
    nodes = count_noun(exclusions.total, "node")
    return f"{bound}{exclusions.counts[check]} of {nodes} {_LACKS.get(check, check.value)}"
