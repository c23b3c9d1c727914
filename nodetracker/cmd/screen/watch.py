"""What ``overview --watch`` shows and how keys change it, from values to lines."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.cmd.screen.lines import BLANK, Line, Piece, Style, cut_line, dim_lines
from nodetracker.cmd.screen.overview import (
    draw_causes,
    draw_nodes,
    draw_overview,
    draw_sentence,
    draw_totals,
)
from nodetracker.cmd.screen.terminal import Terminal, safe_text
from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.text import natural_key
from nodetracker.views.overview import NodeLine
from nodetracker.views.problems import FleetView

NodeKey = tuple[str, str]
"""Host and nodename."""

_TOTALS = 4
_CAUSES = 3
_LEAST_NODES = 6  # totals are left out rather than to show fewer
_MARKER = 2


class Order(enum.Enum):
    """By what nodes are sorted; names last."""

    WORST = "the worst first"
    CPU = "the fullest by CPU first"
    MEMORY = "the fullest by memory first"
    DISK = "the fullest by disk first"
    READ = "the longest unread first"
    NAME = "by name"

    @property
    def next(self) -> "Order":
        """The order that follows in turn."""
        orders = list(Order)
        return orders[(orders.index(self) + 1) % len(orders)]

    @property
    def resource(self) -> str | None:
        """The resource class by whose share nodes are sorted, if any."""
        return {Order.CPU: VCPU, Order.MEMORY: MEMORY, Order.DISK: DISK}.get(self)


_RESOURCES = {Order.CPU: VCPU, Order.MEMORY: MEMORY, Order.DISK: DISK}


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the fleet cannot be read.

    Attributes:
        since: local time, for people.
        reason: the last error, "" while there is only no answer.
    """

    since: str
    reason: str


@dataclass(frozen=True, slots=True)
class Watch:
    """What somebody looks at.

    Attributes:
        text: part of the names of the nodes that are shown; it is typed while `is_typing`.
        selected: None = the first node.
        opened: the node that is described.
        top: first line of the description that is shown.
    """

    order: Order = Order.WORST
    text: str = ""
    is_typing: bool = False
    selected: NodeKey | None = None
    opened: NodeKey | None = None
    top: int = 0
    is_over: bool = False


def list_lines(view: FleetView, watch: Watch) -> list[NodeLine]:
    """Return the lines of the fleet that are selected, in their order."""
    wanted = watch.text.lower()
    lines = [
        line
        for line in view.overview.lines
        if wanted in line.node.host.lower() or wanted in line.node.nodename.lower()
    ]
    rank = _rank(watch.order)
    return sorted(lines, key=lambda line: (rank(line), *map(natural_key, _key_of(line))))


def _rank(order: Order) -> Callable[[NodeLine], Any]:
    if (resource := order.resource) is not None:
        return lambda line: -_share_of(line, resource)
    if order is Order.READ:
        return lambda line: (
            -(float("inf") if line.audit_age_seconds is None else line.audit_age_seconds)
        )
    return lambda line: -line.severity if order is Order.WORST else 0


def _share_of(line: NodeLine, resource: str) -> float:
    use = line.amounts[resource]
    return use.allocated / use.limit if use.limit > 0 else float(use.allocated > 0)


def _key_of(line: NodeLine) -> NodeKey:
    return line.node.host, line.node.nodename


def press(watch: Watch, key: str, view: FleetView | None, terminal: Terminal) -> Watch:
    """Return what is looked at after a key.

    Args:
        key: a character, or a name as prompt_toolkit has it, such as ``up`` and ``c-m``.
    """
    if key == "c-c" or (key == "q" and not watch.is_typing):
        return replace(watch, is_over=True)
    if watch.is_typing:
        return _type(watch, key)
    page = max(1, terminal.height - 2)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page,
             "home": -(10**9), "end": 10**9}  # fmt: skip
    if watch.opened is not None:
        if key in steps:
            return replace(watch, top=max(0, watch.top + steps[key]))
        is_left = key in ("escape", "left", "c-m", "c-h")
        return replace(watch, opened=None, top=0) if is_left else watch
    if key == "escape":
        return replace(watch, text="")
    if key == "/":
        return replace(watch, is_typing=True)
    if key == "s":
        return replace(watch, order=watch.order.next, selected=None)
    lines = [] if view is None else list_lines(view, watch)
    if not lines:
        return watch
    index = _index_of(lines, watch.selected)
    if key in steps:
        moved = min(len(lines) - 1, max(0, index + steps[key]))
        return replace(watch, selected=_key_of(lines[moved]))
    if key in ("c-m", "right") and lines[index].node.nodename:
        return replace(watch, selected=_key_of(lines[index]), opened=_key_of(lines[index]))
    return watch


def _type(watch: Watch, key: str) -> Watch:
    if key == "escape":
        return replace(watch, text="", is_typing=False)
    if key in ("c-m", "up", "down"):
        return replace(watch, is_typing=False, selected=None)
    if key == "c-h":
        return replace(watch, text=watch.text[:-1])
    return replace(watch, text=watch.text + key) if len(key) == 1 and key.isprintable() else watch


def _index_of(lines: Sequence[NodeLine], selected: NodeKey | None) -> int:
    """Return the index of the selected line, 0 if it is gone."""
    return next((n for n, line in enumerate(lines) if _key_of(line) == selected), 0)


def draw_watch(
    watch: Watch,
    view: FleetView | None,
    outage: Outage | None,
    description: Sequence[Line] | None,
    terminal: Terminal,
) -> list[Line]:
    """Return the screen, with the keys or, during an outage, its start in the last line.

    Args:
        description: of the node that is opened, None = not read yet.
    """
    room = max(1, terminal.height - 1)
    if view is None:
        lines: list[Line] = [(Piece("reading the fleet", Style.DIM),)]
    elif watch.opened is not None:
        name = safe_text(watch.opened[1], terminal.has_unicode)
        lines = [(Piece(f"reading {name}", Style.DIM),)]
        if description is not None:
            top = min(watch.top, max(0, len(description) - room))
            lines = list(description[top : top + room])
    else:
        lines = _draw_fleet(watch, view, terminal)
    if outage is not None:
        return draw_outage(lines[: max(0, room - 1)] if view else [], outage, terminal)
    lines = lines[:room]
    lines += [BLANK] * (room - len(lines))
    return [
        *(cut_line(line, terminal.width, terminal.has_unicode) for line in lines),
        cut_line(_draw_keys(watch, terminal), terminal.width, terminal.has_unicode),
    ]


def draw_outage(lines: Sequence[Line], outage: Outage, terminal: Terminal) -> list[Line]:
    """Return the last picture, dimmed, if any, and since when there is no answer."""
    text = f"no answer since {outage.since}"
    if lines:
        text += "; this is the last picture"
    if outage.reason:
        text += f": {outage.reason}"
    notice = cut_line((Piece(text, Style.BAD),), terminal.width, terminal.has_unicode)
    return [*dim_lines(lines), BLANK, notice] if lines else [notice]


def list_shown(watch: Watch, view: FleetView, terminal: Terminal) -> Sequence[NodeLine]:
    """Return the lines of nodes that are on the screen."""
    return [] if watch.opened else _find_page(watch, view, terminal)[1]


def _find_page(
    watch: Watch, view: FleetView, terminal: Terminal
) -> tuple[list[Line], list[NodeLine], int]:
    """Return what is above the nodes, those on the screen, and the index of the selected one."""
    room = max(1, terminal.height - 1)
    head = draw_sentence(view)
    totals = draw_totals(view, terminal, has_parts=False)[:_TOTALS]
    if room - len(head) - len(totals) - 2 >= _LEAST_NODES:
        head += totals
    causes = draw_causes(view, terminal, _CAUSES)
    if room - len(head) - len(causes) - 2 >= _LEAST_NODES:
        head[1:1] = causes
    head.append(BLANK)
    lines = list_lines(view, watch)
    height = max(1, room - len(head) - 1)
    index = _index_of(lines, watch.selected)
    first = index // height * height  # page by page, so that lines stay where they are
    return head, lines[first : first + height], index - first


def _draw_fleet(watch: Watch, view: FleetView, terminal: Terminal) -> list[Line]:
    head, lines, index = _find_page(watch, view, terminal)
    if not lines:
        return [*head, (Piece("no node has this in its name", Style.DIM),)]
    narrower = replace(terminal, width=max(1, terminal.width - _MARKER))
    header, *drawn = draw_nodes(view, lines, narrower, watch.order.resource or MEMORY)
    sign = terminal.choose("▶ ", "> ")
    marks = [Piece(sign if n == index else "  ", Style.TITLE) for n in range(len(drawn))]
    return [
        *head,
        (Piece("  "), *header),
        *((mark, *line) for mark, line in zip(marks, drawn, strict=True)),
    ]


def _draw_keys(watch: Watch, terminal: Terminal) -> Line:
    if watch.is_typing:
        typed = safe_text(watch.text, terminal.has_unicode)
        return (Piece(f"/{typed}_", Style.TITLE), Piece("  Enter: keep  Esc: all", Style.DIM))
    if watch.opened is not None:
        return (Piece("Esc: back  up, down: move  q: quit", Style.DIM),)
    filtered = f'nodes with "{safe_text(watch.text, terminal.has_unicode)}", ' if watch.text else ""
    return (
        Piece(f"{filtered}{watch.order.value}", Style.TITLE),
        Piece("  up, down: move  Enter: describe  /: filter  s: sort  q: quit", Style.DIM),
    )


def draw_picture(view: FleetView | None, outage: Outage | None, terminal: Terminal) -> list[Line]:
    """Return what remains on the terminal: the fleet, dimmed during an outage."""
    if outage is None:
        if view is None:
            return [(Piece("reading the fleet", Style.DIM),)]
        return draw_overview(view, terminal, terminal.height)
    room = max(0, terminal.height - 2)
    lines = [] if view is None else draw_overview(view, terminal, room)[:room]
    return draw_outage(lines, outage, terminal)
