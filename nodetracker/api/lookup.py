"""Find what a request names, and answer with the page of a list."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from nodetracker.accounting.liveness import Liveness
from nodetracker.api.call import Answer, Call
from nodetracker.api.query import parse_path_uuid
from nodetracker.model.errors import NotFoundError
from nodetracker.model.fleet import FleetNode, FleetQuery
from nodetracker.model.listing import Page, ServiceQuery
from nodetracker.model.service import ServiceRecord
from nodetracker.usecases.reads import read_live_pages, read_liveness


def next_url(call: Call, marker: str | int) -> str:
    """Return the URL of the page after an item."""
    return call.url.with_query(limit=call.limit, marker=marker)


def next_links(call: Call, marker: str | int | None) -> list[dict[str, Any]]:
    """Return the links to the page after an item, none if there is no item."""
    return [] if marker is None else [{"rel": "next", "href": next_url(call, marker)}]


def answer_page(
    call: Call,
    noun: str,
    shown: Sequence[Any],
    marker: str | int | None,
    count: int | None = None,
) -> Answer:
    """Return a page of nodetracker's own API.

    Args:
        marker: of the last item of this page; None if it is the last page.
        count: of the items of all pages, None if it was not asked for.
    """
    body = {noun: shown, "links": next_links(call, marker)}
    return Answer(body if count is None else body | {"count": count})


def get_node(call: Call, columns: tuple[str, ...] = (), reads_audits: bool = False) -> FleetNode:
    """Return the node that the path names, by one statement.

    Raises:
        NotFoundError: no such node.
    """
    return get_node_page(call, columns, reads_audits).items[0]


def get_node_page(
    call: Call, columns: tuple[str, ...] = (), reads_audits: bool = False
) -> Page[FleetNode]:
    """Return the node that the path names as a page of one, which has the database's time.

    Raises:
        NotFoundError: no such node.
    """
    uuid = parse_path_uuid(call.params["uuid"], "node")
    page = call.store.list_fleet(FleetQuery(uuid=uuid, columns=columns, reads_audits=reads_audits))
    if not page.items:
        raise NotFoundError(f"no such node: {uuid}")
    return page


def get_liveness(call: Call, now: datetime) -> Liveness:
    """Return what decides about services at a time, by one statement."""
    return read_liveness(call.store, now, call.service_down_time)


def read_service_pages(call: Call, query: ServiceQuery) -> Iterator[tuple[ServiceRecord, Liveness]]:
    """Yield all services, each with what decides about it."""
    store = call.store
    pages = read_live_pages(store, store.list_service_page, query, call.service_down_time)
    for page, liveness in pages:
        for service in page.items:
            yield service, liveness
