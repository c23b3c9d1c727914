"""``/v1/history``, and that of a node."""

from collections.abc import Mapping
from datetime import UTC, datetime

from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import NODENAME, PAGE, answer, answered_page, parameters
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_marker_id
from nodetracker.model.change import ChangeKind, EventKind
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import HistoryQuery
from nodetracker.usecases.feed import FeedCursor, parse_cursor, read_feed
from nodetracker.views.history import render_history_page

_TIME: Schema = {"description": "a time in ISO 8601, UTC unless it has an offset", "type": "string"}
PERIOD: Schema = {"since": _TIME, "until": _TIME}

LIST_QUERY = parameters(host=str, nodename=NODENAME, kind=EventKind, **PERIOD, **PAGE)

OF_NODE_QUERY = parameters(kind=EventKind, **PERIOD, **PAGE)

EVENTS_QUERY = parameters(
    after=(str, "`next` of the answer before; without it, the newest events"),
    limit=PAGE["limit"],
    host=str,
    kind=EventKind,
)

_LINE = answer(
    id=int,
    at=datetime,
    host=str,
    nodename=str,
    what=(ChangeKind, 'of a node\'s row; "update" in all other lines'),
    diff=Mapping,
    kind=(str, "node, claim, move, service or warning"),
    changes=([str], "the diff in words"),
)

HISTORY = answered_page("history", _LINE)

EVENTS = answer(events=[_LINE], next=(str, "what `after` must be to get those that follow"))

_RULES = {
    EventKind.NODE: "nodetracker:nodes:list",
    EventKind.CLAIM: "nodetracker:claims:list",
    EventKind.MOVE: "nodetracker:migrations:list",
    EventKind.SERVICE: "nodetracker:services:list",
    EventKind.WARNING: "nodetracker:warnings:list",
}
"""Kind of events -> the rule that lists what they are about."""


def list_events(call: Call) -> Answer:
    """List what happened since an earlier answer, oldest first, each event once."""
    wanted = call.query.get("kind")
    kinds = tuple(
        kind
        for kind, rule in _RULES.items()
        if wanted in (None, kind) and call.is_allowed(rule, {})
    )
    after = call.query.get("after")
    cursor = None if after is None else parse_cursor(after)
    if not kinds:
        return Answer({"events": [], "next": after or FeedCursor(call.store.now()).encode()})
    query = HistoryQuery(limit=call.limit, host=call.query.get("host"), kinds=kinds)
    events, cursor = read_feed(call.store, query, cursor)
    shown = render_history_page(events[::-1])[::-1]
    return Answer({"events": shown, "next": cursor.encode()})


def list_history(call: Call) -> Answer:
    """List changes of nodes, claims, moves, services and warnings, newest first."""
    return _list(call, call.query.get("host"), call.query.get("nodename"))


def list_history_of_node(call: Call) -> Answer:
    """List changes of a node, of claims and moves on it and of its warnings, newest first."""
    node = get_node(call).node
    return _list(call, node.host, node.nodename)


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    query = HistoryQuery(
        after=parse_marker_id(call.marker),
        limit=call.limit,
        host=host,
        nodename=nodename,
        kinds=tuple(map(EventKind, filter(None, [call.query.get("kind")]))),
        since=read_time(call, "since"),
        until=read_time(call, "until"),
    )
    page = call.store.list_history_page(query)
    return answer_page(call, "history", render_history_page(page.items), page.next)


def read_time(call: Call, name: str) -> datetime | None:
    """Return the time in a parameter; without an offset it is UTC.

    The plus of an offset, as answers have it, is a space in a query that does not encode it.

    Raises:
        RequestError: it is not a time.
    """
    text = call.query.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise RequestError(
            name, f"invalid value {text!r}: expected a time such as 2026-01-31T12:00:00Z"
        ) from None
