"""How the answer of a dry run is shown: every resource, cell and pool with its numbers."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.cmd.commands.base import Lines
from nodetracker.model.numa_placement import encode_placement


def render_admission(host: str, nodename: str, answer: Admission) -> dict[str, Any]:
    """Return a dry run's answer: plain JSON for programs, a line each for people."""
    verdicts = [asdict(verdict) | {"fits": verdict.fits} for verdict in answer.verdicts]
    placement = None if answer.numa is None else encode_placement(answer.numa)
    cells = [] if placement is None else placement["cells"]
    findings = () if answer.pci is None else answer.pci.findings
    addresses = () if answer.pci is None else answer.pci.addresses
    pools = [
        {
            "alias": finding.request.alias,
            "count": finding.request.count,
            "usable": finding.usable,
            "pools": [str(pool) for pool in finding.pools],
            "devices": list(given),
        }
        for finding, given in zip(findings, addresses or repeat(()), strict=False)
    ]
    return {
        "host": host,
        "nodename": nodename,
        "fits": not answer.reasons,
        "reasons": Lines(list(answer.reasons)),
        "numa": Lines(placement, map(_notify, cells)),
        "numa_reasons": Lines(list(answer.numa_reasons)),
        "resources": Lines(verdicts, map(_notify, verdicts)),
        "pci": Lines(pools, map(_notify, pools)),
    }


def _notify(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {_tell_value(value)}"
        for name, value in values.items()
        if value not in (None, [], {})
    )


def _tell_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{_tell_value(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_tell_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
