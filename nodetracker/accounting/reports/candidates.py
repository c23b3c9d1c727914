"""Render candidates as plain data, for the command line and REST."""

from typing import Any

from nodetracker.model.candidate import CandidateNode
from nodetracker.units import MIB_PER_GIB, MILLI, whole_units

_WEIGHT_DECIMALS = 6


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
