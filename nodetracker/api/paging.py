"""Read limit and marker of lists, and build the links to their next pages."""

from dataclasses import dataclass
from typing import Any

from nodetracker.accounting.schemas import TEXT, Schema
from nodetracker.api.call import Call

PAGE: Schema = {
    "limit": {"description": "an integer from 1", "type": "integer", "minimum": 1},
    "marker": TEXT,
}
"""The parameters of every list; `limit` above ``[api] max_limit`` is cut."""

LINKS: Schema = {
    "description": "the link to the next page, if any",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["rel", "href"],
        "properties": {"rel": {"const": "next"}, "href": {"type": "string"}},
    },
}


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that a request wants.

    Attributes:
        limit: at most so many items.
        marker: id of the last item of the page before; None = the first page.
    """

    limit: int
    marker: str | None = None


def page_of(call: Call) -> Page:
    """Return the page that a request wants."""
    highest = call.backend.settings.max_limit
    return Page(min(call.query.get("limit", highest), highest), call.query.get("marker"))


def next_url(call: Call, marker: str | int) -> str:
    """Return the URL of the page after an item."""
    return call.url.with_query(limit=page_of(call).limit, marker=marker)


def next_links(call: Call, marker: str | int | None) -> list[dict[str, Any]]:
    """Return the list of links.

    Args:
        marker: of the last item of this page; None if it is the last page.
    """
    return [] if marker is None else [{"rel": "next", "href": next_url(call, marker)}]
