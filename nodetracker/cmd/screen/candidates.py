"""Draw candidates with what is left on them, and why a node takes a request or not."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nodetracker.cmd.screen.bars import fill_of, share_cells
from nodetracker.cmd.screen.lines import (
    Line,
    Piece,
    Style,
    cut_line,
    line_width,
    pad_line,
    plain_text,
)
from nodetracker.cmd.screen.table import Column, Kind, draw_table
from nodetracker.cmd.screen.terminal import Terminal, safe_text
from nodetracker.model.amount_text import (
    Role,
    render_gib,
    render_mib,
    render_number,
    render_resource,
)
from nodetracker.model.units import render_amount

_RENDERERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "free_vcpus": ("CPU LEFT", partial(render_number, role=Role.FREE)),
    "free_memory_mb": ("MEMORY LEFT", partial(render_mib, role=Role.FREE)),
    "free_disk_gb": ("DISK LEFT", partial(render_gib, role=Role.FREE)),
}
_BARS = (4, 16)
_GAP = 2


def draw_candidates(rows: Sequence[Mapping[str, Any]], terminal: Terminal) -> list[Line]:
    """Return a line for each candidate, in the order of the list.

    A bar compares what is left on a node with the most that is left on any of them.

    Args:
        rows: columns of ``candidate list``.
    """
    columns = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME),
        Column("weight", ("weight",), Kind.NUMBER),
        *([Column("fits", ("count",), Kind.COUNT)] * any(row["count"] is not None for row in rows)),
    )
    rounded = [{**row, "weight": round(row["weight"], 3)} for row in rows]
    texts = {name: [render(row[name]) for row in rows] for name, (_, render) in _RENDERERS.items()}
    widths = {name: max(map(len, found)) for name, found in texts.items()}
    least, most = _BARS
    needed = [
        _GAP + max(len(title), least + 1 + widths[name]) for name, (title, _) in _RENDERERS.items()
    ]
    of_names = replace(terminal, width=max(1, terminal.width - sum(needed)))
    lines = draw_table(columns, rounded, of_names, None)
    start = max(map(line_width, lines))
    room = terminal.width - start - sum(widths.values()) - (2 * _GAP - 1) * len(_RENDERERS)
    bar = max(least, min(most, room // len(_RENDERERS)))
    lines = [pad_line(line, start) for line in lines]
    for name, (title, _) in _RENDERERS.items():
        width = max(len(title), bar + 1 + widths[name])
        lines[0] = (*lines[0], Piece(f"{'':{_GAP}}{title:<{width}}", Style.TITLE))
        largest = max(row[name] for row in rows)
        for number, row in enumerate(rows, start=1):
            drawn = _draw_left(row[name], largest, bar, terminal)
            text = Piece(f" {texts[name][number - 1]:>{width - bar - 1}}")
            lines[number] = (*lines[number], Piece(" " * _GAP), *drawn, text)
    for number, row in reversed(list(enumerate(rows, start=1))):
        if row["left"]:
            names = "; ".join(left["text"] for left in row["left"])
            lines.insert(number + 1, (Piece(f"  left: {names}", Style.DIM),))
    if not terminal.has_width:
        return lines
    return [cut_line(line, terminal.width, terminal.has_unicode) for line in lines]


def _draw_left(left: float, largest: float, width: int, terminal: Terminal) -> Line:
    (count,) = share_cells([max(0, left)], max(largest, 0), width)
    return (
        Piece(fill_of(Style.CLAIMED, terminal) * count, Style.GOOD),
        Piece(fill_of(Style.LEFT, terminal) * (width - count), Style.LEFT),
    )


def draw_admission(row: Mapping[str, Any]) -> list[Line]:
    """Return why a node takes a request or not, and the amounts of each resource."""
    answer = "does not take it" if row["reasons"] else "takes it"
    texts = [f"{safe_text(row['nodename'])} of host {safe_text(row['host'])} {answer}"]
    texts += [f"  {safe_text(reason['text'])}" for reason in row["explanations"]]
    texts += [f"  {line}" for line in draw_verdicts(row["resources"])]
    return [(Piece(text),) for text in texts]


def draw_verdicts(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of what the claim requests: requested and free amounts, and whether they fit.

    >>> amounts = {"resource": "VCPU", "requested": 9.0, "free": 8.0, "limit": 8.0, "excess": None}
    >>> draw_verdicts([amounts | {"fits": False}])[1]
    'VCPU          9     8      8  lacks 1'
    """
    rows = [_row_of_verdict(verdict) for verdict in verdicts if verdict["requested"]]
    columns = [
        Column("resource", ("resource",)),
        *(Column(name, (name,), Kind.NUMBER) for name in ("asked", "free", "limit")),
        Column("verdict", ("verdict",)),
    ]
    return plain_text(draw_table(columns, rows, Terminal(), None, is_complete=True)).splitlines()


def _row_of_verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    resource, asked, free = verdict["resource"], verdict["requested"], verdict["free"]
    lacking = 0.0 if free is None else asked - free
    beside = None if verdict["fits"] else (asked, Role.REQUESTED)
    if verdict["fits"]:
        text = "fits"
    elif lacking > 0:
        text = f"lacks {render_resource(resource, lacking, Role.REQUESTED)}"
    else:
        excess = render_resource(resource, verdict["excess"], Role.REQUESTED)
        text = f"larger than one claim may be, by {excess}"
    return {
        "resource": resource,
        "asked": render_resource(resource, asked, Role.REQUESTED),
        "free": render_resource(resource, free, Role.FREE, beside),
        "limit": render_resource(resource, verdict["limit"], Role.USED, beside),
        "verdict": text,
    }


def render_line(values: Mapping[str, Any]) -> str:
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
