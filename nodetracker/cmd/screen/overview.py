"""Draw the overview of the fleet: a sentence, totals as bars, and a line for each node."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from nodetracker.accounting.reports.overview import PARTS, Overview, ResourceUse
from nodetracker.accounting.reports.values import render_mib, render_percent, render_plain
from nodetracker.cmd.screen.bars import PARTS as BAR_PARTS
from nodetracker.cmd.screen.bars import draw_bar, fill_of
from nodetracker.cmd.screen.lines import (
    BLANK,
    Line,
    Piece,
    Style,
    cut_line,
    line_width,
    make_line,
    pad_line,
)
from nodetracker.cmd.screen.node_lines import TITLES, FleetView, draw_nodes, draw_rest, word_of_node
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.model.claim import DISK, MEMORY
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.text import count_noun

_LABEL = 8
_BEYOND = 6
_NUMBERS = 28


_ORDER = ("down", "unreachable", "stale", "never read", "late", "maintenance", "disabled")


def draw_overview(view: FleetView, terminal: Terminal, height: int | None = None) -> list[Line]:
    """Return the screen.

    Args:
        height: maximum number of lines, None = one for each node.
    """
    overview = view.overview
    head = [_draw_sentence(view), _draw_counts(overview), BLANK]
    for resource, use in overview.totals.items():
        if use.total or sum((use.reserved, use.claimed, use.unclaimed)):
            head += _draw_total(resource, use, terminal)
    if not overview.nodes:
        return [cut_line(line, terminal.width, terminal.has_unicode) for line in head]
    nodes = sorted(overview.nodes, key=lambda line: -view.severity_of(line))
    room = len(nodes) if height is None else max(1, height - len(head) - 2)
    shown = nodes if len(nodes) <= room else nodes[: room - 1]
    lines = [*head, BLANK, *(draw_nodes(view, shown, terminal) if shown else ())]
    if rest := nodes[len(shown) :]:
        lines.append(draw_rest(rest, terminal))
    return [cut_line(line, terminal.width, terminal.has_unicode) for line in lines]


def _draw_sentence(view: FleetView) -> Line:
    overview = view.overview
    hosts = {line.node.host for line in overview.nodes}
    warnings = sum(overview.warnings.values())
    lost = overview.lost_services
    states = Counter(word_of_node(line) for line in overview.nodes)
    parts = [(f"{count} {word}", word) for word, count in states.items() if word != "up"]
    start = f"{count_noun(len(overview.nodes), 'node')} on {count_noun(len(hosts), 'host')}: "
    rest = [
        *((count_noun(warnings, "warning"),) if warnings else ()),
        *((f"{count_noun(len(lost), 'other service')} down",) if lost else ()),
    ]
    if not parts and not rest:
        return make_line(Piece(start, Style.TITLE), Piece("all fine", Style.GOOD))
    bad = Style.BAD if {"down", "unreachable"} & set(states) or lost else Style.WARNING
    words = ", ".join(text for text, _ in sorted(parts, key=lambda part: _ORDER.index(part[1])))
    return make_line(
        Piece(start, Style.TITLE), Piece("; ".join([*([words] if words else []), *rest]), bad)
    )


def _draw_counts(overview: Overview) -> Line:
    guests = [count_noun(overview.guests.get(kind, 0), kind.value) for kind in WorkloadKind]
    claims = [f"{count} {state}" for state, count in sorted(overview.claims.items()) if count]
    text = ", ".join(guests)
    if claims:
        text += f"; claims: {', '.join(claims)}"
    return make_line(Piece(text, Style.DIM))


def _draw_total(resource: str, use: ResourceUse, terminal: Terminal) -> list[Line]:
    """Return a bar with what is used, and a line with each part."""
    render = partial(_render_amount, resource)
    used = use.total - use.free
    numbers = f"{render(used)} of {render(use.total)}  {render_percent(used, use.total)}"
    width = max(10, min(60, terminal.width - _LABEL - _BEYOND - _NUMBERS))
    bar = pad_line(draw_bar(use, width, _BEYOND - 2, terminal), width + _BEYOND)
    style = Style.BAD if use.free < 0 and used > use.limit else Style.TITLE
    parts = _draw_parts(use, render, terminal)
    indent = _LABEL if _LABEL + line_width(parts) <= terminal.width else 2
    title = Piece(TITLES[resource].ljust(_LABEL), Style.TITLE)
    return [(title, *bar, Piece(numbers, style)), (Piece(" " * indent), *parts)]


def _draw_parts(use: ResourceUse, render: Callable[[float], str], terminal: Terminal) -> Line:
    """Return the amounts of a bar, each with the character that fills its part."""
    parts = list(zip(BAR_PARTS, (use.reserved, use.claimed, use.unclaimed), strict=True))
    words = [(style, amount, style.value) for style, amount in parts if amount]
    if use.free >= 0:
        words.append((Style.FREE, use.free, "free"))
    else:
        words.append((Style.EXCESS, -use.free, "overcommitted"))
    pieces: list[Piece] = []
    for style, amount, word in words:
        gap = "  " if pieces else ""
        pieces += (
            Piece(gap + fill_of(style, terminal), style),
            Piece(f" {render(amount)} {word}"),
        )
    if use.limit != use.total:
        pieces.append(Piece(f"  limit {render(use.limit)}", Style.DIM))
    return tuple(pieces)


def _render_amount(resource: str, parts: float) -> str:
    """Return an amount with its unit; nothing needs none."""
    if not parts:
        return "0"
    if resource in (MEMORY, DISK):
        return render_mib(parts)
    return render_plain(round(parts / PARTS[resource], 1))
