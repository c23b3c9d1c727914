"""Render candidates as plain data, for the command line and REST."""

from typing import Any

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.exclusions import Exclusions, NearMiss
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.text import count_noun
from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units

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


def render_candidate(candidate: CandidateNode) -> dict[str, Any]:
    """Return the columns of ``candidate list`` for one node."""
    free = candidate.free
    return {
        "host": candidate.host,
        "nodename": candidate.nodename,
        "weight": round(candidate.weight, _WEIGHT_DECIMALS),
        "free_vcpus": whole_units(free.vcpu_milli, MILLI),
        "free_memory_mb": free.memory_mb,
        "free_disk_gb": whole_units(free.disk_mb, MIB_PER_GIB),
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
