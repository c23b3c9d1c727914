"""``/v1/history``, and that of a node."""

from collections.abc import Mapping
from datetime import UTC, datetime

from nodetracker.accounting.reports.history import render_history_page
from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import NODENAME, PAGE, answer, answered_page, parameters
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_marker_id
from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import HistoryQuery

_TIME: Schema = {"description": "a time in ISO 8601, UTC unless it has an offset", "type": "string"}
_PERIOD: Schema = {"since": _TIME, "until": _TIME}

LIST_QUERY = parameters(host=str, nodename=NODENAME, **_PERIOD, **PAGE)

OF_NODE_QUERY = parameters(**_PERIOD, **PAGE)

HISTORY = answered_page(
    "history",
    answer(
        id=int,
        at=datetime,
        host=str,
        nodename=str,
        what=ChangeKind,
        diff=Mapping,
        changes=([str], "the diff in words"),
    ),
)


def list_history(call: Call) -> Answer:
    """List what agents changed, newest first."""
    return _list(call, call.query.get("host"), call.query.get("nodename"))


def list_history_of_node(call: Call) -> Answer:
    """List what agents changed of a node, newest first."""
    node = get_node(call).node
    return _list(call, node.host, node.nodename)


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    query = HistoryQuery(
        after=parse_marker_id(call.marker),
        limit=call.limit,
        host=host,
        nodename=nodename,
        since=_read_time(call, "since"),
        until=_read_time(call, "until"),
    )
    page = call.store.list_history_page(query)
    return answer_page(call, "history", render_history_page(page.items), page.next)


def _read_time(call: Call, name: str) -> datetime | None:
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
