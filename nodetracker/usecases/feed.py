"""The feed: each line of the history once, as it happens, for readers who ask again and again.

Lines are not committed in the order of their times or ids. An answer therefore looks back as
long as transactions last, and leaves out what its reader has seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

from nodetracker.model.change import HistoryEntry
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import HistoryQuery
from nodetracker.ports import FleetReader

LOOKBACK = timedelta(seconds=35)
"""Transactions end within 15 seconds, on MariaDB and MySQL within 30."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """What a reader of the feed has seen.

    Attributes:
        at: all lines older than `LOOKBACK` before it.
        seen: ids of the lines that are newer than that.
    """

    at: datetime
    seen: frozenset[int] = frozenset()

    def encode(self) -> str:
        """Return it as text that is safe in addresses, with ranges of ids.

        >>> FeedCursor(_EPOCH, frozenset({7, 8, 9, 12})).encode()
        '0.7-9.12'
        """
        return ".".join([str((self.at - _EPOCH) // _MICROSECOND), *_ranges_of(self.seen)])


def parse_cursor(text: str) -> FeedCursor:
    """Parse what `FeedCursor.encode` returned.

    Raises:
        RequestError: the text is something else.

    >>> parse_cursor("0.7-9.12").seen == {7, 8, 9, 12}
    True
    """
    try:
        at, *ranges = text.split(".")
        pairs = [part.partition("-") for part in ranges]
        found = [range(int(first), int(last or first) + 1) for first, _, last in pairs]
        if sum(map(len, found)) > _MAX_SEEN:
            raise ValueError
        seen = frozenset(number for numbers in found for number in numbers)
        since = _EPOCH + int(at) * _MICROSECOND - LOOKBACK  # which must be a time, too
        return FeedCursor(since + LOOKBACK, seen)
    except (ValueError, OverflowError):
        raise RequestError("after", f"invalid cursor {text[:40]!r}: not from an answer") from None


def read_feed(
    store: FleetReader, query: HistoryQuery, cursor: FeedCursor | None = None
) -> tuple[list[HistoryEntry], FeedCursor]:
    """Return the lines that a reader has not seen, oldest first, and the next cursor.

    Args:
        query: the same for all answers of a reader; at most `limit` lines are returned.
        cursor: of the answer before; None returns the newest lines.
    """
    if cursor is None:
        page = store.list_history_page(replace(query, is_ascending=False))
        return _advance(page.items[::-1], page.now, FeedCursor(page.now), page.items)
    since = cursor.at - LOOKBACK
    page = store.list_history_page(
        replace(query, since=since, limit=query.limit + len(cursor.seen), is_ascending=True)
    )
    new = [entry for entry in page.items if entry.id not in cursor.seen]
    is_full = page.next is not None or len(new) > query.limit
    new = new[: query.limit]
    return _advance(new, new[-1].at if is_full else page.now, cursor, page.items)


def _advance(
    new: Iterable[HistoryEntry], at: datetime, cursor: FeedCursor, read: Iterable[HistoryEntry]
) -> tuple[list[HistoryEntry], FeedCursor]:
    shown = list(new)
    at = max(at, cursor.at)
    seen = cursor.seen | {entry.id for entry in shown}
    recent = frozenset(e.id for e in read if e.id in seen and e.at >= at - LOOKBACK)
    return shown, FeedCursor(at, recent)


_MAX_SEEN = 100_000  # as many rows may be read again for an answer


def _ranges_of(numbers: Iterable[int]) -> Iterable[str]:
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"
