"""Read whole lists of the store, page by page."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from nodetracker.model.listing import Page, PageQuery

Q = TypeVar("Q", bound=PageQuery)
T = TypeVar("T")


def read_pages(list_page: Callable[[Q], Page[T]], query: Q) -> Iterator[Page[T]]:
    """Yield the pages of a list from `query.after` to its end, each read when it is needed.

    Args:
        list_page: a method of `FleetReader`.
    """
    while True:
        page = list_page(query)
        yield page
        if page.next is None:
            return
        query = replace(query, after=page.next)


def read_items(list_page: Callable[[Q], Page[T]], query: Q) -> Iterator[T]:
    """Yield the items of all pages of a list, as `read_pages` does."""
    for page in read_pages(list_page, query):
        yield from page.items
