"""``/v1/warnings``, and those of a node."""

from nodetracker.accounting.reports.warnings import render_warning
from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers.own.lookup import find_node, marker_id
from nodetracker.api.paging import next_links, page_of
from nodetracker.model.listing import WarningQuery
from nodetracker.model.warning import WarningKind


def list_warnings(call: Call) -> Answer:
    """List warnings in order of when they were first seen."""
    return _list(call, call.query.get("host"), call.query.get("node"))


def list_warnings_of_node(call: Call) -> Answer:
    """List the warnings of a node in order of when they were first seen."""
    node = find_node(call).node
    return _list(call, node.host, node.nodename)


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    wanted = page_of(call)
    kind = call.query.get("kind")
    query = WarningQuery(
        after=marker_id(wanted.marker),
        limit=wanted.limit,
        host=host,
        nodename=nodename,
        kinds=() if kind is None else (WarningKind(kind),),
        is_resolved=None if call.query.get("all") else False,
    )
    page = call.store.list_warning_page(query)
    shown = [{"id": record.id, **render_warning(record)} for record in page.items]
    return Answer({"warnings": shown, "links": next_links(call, page.next)})
