"""Render claims and the results of dry runs as plain data, for the command line and REST."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.model.claim import Claim
from nodetracker.model.numa import encode_placement
from nodetracker.model.text import render_time
from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units


def render_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list`` for one claim."""
    milli, disk_mb = claim.amounts.vcpu_milli, claim.amounts.disk_mb
    return {
        "uuid": claim.uuid,
        "workload_uuid": claim.workload.uuid,
        "kind": claim.kind.value,
        "state": claim.state.value,
        "host": claim.host,
        "nodename": claim.nodename,
        "vcpus": whole_units(milli, MILLI),
        "memory_mb": claim.amounts.memory_mb,
        "disk_gb": whole_units(disk_mb, MIB_PER_GIB),
        "expires_at": render_time(claim.expires_at),
        "reason": claim.reason,
        "pcpus": claim.amounts.pcpus,
        "resources": dict(claim.amounts.resources),
        "devices": list(claim.devices),
    }


def render_claim_details(claim: Claim) -> dict[str, Any]:
    """Return the columns of ``claim list``, and what a workload needs to use its claim."""
    return render_claim(claim) | {
        "workload_kind": claim.workload.kind.value,
        "workload_name": claim.workload.name,
        "project_id": claim.workload.project_id,
        "numa": None if claim.numa is None else encode_placement(claim.numa),
        "migration_uuid": claim.migration_uuid,
        "created_at": render_time(claim.created_at),
        "updated_at": render_time(claim.updated_at),
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
        "numa": None if answer.numa is None else encode_placement(answer.numa),
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
