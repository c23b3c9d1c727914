"""Pages of lists: some items at a time, and the marker after which the next ones follow."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from nodetracker.model.errors import RequestError

T = TypeVar("T")

PAGE_LIMIT: Final = 1000
"""Items of a page when a query names no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The part of a list's query that selects a page.

    Attributes:
        after: the last item of the page before, None for the first page: the
            row's id, which `Page.next` is, or the item's uuid. The row of an
            id may be deleted meanwhile; a uuid must exist.
        limit: maximum number of items, at least 1.

    Raises:
        RequestError: the limit is too small.
    """

    after: int | str | None = None
    limit: int = PAGE_LIMIT

    def __post_init__(self) -> None:
        """Check the limit."""
        if self.limit < 1:
            raise RequestError("limit", f"invalid value {self.limit}: expected at least 1")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list.

    Attributes:
        items: in the order of the list, at most as many as the query's limit.
        now: the database's time when they were read, UTC.
        next: what `PageQuery.after` must be for the next page; None = this is the last one.
    """

    items: tuple[T, ...]
    now: datetime
    next: int | str | None = None
