"""Show the result of a dry run: the amounts of each resource, cell and pool."""

from collections.abc import Mapping
from typing import Any

from nodetracker.cmd.commands.formats import Lines
from nodetracker.units import render_amount


def show_admission(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return a dry run in cliff's format: JSON for programs, a line per item for people.

    Args:
        row: from `render_admission`.
    """
    cells = [] if row["numa"] is None else row["numa"]["cells"]
    verdicts = [verdict | {"excess": None} for verdict in row["resources"]]  # the reasons have it
    shown = dict(row) | {
        "reasons": Lines(row["reasons"]),
        "numa": Lines(row["numa"], map(_render_line, cells)),
        "numa_reasons": Lines(row["numa_reasons"]),
        "resources": Lines(row["resources"], map(_render_line, verdicts)),
        "pci": Lines(row["pci"], map(_render_line, row["pci"])),
    }
    return tuple(shown), tuple(shown.values())


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
