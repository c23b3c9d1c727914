"""Render the result of a dry run: the amounts of each resource, cell and pool."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import repeat
from typing import Any

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.cmd.commands.base import Lines
from nodetracker.model.numa_placement import encode_placement
from nodetracker.units import render_amount


def render_admission(host: str, nodename: str, answer: Admission) -> dict[str, Any]:
    """Return a dry run's columns: JSON for programs, a line per item for people."""
    verdicts = [asdict(verdict) | {"fits": verdict.fits} for verdict in answer.verdicts]
    lines = [verdict | {"excess": None} for verdict in verdicts]  # the reasons have it
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
            "devices": list(assigned),
        }
        for finding, assigned in zip(findings, addresses or repeat(()), strict=False)
    ]
    return {
        "host": host,
        "nodename": nodename,
        "fits": not answer.reasons,
        "reasons": Lines(list(answer.reasons)),
        "numa": Lines(placement, map(_render_line, cells)),
        "numa_reasons": Lines(list(answer.numa_reasons)),
        "resources": Lines(verdicts, map(_render_line, lines)),
        "pci": Lines(pools, map(_render_line, pools)),
    }


def _render_line(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {_render_value(value)}"
        for name, value in values.items()
        if value not in (None, [], {})
    )


def _render_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{_render_value(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_render_value, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return render_amount(value) if isinstance(value, float) else str(value)
