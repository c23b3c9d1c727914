"""Draw lists as tables that fit the terminal.

A column says which values it shows, how, and how important it is. Flexible columns get
narrower first. Then columns are left out, those of the highest priority number first.
Names lose what they have in common, and none looks like another. No other column is ever
cut, so uuids never break.
"""

import enum
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from nodetracker.cmd.screen.lines import (
    Line,
    Piece,
    Style,
    draw_node_state,
    draw_state,
    style_of_share,
)
from nodetracker.cmd.screen.terminal import (
    Terminal,
    cut_middle,
    cut_start,
    cut_text,
    pad_text,
    safe_text,
    width_of,
    wrap_text,
)
from nodetracker.model.amount_text import (
    NONE,
    Role,
    render_gib,
    render_mib,
    render_number,
    render_of,
    render_resource,
)
from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.text import count_noun, render_minute
from nodetracker.views.values import render_age, render_moment, render_percent, render_plain


class Kind(enum.Enum):
    """How a column's values are shown. The shares have two values: a part and its whole."""

    TEXT = enum.auto()
    FLEXIBLE = enum.auto()  # text that may take several lines
    NAME = enum.auto()  # shortened where it is too long; see `shorten_names`
    STATE = enum.auto()
    POWER = enum.auto()  # the state of a guest, and since when it has vanished
    # Of a service: its state, status and maintenance, in one cell. Of a node also whether it was
    # ever read, and for how many seconds its host is down.
    NODE_STATE = enum.auto()
    NUMBER = enum.auto()  # as it is, as an id
    COUNT = enum.auto()  # a number of things, with separators of thousands
    FEW = enum.auto()  # a count of which most rows have none
    NAMED = enum.auto()  # a name, or the id in its second column
    RESOURCE = enum.auto()  # an exact amount of the resource class in its second column
    FURTHER = enum.auto()  # further resource classes and devices; may take several lines
    MIB = enum.auto()
    GIB = enum.auto()
    AGE = enum.auto()  # seconds
    MOMENT = enum.auto()  # a time in ISO 8601, shown as an age
    TIME = enum.auto()  # one that is shown as a time, in UTC
    FRACTION = enum.auto()  # of what may be allocated; above 1, more is
    SHARE = enum.auto()
    SHARE_MIB = enum.auto()
    SHARE_GIB = enum.auto()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its header.
        names: the columns of the list that it shows.
        priority: 0 = always shown; the highest is left out first, and those of 1 and
            higher also where all values are missing.
        least: width of a flexible column before others are left out.
        same_as: title of a column; where both are equal in all rows, this one is left out.
        is_deadline: its moments lie in the future; past ones are shown as missed.
    """

    title: str
    names: tuple[str, ...]
    kind: Kind = Kind.TEXT
    priority: int = 0
    least: int = 24
    same_as: str = ""
    is_deadline: bool = False

    @property
    def is_right(self) -> bool:
        """Whether its values are aligned right."""
        return self.kind not in (
            Kind.TEXT, Kind.FLEXIBLE, Kind.NAME, Kind.NAMED, Kind.FURTHER, Kind.STATE,
            Kind.POWER, Kind.NODE_STATE,
        )  # fmt: skip

    @property
    def is_flexible(self) -> bool:
        """Whether its values may take several lines."""
        return self.kind in (Kind.FLEXIBLE, Kind.NAME, Kind.FURTHER)


_RENDERERS: dict[Kind, Callable[[Any], str]] = {
    Kind.TEXT: render_plain,
    Kind.FLEXIBLE: render_plain,
    Kind.NAME: render_plain,
    Kind.NUMBER: render_plain,
    Kind.COUNT: lambda number: NONE if number is None else render_number(number),
    Kind.FEW: lambda number: render_number(number) if number else NONE,
    Kind.TIME: lambda text: NONE if text is None else render_minute(datetime.fromisoformat(text)),
    Kind.MIB: render_mib,
    Kind.GIB: render_gib,
    Kind.AGE: partial(render_age, is_short=True),
}
_SHARES = {Kind.SHARE: VCPU, Kind.SHARE_MIB: MEMORY, Kind.SHARE_GIB: DISK}
"""Kind of a share -> the resource class whose units it has."""
_KINDS = (  # end of a column's name -> kind
    ("_mb", Kind.MIB),
    ("_gb", Kind.GIB),
    ("_mb_used", Kind.MIB),
    ("_gb_used", Kind.GIB),
    ("mem_available", Kind.MIB),
    ("disk_available_least", Kind.GIB),
    ("age_seconds", Kind.AGE),
    ("_at", Kind.MOMENT),
    ("_seen", Kind.MOMENT),
    ("since", Kind.MOMENT),
)
_STATES = ("state", "status", "power_state")


def column_of(name: str, sample: object) -> Column:
    """Return the column that shows one column of a list as its name and one value suggest."""
    if name in _STATES:
        return Column(name, (name,), Kind.STATE)
    fallback = Kind.NUMBER if is_number(sample) else Kind.TEXT
    if isinstance(sample, Mapping | list | tuple):
        fallback = Kind.FLEXIBLE
    kind = next((kind for end, kind in _KINDS if name.endswith(end)), fallback)
    is_moment = kind is not Kind.MOMENT or sample is None or isinstance(sample, str)
    return Column(name, (name,), kind if is_moment else fallback)


def is_number(value: object) -> bool:
    """Return whether a value is a number, which a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def make_drawer(
    column: Column, terminal: Terminal, now: datetime | None
) -> Callable[[Mapping[str, Any]], Piece]:
    """Return what draws a row's cell in one piece, safe to print.

    Args:
        now: of the ages; required by `Kind.MOMENT`.
    """
    kind, has_unicode = column.kind, terminal.has_unicode
    name, *others = column.names
    if (render := _RENDERERS.get(kind)) is not None:
        return lambda row: Piece(safe_text(render(row[name]), has_unicode))
    if (resource := _SHARES.get(kind)) is not None:
        return lambda row: _draw_share(resource, row[name], row[others[0]])
    if kind is Kind.NAMED:
        return lambda row: Piece(safe_text(row[name] or row[others[0]], has_unicode))
    if kind is Kind.RESOURCE:
        return lambda row: _draw_resource(row[others[0]], row[name])
    if kind is Kind.FRACTION:
        return lambda row: _draw_fraction(row[name])
    if kind is Kind.NODE_STATE:
        return lambda row: _draw_node_state([row[each] for each in column.names], terminal)
    if kind is Kind.MOMENT:
        assert now is not None
        return lambda row: _draw_moment(row[name], now, column.is_deadline)
    if kind is Kind.FURTHER:
        return lambda row: Piece(safe_text(_render_further(row[name], row[others[0]]), has_unicode))

    def draw(row: Mapping[str, Any]) -> Piece:
        if kind is Kind.POWER and row[others[0]]:
            return Piece("gone", Style.WARNING)
        value = row[name]
        text, style = draw_state(str(value), terminal)[0] if value else Piece(NONE)
        return Piece(safe_text(text, has_unicode), style)

    return draw


def _draw_share(resource: str, value: float | None, whole: float | None) -> Piece:
    if value is None or whole is None:
        return Piece(NONE)
    share = f"{render_of(resource, value, whole, '/')} {render_percent(value, whole):>5}"
    return Piece(share, style_of_share(value, whole))


def _draw_resource(resource: str, amount: float | None) -> Piece:
    return Piece(NONE if amount is None else render_resource(resource, amount, Role.REQUESTED))


def _draw_fraction(value: float | None) -> Piece:
    if value is None:
        return Piece(NONE)
    return Piece(render_percent(value, 1), style_of_share(value, 1))


def _draw_node_state(values: Sequence[Any], terminal: Terminal) -> Piece:
    state, status, maintenance, *of_node = values
    if state is None:  # of a service that manages no host
        return Piece(NONE)
    is_read, down_seconds = of_node or (True, None)
    return draw_node_state(state, status, maintenance, is_read, down_seconds, terminal)


def _draw_moment(value: str | None, now: datetime, is_deadline: bool) -> Piece:
    text = render_moment(value, now, is_short=True)
    if is_deadline and value is not None and not text.startswith("in "):
        return Piece(f"{text} ago", Style.WARNING)
    return Piece(text)


def _render_further(resources: Mapping[str, int], devices: Sequence[str]) -> str:
    """Return amounts of resource classes, and the number of PCI devices.

    >>> _render_further({"PGPU": 2}, ["0000:81:00.0"]), _render_further({}, [])
    ('2 PGPU, 1 device', '-')
    """
    parts = [f"{amount:,} {name}" for name, amount in sorted(resources.items())]
    return ", ".join(parts + [count_noun(len(devices), "device")] * bool(devices)) or NONE


_GAP = 2
_SPACE = Piece(" " * _GAP)

NARROWEST = 9
"""Cells of a name where no column is left that could be left out."""

_SHARE_OF_NAMES = 0.9
"""The part of the names that decides the width of their column; longer ones are shortened."""


def drop_domain(names: Collection[str]) -> dict[str, str]:
    """Return names without the domain that all of them have, which no address has.

    >>> list(drop_domain(["h1.rack1.example.org", "h2.rack1.example.org"]).values())
    ['h1', 'h2']
    >>> list(drop_domain(["h1.a.example.org", "h2.b.example.org", "h3"]).values())
    ['h1.a.example.org', 'h2.b.example.org', 'h3']
    """
    labels = [name.split(".") for name in names]
    least = min(map(len, labels), default=0)
    count = 0
    while count < least - 1 and len({tuple(found[-count - 1 :]) for found in labels}) == 1:
        count += 1
    if not count or labels[0][-1].isdecimal() or not all(map(operator.itemgetter(0), labels)):
        return {name: name for name in names}
    return {name: ".".join(found[:-count]) for name, found in zip(names, labels, strict=True)}


def width_of_names(names: Iterable[str]) -> int:
    """Return the width that all but the longest names need without their domain."""
    widths = sorted(map(width_of, drop_domain(set(names)).values()))
    return widths[int(_SHARE_OF_NAMES * (len(widths) - 1))] if widths else 0


def shorten_names(names: Iterable[str], width: int, has_unicode: bool = True) -> dict[str, str]:
    """Return how names are shown in at most `width` cells, without two that look the same.

    They lose the domain that all have, then their beginning, as names of one rack differ at
    their ends; those that would look the same lose another part, or get a number.

    Args:
        width: at least `NARROWEST`.

    >>> list(shorten_names(["host-0006.example.org", "host-0046.example.org"], 9).values())
    ['host-0006', 'host-0046']
    >>> list(shorten_names(["compute-rack-0006", "compute-rack-0046", "h1"], 9).values())
    ['…ack-0006', '…ack-0046', 'h1']
    """
    found = dict.fromkeys(names, "")
    if max(map(width_of, found), default=0) <= width:
        return {name: name for name in found}
    short = drop_domain(found)
    pending = [name for name in found if width_of(short[name]) > width]
    found = {name: short[name] for name in found}
    used = {short[name] for name in found} - {short[name] for name in pending}
    cuts: tuple[tuple[Callable[[str, int, bool], str], Callable[[str], str]], ...] = (
        (cut_start, first_label), (cut_start, str), (cut_middle, str), (cut_text, str),
    )  # fmt: skip
    for cut, part in cuts:
        shown = {name: cut(part(short[name]), width, has_unicode) for name in pending}
        counts = Counter(shown.values())
        done = {name for name in pending if counts[shown[name]] == 1 and shown[name] not in used}
        found |= {name: shown[name] for name in done}
        used |= {shown[name] for name in done}
        pending = [name for name in pending if name not in done]
    numbers = itertools.count(1)
    for name in pending:
        ends = (f"~{number}" for number in numbers)
        texts = (f"{cut_text(short[name], width - len(end), has_unicode)}{end}" for end in ends)
        found[name] = next(text for text in texts if text not in used)
    return found


def first_label(name: str) -> str:
    """Return a name without its domain; an address has none."""
    first, _, domain = name.partition(".")
    return name if not first or domain.rpartition(".")[2].isdecimal() else first


Widths = Mapping[int, int]
"""Index of a column that is shown -> its width, in order."""


def draw_table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    terminal: Terminal,
    now: datetime | None,
    is_complete: bool = False,
) -> list[Line]:
    """Return a table: its header, and at least one line for each row.

    Args:
        rows: column of the list -> value; in the order in which they are shown.
        now: of the ages; required if a column has one.
        is_complete: show all columns, even if the lines get longer than the terminal is wide.
    """
    is_unlimited = is_complete or not terminal.has_width
    drawers = [make_drawer(column, terminal, now) for column in columns]
    cells = [[draw(row) for row in rows] for draw in drawers]
    if not is_complete:
        columns, cells = _leave_out(columns, cells)
    needed = list(map(_width_of_column, columns, cells))
    if not is_unlimited and _total(range(len(columns)), needed) > terminal.width:
        columns, cells = _leave_out(columns, cells, has_domains=False)
        needed = list(map(_width_of_column, columns, cells))
    least = list(map(_least_of, columns, cells, needed))
    widths = fit_columns(columns, needed, least, None if is_unlimited else terminal.width)
    fitted = [
        _fit_cells(columns[index], cells[index], width, terminal.has_unicode)
        for index, width in widths.items()
    ]
    lines = [line for row in zip(*fitted, strict=True) for line in _draw_row(row, widths)]
    hidden = [column.title for index, column in enumerate(columns) if index not in widths]
    if hidden and terminal.is_interactive:
        text = f"not shown: {', '.join(hidden)} (--long shows all)"
        lines += [(Piece(line, Style.DIM),) for line in wrap_text(text, terminal.width)]
    return lines


def _leave_out(
    columns: Sequence[Column], cells: Sequence[list[Piece]], has_domains: bool = True
) -> tuple[list[Column], list[list[Piece]]]:
    """Leave out columns without any value, and those that repeat another one.

    Args:
        cells: of each column.
        has_domains: whether names that have only another domain differ.
    """
    texts = {
        column.title: [text if has_domains else first_label(text) for text, _ in drawn]
        for column, drawn in zip(columns, cells, strict=True)
    }
    kept = [
        (column, drawn)
        for column, drawn in zip(columns, cells, strict=True)
        if not (column.priority and {NONE}.issuperset(texts[column.title]))
        and texts[column.title] != texts.get(column.same_as)
    ]
    return [column for column, _ in kept], [drawn for _, drawn in kept]


def _width_of_column(column: Column, cells: Iterable[Piece]) -> int:
    return max(map(width_of, (column.title, *(text for text, _ in cells))))


def _least_of(column: Column, cells: Iterable[Piece], needed: int) -> int:
    """Return the width of a column before others are left out."""
    if not column.is_flexible:
        return needed
    if column.kind is Kind.NAME:
        typical = max(NARROWEST, width_of_names(text for text, _ in cells))
        needed = max(len(column.title), min(needed, typical))
    return min(needed, column.least)


def fit_columns(
    columns: Sequence[Column], needed: Sequence[int], least: Sequence[int], available: int | None
) -> Widths:
    """Return the columns that are shown.

    What is left is given to texts, and then to names.

    Args:
        needed: width of each column.
        least: width of each before others are left out.
        available: width of the table, None = without a limit.
    """
    kept = list(range(len(columns)))
    if available is None:
        return dict(zip(kept, needed, strict=True))
    given = list(least)
    by_priority = sorted(kept, key=lambda index: columns[index].priority)
    while _total(kept, given) > available and columns[by_priority[-1]].priority:
        kept.remove(by_priority.pop())
    while _total(kept, given) > available and any(
        columns[index].is_flexible and given[index] > NARROWEST for index in kept
    ):
        given[max(kept, key=lambda index: columns[index].is_flexible * given[index])] -= 1
    room = max(0, available - _total(kept, given))
    for index in sorted(kept, key=lambda index: columns[index].kind is Kind.NAME):
        more = min(room, needed[index] - given[index])
        given[index] += more
        room -= more
    return {index: given[index] for index in kept}


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + _GAP * (len(kept) - 1)


def _fit_cells(column: Column, cells: Iterable[Piece], width: int, has_unicode: bool) -> list[Line]:
    """Return the pieces of a column's title and cells: one each, unless a cell takes more lines."""
    is_right = column.is_right
    cells = list(cells)
    names: Mapping[str, str] = {}
    if column.kind is Kind.NAME:
        names = shorten_names((text for text, _ in cells), width, has_unicode)
    fitted: list[Line] = []
    for text, style in (Piece(column.title.upper(), Style.TITLE), *cells):
        text = names.get(text, text)
        missing = width - width_of(text)
        if missing >= 0:
            blanks = " " * missing
            fitted.append((Piece(blanks + text if is_right else text + blanks, style),))
        else:
            texts = wrap_text(text, width)
            fitted.append(tuple(Piece(pad_text(part, width, is_right), style) for part in texts))
    return fitted


def _draw_row(cells: Sequence[Line], widths: Widths) -> Iterable[Line]:
    """Yield the lines of a row: one, unless a flexible cell takes more."""
    for number in range(max(map(len, cells))):
        pieces = [_SPACE] * (2 * len(cells) - 1)
        pieces[::2] = [
            cell[number] if number < len(cell) else Piece(" " * width, cell[0].style)
            for cell, width in zip(cells, widths.values(), strict=True)
        ]
        yield tuple(pieces)
