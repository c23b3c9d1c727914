"""Show the result of a dry run: the amounts of each resource, cell and pool."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodetracker.accounting.reports.values import render_gib, render_mib
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.lines import plain_text
from nodetracker.cmd.screen.table import Column, Kind, draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.model.claim import DISK, MEMORY
from nodetracker.model.units import render_amount


def show_admission(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return a dry run in cliff's format: JSON for programs, a line per item for people.

    Args:
        row: from `render_admission`.
    """
    cells = [] if row["numa"] is None else row["numa"]["cells"]
    shown = dict(row) | {
        "reasons": Lines(row["reasons"]),
        "numa": Lines(row["numa"], map(_render_line, cells)),
        "numa_reasons": Lines(row["numa_reasons"]),
        "resources": Lines(row["resources"], _draw_verdicts(row["resources"])),
        "pci": Lines(row["pci"], map(_render_line, row["pci"])),
    }
    return tuple(shown), tuple(shown.values())


def _draw_verdicts(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of what the claim requests: requested and free amounts, and whether they fit.

    >>> amounts = {"resource": "VCPU", "requested": 9.0, "free": 8.0, "limit": 8.0, "excess": None}
    >>> _draw_verdicts([amounts | {"fits": False}])[1]
    'VCPU          9     8      8  lacks 1'
    """
    rows = [_row_of(verdict) for verdict in verdicts if verdict["requested"]]
    columns = [
        Column("resource", ("resource",)),
        *(Column(name, (name,), Kind.NUMBER) for name in ("asked", "free", "limit")),
        Column("verdict", ("verdict",)),
    ]
    return plain_text(draw_table(columns, rows, Terminal(), None, is_complete=True)).splitlines()


def _row_of(verdict: Mapping[str, Any]) -> dict[str, Any]:
    resource, asked, free = verdict["resource"], verdict["requested"], verdict["free"]
    lacking = 0.0 if free is None else asked - free
    if verdict["fits"]:
        text = "fits"
    elif lacking > 0:
        text = f"lacks {_render_size(resource, lacking)}"
    else:
        text = f"larger than one claim may be, by {_render_size(resource, verdict['excess'])}"
    return {
        "resource": resource,
        "asked": _render_size(resource, asked),
        "free": _render_size(resource, free),
        "limit": _render_size(resource, verdict["limit"]),
        "verdict": text,
    }


def _render_size(resource: str, amount: float | None) -> str:
    if amount is None:
        return "unlimited"
    if resource in (MEMORY, DISK):
        return render_mib(amount) if resource == MEMORY else render_gib(amount)
    return render_amount(amount)


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
