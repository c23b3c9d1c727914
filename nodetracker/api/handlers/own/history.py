"""``/v1/history``, and that of a node."""

from datetime import UTC, datetime

from nodetracker.accounting.reports.history import render_history_page
from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers.own.lookup import find_node, marker_id
from nodetracker.api.paging import next_links, page_of
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import HistoryQuery


def list_history(call: Call) -> Answer:
    """List what agents changed, newest first."""
    return _list(call, call.query.get("host"), call.query.get("nodename"))


def list_history_of_node(call: Call) -> Answer:
    """List what agents changed of a node, newest first."""
    node = find_node(call).node
    return _list(call, node.host, node.nodename)


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    wanted = page_of(call)
    query = HistoryQuery(
        after=marker_id(wanted.marker),
        limit=wanted.limit,
        host=host,
        nodename=nodename,
        since=_read_time(call, "since"),
        until=_read_time(call, "until"),
    )
    page = call.store.list_history_page(query)
    shown = render_history_page(page.items)
    return Answer({"history": shown, "links": next_links(call, page.next)})


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
