"""Draw the overview of the fleet: a sentence, totals as bars, and a line for each node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import repeat

from nodetracker.cmd.screen.bars import PARTS as BAR_PARTS
from nodetracker.cmd.screen.bars import draw_bar, draw_sparkline, fill_of
from nodetracker.cmd.screen.lines import (
    BLANK,
    Line,
    Piece,
    Style,
    cut_line,
    draw_state,
    line_width,
    make_line,
    pad_line,
    style_of_share,
    word_of,
)
from nodetracker.cmd.screen.table import first_label, shorten_names, width_of_names
from nodetracker.cmd.screen.terminal import Terminal, safe_text, width_of, wrap_text
from nodetracker.model.amount_text import render_of, render_parts
from nodetracker.model.amounts import DISK, MEMORY, PARTS, PCPU, VCPU
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.text import natural_key
from nodetracker.model.trend import TREND_RESOURCES, TrendSample
from nodetracker.views.fleet_health import HealthLevel, summarize_health
from nodetracker.views.overview import (
    Left,
    NodeLine,
    Overview,
    ResourceUse,
    Severity,
    Uses,
)
from nodetracker.views.problems import FleetView, Problem
from nodetracker.views.trends import DAY_HOURS, WEEK_HOURS, Trend, list_shares
from nodetracker.views.values import count_many, render_age, render_percent

TITLES = {VCPU: "CPU", PCPU: "Pinned", MEMORY: "Memory", DISK: "Disk"}
"""What resource classes are called."""

_WORDS_OF_LEVELS = {HealthLevel.BAD: "down", HealthLevel.WARNING: "warning"}
_MOST_CAUSES = 6
_SMALL = (VCPU, MEMORY, DISK)
_SMALL_WIDTHS = (3, 10)
_ENDS = ("GUESTS", "READ")
_PERCENT = 6  # with the blank before it
_NARROW_PERCENT = 5
_PROBLEM = 28
_LEAST_PROBLEM = 12
_WITH_AGES = 100
_DAY = 8  # cells of the last day of a node
_WITH_DAYS = 120
_LEAST_NAME = 20  # bars are left out rather than to cut names below this
_FEWEST = 9
_WIDEST_NAME = 4  # names that take a larger part of the width are shown without their domain
_GAP = Piece("  ")
_LABEL = 8
_BEYOND = 6
_NUMBERS = 28
_MEASURED = 13
_WEEK = "  7 d "
_FEWEST_CELLS = 7
_MOST_CELLS = 28


def draw_overview(view: FleetView, terminal: Terminal, height: int | None = None) -> list[Line]:
    """Return the screen.

    Args:
        height: maximum number of lines, None = one for each node.
    """
    overview = view.overview
    sentence = draw_sentence(view, terminal.width)
    totals = [_draw_counts(overview), BLANK, *draw_totals(view, terminal)]
    totals += [make_line(found.text) for found in view.trend.forecasts]
    room = height and min(_MOST_CAUSES, (height - len(sentence) - len(totals)) // 2 - 1)
    head = [*sentence, *draw_causes(view, terminal, room), *totals]
    if not overview.lines:
        return [cut_line(line, terminal.width, terminal.has_unicode) for line in head]
    nodes = sorted(
        overview.lines,
        key=lambda line: (
            -line.severity,
            natural_key(line.node.host),
            natural_key(line.node.nodename),
        ),
    )
    room = len(nodes) if height is None else max(1, height - len(head) - 2)
    shown = nodes if len(nodes) <= room else nodes[: room - 1]
    lines = [*head, BLANK, *(draw_nodes(view, shown, terminal) if shown else ())]
    if rest := nodes[len(shown) :]:
        lines.append(_draw_rest(rest, terminal))
    return [cut_line(line, terminal.width, terminal.has_unicode) for line in lines]


def draw_sentence(view: FleetView, width: int | None = None) -> list[Line]:
    """Return how many nodes there are, what is wrong with them, and what is not as usual.

    Args:
        width: of the lines, None = one line.
    """
    overview = view.overview
    hosts = {line.node.host for line in overview.lines}
    start = f"{count_many(len(overview.nodes), 'node')} on {count_many(len(hosts), 'host')}: "
    health = summarize_health(overview)
    found = [problem.text for problem in health.problems] or ["all fine"]
    notes = [note.text for note in health.notes]
    text = start + ", ".join([*found, *notes])
    first, *further = [text] if width is None else wrap_text(text, width)
    style = Style.WARNING if health.problems else Style.GOOD
    if health.level is HealthLevel.BAD:
        style = Style.BAD
    line = make_line(Piece(first[: len(start)], Style.TITLE), Piece(first[len(start) :], style))
    return [line, *(make_line(Piece(text, style)) for text in further)]


def draw_causes(view: FleetView, terminal: Terminal, room: int | None = None) -> list[Line]:
    """Return a line for each of the first causes of trouble, the worst first.

    Args:
        room: maximum number of lines, None = `_MOST_CAUSES`.
    """
    causes = summarize_health(view.overview).causes
    most = _MOST_CAUSES if room is None else room
    lines: list[Line] = []
    for number, cause in enumerate(causes):
        (sign, style), *_ = draw_state(_WORDS_OF_LEVELS.get(cause.level, "disabled"), terminal)
        text = safe_text(cause.text, terminal.has_unicode)
        first, *further = wrap_text(text, terminal.width - 2)
        drawn: list[Line] = [(Piece(f"{sign.partition(' ')[0]} ", style), Piece(first, style))]
        drawn += [(Piece(f"  {part}", style),) for part in further]
        rest = len(causes) - number
        if len(lines) + len(drawn) + (rest > 1) > most:
            text = f"{terminal.choose('…', '...')} and {rest:,} more" if lines else ""
            return [*lines, (Piece(text, Style.DIM),)] if text else []
        lines += drawn
    return lines


def _draw_counts(overview: Overview) -> Line:
    guests = [count_many(overview.guests.get(kind, 0), kind.value) for kind in WorkloadKind]
    claims = [f"{count:,} {state}" for state, count in sorted(overview.claims.items()) if count]
    text = ", ".join(guests)
    if claims:
        text += f"; claims: {', '.join(claims)}"
    return make_line(Piece(text, Style.DIM))


def draw_totals(view: FleetView, terminal: Terminal, has_parts: bool = True) -> list[Line]:
    """Return the bars of the resources that the fleet has.

    Args:
        has_parts: with a line below each, which names its parts, and has the last week.
    """
    lines = []
    for resource, use in view.overview.totals.items():
        if use.total or use.allocated:
            drawn = _draw_total(resource, use, view, terminal)
            lines += drawn if has_parts else drawn[:1]
    nodes = len(view.overview.nodes)
    counts = {name: use.nodes for name, use in view.overview.measured.items()}
    if has_parts and any(count < nodes for count in counts.values()):
        shown = ", ".join(f"{_name_in_text(name)} on {count:,}" for name, count in counts.items())
        text = f"in use, as measured: {shown} of {count_many(nodes, 'node')}"
        lines.append(make_line(Piece(text, Style.DIM)))
    if has_parts and (by_guests := view.overview.used_by_guests):
        text = ", ".join(
            f"{_name_in_text(name)} {use.share}{f' on {use.nodes:,}' if use.nodes < nodes else ''}"
            for name, use in by_guests.items()
        )
        lines.append(make_line(Piece(f"in use by guests: {text}", Style.DIM)))
    return lines


def _draw_total(resource: str, use: ResourceUse, view: FleetView, terminal: Terminal) -> list[Line]:
    """Return a bar with what is used, and lines with each part, the last week, and the rest.

    The rest is what is left on hosts that get no claims.
    """
    measured = view.overview.measured
    left = view.overview.left[resource]
    share = render_percent(use.allocated, use.limit)
    parts_of = PARTS.get(resource, 1)
    amounts = render_of(resource, use.allocated / parts_of, use.limit / parts_of)
    numbers = f"{amounts}  {share}"
    room = terminal.width - _LABEL - _BEYOND - _NUMBERS - (_MEASURED if measured else 0)
    width = max(10, min(60, room))
    bar = pad_line(draw_bar(use, width, _BEYOND - 2, terminal), width + _BEYOND)
    style = Style.BAD if use.left < 0 else Style.TITLE
    parts = _draw_parts(resource, use, left, terminal)
    indent = _LABEL if _LABEL + line_width(parts) <= terminal.width else 2
    title = Piece(TITLES[resource].ljust(_LABEL), Style.TITLE)
    week = _draw_week(resource, view.trend, terminal.width - indent - line_width(parts), terminal)
    line = (title, *bar, Piece(numbers, style))
    if resource in measured:
        in_use = f"{measured[resource].share} in use".rjust(_MEASURED)
        line = (*pad_line(line, line_width((title, *bar)) + _NUMBERS - 2), Piece(in_use))
    elsewhere = left.render_elsewhere(resource)
    further = wrap_text(elsewhere, terminal.width - indent) if elsewhere else []
    return [
        line,
        (Piece(" " * indent), *parts, *week),
        *((Piece(" " * indent), Piece(text, Style.DIM)) for text in further),
    ]


def _draw_week(resource: str, trend: Trend, room: int, terminal: Terminal) -> Line:
    """Return the share that was allocated in the last week, for people and if there is room."""
    width = min(_MOST_CELLS, room - len(_WEEK))
    is_known = len(trend.hours) > 1 and resource in TREND_RESOURCES
    if not is_known or not terminal.is_interactive or width < _FEWEST_CELLS:
        return ()
    line = draw_sparkline(list_shares(trend.hours, resource, WEEK_HOURS, width), terminal)
    return (Piece(f"{_WEEK}{line}", Style.DIM),)


def _draw_parts(resource: str, use: ResourceUse, left: Left, terminal: Terminal) -> Line:
    """Return the amounts of a bar, each with the character that fills its part."""
    render = partial(render_parts, resource)
    parts = list(zip(BAR_PARTS, (use.reserved, use.claimed, use.unclaimed), strict=True))
    words = [(style, f"{render(amount)} {style.value}") for style, amount in parts if amount]
    words.append((Style.LEFT if left.amount >= 0 else Style.EXCESS, left.render(resource)))
    pieces: list[Piece] = []
    for style, text in words:
        gap = "  " if pieces else ""
        pieces += (Piece(gap + fill_of(style, terminal), style), Piece(f" {text}"))
    if use.limit != use.total:
        share = render_percent(use.allocated, use.total)
        pieces.append(Piece(f"  physical {render(use.total)}: {share}", Style.DIM))
    return tuple(pieces)


def _name_in_text(resource: str) -> str:
    return TITLES[resource] if resource == VCPU else TITLES[resource].lower()


def _draw_state(line: NodeLine, now: datetime, terminal: Terminal) -> Line:
    """Return the state of a node, and since when it is down."""
    (text, style), *_ = draw_state(_word_of_node(line), terminal)
    if line.down_since is None:
        return (Piece(text, style),)
    age = render_age((now - line.down_since).total_seconds(), is_short=True)
    return (Piece(f"{text} {age}", style),)


def _word_of_node(line: NodeLine) -> str:
    """Return the one word for a node: its state, or that it is not read."""
    word = word_of(line.state, line.status, line.maintenance)
    if line.state != "up" or line.freshness == "fresh":
        return word
    return "never read" if line.freshness == "never" else line.freshness.value


def draw_nodes(
    view: FleetView, nodes: Sequence[NodeLine], terminal: Terminal, chosen: str = MEMORY
) -> list[Line]:
    """Return the header and a line for each node; bars are as wide as the rest allows.

    Args:
        chosen: the resource class of which the last day is shown, if hours are known.
    """
    has_days = bool(view.hours) and terminal.width >= _WITH_DAYS
    days = {name: _DAY + 1 if has_days and name == chosen else 0 for name in _SMALL}
    problems = [_draw_problems(view.problems_of(line), terminal) for line in nodes]
    states = [_draw_state(line, view.overview.now, terminal) for line in nodes]
    names = _list_names(nodes, terminal)
    end_titles = _ENDS if terminal.width >= _WITH_AGES else _ENDS[:1]
    ends = [_draw_end(line)[: len(end_titles)] for line in nodes]
    titles = ("STATE", "HOST", "NODE")[: 1 + len(names)]
    layout = _fit_nodes(
        [_widest(titles[0], states), *map(_width_of_names, titles[1:], names, repeat(terminal))],
        [_widest(title, [end[i] for end in ends]) for i, title in enumerate(end_titles)],
        max(map(line_width, problems)),
        terminal.width - sum(days.values()),
    )
    shown = [
        shorten_names(column, width, terminal.has_unicode)
        for column, width in zip(names, layout.starts[1:], strict=True)
    ]
    starts = [
        (state, *(make_line(each[name]) for each, name in zip(shown, row, strict=True)))
        for state, row in zip(states, zip(*names, strict=True), strict=True)
    ]
    bars = [
        TITLES[resource].upper().ljust(layout.bar + layout.percent + days[resource])
        for resource in _SMALL
    ]
    header = [
        *(title.ljust(width) for title, width in zip(titles, layout.starts, strict=True)),
        *bars,
        *(title.rjust(width) for title, width in zip(end_titles, layout.ends, strict=True)),
    ]
    lines: list[Line] = [(Piece("  ".join(header), Style.TITLE),)]
    for line, start, end, problem in zip(nodes, starts, ends, problems, strict=True):
        pieces: list[Piece] = []
        for cell, width in zip(start, layout.starts, strict=True):
            pieces += (*pad_line(cell, width), _GAP)
        for resource in _SMALL:
            pieces += _draw_small(line.amounts, resource, layout, terminal)
            if days[resource]:
                pieces.append(_draw_day(view.hours.get(line.node.uuid, ()), resource, terminal))
            pieces.append(_GAP)
        for cell, width in zip(end, layout.ends, strict=True):
            pieces += (*pad_line(cell, width, is_right=True), _GAP)
        lines.append((*pieces, *problem))
    return lines


@dataclass(frozen=True, slots=True)
class _NodeLayout:
    """Widths of the columns of nodes: those before the bars, a bar, its percentage, those after.

    Attributes:
        bar: 0 = without bars.
    """

    starts: tuple[int, ...]
    bar: int
    percent: int
    ends: tuple[int, ...]


def _fit_nodes(
    starts: Sequence[int], ends: Sequence[int], problem: int, available: int
) -> _NodeLayout:
    """Return widths that fit: bars get narrower first, then the problem, then bars are left out.

    At last names are cut.

    Args:
        starts: needed by the state and the names.
        problem: needed by the longest problem.
    """
    gaps = 2 * (len(starts) + len(ends) + len(_SMALL))
    rest = available - gaps - sum(ends) - starts[0]
    least, most = _SMALL_WIDTHS
    names = list(starts[1:])
    wanted = min(_PROBLEM, problem)
    percent = _PERCENT if available >= _WITH_AGES else _NARROW_PERCENT
    bar = min(most, (rest - sum(names) - wanted) // len(_SMALL) - percent)
    needed = sum(min(name, _LEAST_NAME) for name in names)
    cut = wanted - min(_LEAST_PROBLEM, wanted)
    if bar < least:
        has_room = needed <= rest - len(_SMALL) * (least + percent) - wanted + cut
        bar, percent = (least, percent) if has_room else (0, _PERCENT)
    room = rest - len(_SMALL) * (bar + percent) - wanted
    while sum(names) > max(room, min(needed, room + cut), _FEWEST * len(names)):
        names[names.index(max(names))] -= 1
    return _NodeLayout((starts[0], *names), bar, percent, tuple(ends))


def _widest(title: str, cells: Iterable[Line]) -> int:
    return max(len(title), *map(line_width, cells))


def _list_names(nodes: Sequence[NodeLine], terminal: Terminal) -> list[list[str]]:
    """Return the column of hosts and, if any differs by more than a domain, that of nodes.

    A node with the name of its host has an empty text.
    """
    pairs = [
        (safe_text(line.node.host, terminal.has_unicode), _name_beside_host(line, terminal))
        for line in nodes
    ]
    hosts, others = map(list, zip(*pairs, strict=True))
    return [hosts, others] if any(others) else [hosts]


def _name_beside_host(line: NodeLine, terminal: Terminal) -> str:
    host, name = line.node.host, line.node.nodename
    is_same = bool(name) and first_label(name) == first_label(host)
    return "" if is_same else safe_text(name, terminal.has_unicode)


def _width_of_names(title: str, names: Sequence[str], terminal: Terminal) -> int:
    """Return the width of a column of names: wide ones lose their domain, and the widest more."""
    widest = max(map(width_of, names))
    is_fit = widest <= terminal.width // _WIDEST_NAME
    return max(len(title), widest if is_fit else width_of_names(names))


def _draw_end(line: NodeLine) -> list[Line]:
    """Return the cells of the number of guests and the age of the reading."""
    return [
        make_line(f"{sum(line.guests.values()):,}"),
        make_line(render_age(line.audit_age_seconds, is_short=True)),
    ]


def _draw_small(amounts: Uses, resource: str, layout: _NodeLayout, terminal: Terminal) -> Line:
    """Return a small bar with its percentage."""
    use = amounts.get(resource, ResourceUse())
    style = style_of_share(use.allocated, use.limit)
    share = render_percent(use.allocated, use.limit)
    text = share if layout.percent == _PERCENT else share.replace(" ", "")
    bar = draw_bar(use, layout.bar, 0, terminal)
    return (*bar, Piece(text.rjust(layout.percent), style))


def _draw_day(hours: Sequence[TrendSample], resource: str, terminal: Terminal) -> Piece:
    """Return the share that a node had allocated in the last day."""
    shares = list_shares(hours, resource, DAY_HOURS, _DAY)
    return Piece(f" {draw_sparkline(shares, terminal)}", Style.DIM)


def _draw_problems(problems: Sequence[Problem], terminal: Terminal) -> Line:
    """Return the first problem of a node, and the number of the others."""
    if not problems:
        return BLANK
    first = problems[0]
    text = first.text
    if first.age_seconds is not None and first.severity is not Severity.LOST:
        text += f" for {render_age(first.age_seconds)}"
    more = f" (+{len(problems) - 1})" if len(problems) > 1 else ""
    style = Style.BAD if first.severity is Severity.LOST else Style.WARNING
    return make_line(Piece(safe_text(f"{text}{more}", terminal.has_unicode), style))


def _draw_rest(rest: Sequence[NodeLine], terminal: Terminal) -> Line:
    """Return the sum of the nodes that have no line."""
    fine = sum(line.severity is Severity.FINE for line in rest)
    shares = []
    for resource in _SMALL:
        use = sum((line.amounts.get(resource, ResourceUse()) for line in rest), ResourceUse())
        share = render_percent(use.allocated, use.limit)
        shares.append(f"{_name_in_text(resource)} {share}")
    nodes = count_many(len(rest), "node")
    if fine == len(rest):
        nodes += f" that {'is' if fine == 1 else 'are'} fine"
    elif fine:
        nodes += f", of which {fine:,} {'is' if fine == 1 else 'are'} fine"
    text = f"{terminal.choose('…', '...')} and {nodes}: {', '.join(shares)}"
    return make_line(Piece(text, Style.DIM))
