"""Cut pages out of sorted rows, as `nodetracker.db.paging` does by SQL."""

from collections.abc import Callable, Collection
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeVar

from nodetracker.model.errors import RequestError
from nodetracker.model.listing import Page, PageQuery

T = TypeVar("T")

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def has_part(text: str, part: str | None) -> bool:
    """Return whether a text has a part, None = any; cases of ASCII letters are equal."""
    return (part or "").translate(_LOWER) in text.translate(_LOWER)


def cut_page(
    rows: Collection[T],
    query: PageQuery,
    now: datetime,
    matches: Callable[[T], bool],
    id_of: Callable[[T], int],
    uuid_of: Callable[[T], str | None] = lambda row: None,
    key_of: Callable[[T], Any] | None = None,
    is_descending: bool = False,
) -> Page[T]:
    """Return a page of the rows that match.

    Args:
        rows: the whole table; `query.after` may be a row that does not match.
        key_of: what the list is ordered by before the id; None = only the id.

    Raises:
        RequestError: `query.after` does not exist.
    """

    def place_of(row: T) -> tuple[Any, int]:
        return (key_of(row) if key_of else None, id_of(row))

    found = sorted(filter(matches, rows), key=place_of, reverse=is_descending)
    if query.after is not None:
        if isinstance(query.after, int) and key_of is None:
            edge = (None, query.after)
        else:
            edge = place_of(_find_marker(rows, query.after, id_of, uuid_of))
        found = [row for row in found if _is_beyond(place_of(row), edge, is_descending)]
    has_more = len(found) > query.limit
    items = tuple(found[: query.limit])
    return Page(items, now, id_of(items[-1]) if has_more else None)


def _find_marker(
    rows: Collection[T],
    after: int | str,
    id_of: Callable[[T], int],
    uuid_of: Callable[[T], str | None],
) -> T:
    for row in rows:
        if after == (id_of(row) if isinstance(after, int) else uuid_of(row)):
            return row
    raise RequestError("marker", f"not found: {after}")


def _is_beyond(place: tuple[Any, int], edge: tuple[Any, int], is_descending: bool) -> bool:
    if place[0] != edge[0]:
        return bool(place[0] < edge[0] if is_descending else place[0] > edge[0])
    return place[1] < edge[1] if is_descending else place[1] > edge[1]
