"""Render claims, dry runs, candidates and migrations for the command line and REST."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission, AdmissionCheck
from nodetracker.accounting.ledger.exclusions import Exclusions, NearMiss
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.serializer import encode
from nodetracker.model.text import count_noun, render_time

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


def render_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list`` for one claim."""
    units = claim.amounts.in_units()
    pcpus = units.pop("pcpus")
    return {
        "uuid": claim.uuid,
        "workload_uuid": claim.workload.uuid,
        "kind": claim.kind.value,
        "state": claim.state.value,
        "host": claim.host,
        "nodename": claim.nodename,
        **units,
        "expires_at": render_time(claim.expires_at),
        "reason": claim.reason,
        "pcpus": pcpus,
        "resources": dict(claim.amounts.resources),
        "devices": list(claim.devices),
    }


def render_claim_details(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list``, and what a workload needs to use its claim."""
    return render_claim(claim) | {
        "workload_kind": claim.workload.kind.value,
        "workload_name": claim.workload.name,
        "project_id": claim.workload.project_id,
        "numa": encode(claim.numa),
        "migration_uuid": claim.migration_uuid,
        "created_at": render_time(claim.created_at),
        "updated_at": render_time(claim.updated_at),
    }


def render_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of ``migration list`` for one migration."""
    return {
        "uuid": migration.uuid,
        "workload_uuid": migration.workload_uuid,
        "migration_type": migration.migration_type.value,
        "status": migration.status.value,
        "source_host": migration.source_host,
        "source_node": migration.source_node,
        "dest_host": migration.dest_host,
        "dest_node": migration.dest_node,
        "source_claim": migration.source_claim,
        "dest_claim": migration.dest_claim,
        "created_at": render_time(migration.created_at),
    }


def render_admission(host: str, nodename: str, answer: Admission) -> dict[str, Any]:
    """Return a dry run's columns: what fits, and what does not and why."""
    verdicts = [asdict(verdict) | {"fits": verdict.fits} for verdict in answer.verdicts]
    findings = () if answer.pci is None else answer.pci.findings
    addresses = () if answer.pci is None else answer.pci.addresses
    pools = [
        {
            "alias": finding.request.alias,
            "count": finding.request.count,
            "usable": finding.usable,
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
    return {
        "host": None,
        "nodename": None,
        "fits": False,
        "reasons": list(reasons),
        "numa": None,
        "numa_reasons": [],
        "resources": [],
        "pci": [],
    }


def render_candidate(candidate: CandidateNode) -> dict[str, Any]:
    """Return the columns of ``candidate list`` for one node."""
    free = candidate.free.in_units()
    return {
        "host": candidate.host,
        "nodename": candidate.nodename,
        "weight": round(candidate.weight, _WEIGHT_DECIMALS),
        **{f"free_{name}": amount for name, amount in free.items() if name != "pcpus"},
    }


def render_excluded(exclusions: Exclusions) -> dict[str, Any]:
    """Return why nodes are no candidates: by check, and what the nearest one lacks."""
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
        "nearest": None if exclusions.nearest is None else _render_miss(exclusions.nearest),
    }


def _explain_check(check: AdmissionCheck, exclusions: Exclusions) -> str:
    """Return how many nodes a check excludes, e.g. ``4 of 5 nodes have too few CPUs free``."""
    bound = "at least " if check in exclusions.lower_bounds else ""
    nodes = count_noun(exclusions.total, "node")
    return f"{bound}{exclusions.counts[check]} of {nodes} {_LACKS.get(check, check.value)}"


def _render_miss(miss: NearMiss) -> dict[str, Any]:
    return {
        "host": miss.host,
        "nodename": miss.nodename,
        "checks": [check.value for check in miss.checks],
        "missing": dict(miss.missing),
        "reasons": list(miss.reasons),
    }
