"""The feed: each line of the history once, as it happens, for readers who ask again and again.

Lines are not committed in the order of their times or ids. An answer therefore looks back as
long as transactions last, and leaves out what its reader has seen. The ids of that are in the
cursor, which has a limit: what would not fit waits until it is so old that none can come before
it, and needs no id.
"""

import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby, pairwise

from nodetracker.model.change import HistoryEntry
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import HistoryQuery
from nodetracker.ports import FleetReader

LOOKBACK = timedelta(seconds=35)
"""Transactions end within 15 seconds, on MariaDB and MySQL within 30."""

MAX_LENGTH = 1900
"""Characters of a cursor from which no line is added: proxies and servers limit addresses.

Fewer ids may be a little longer when compressed, so a few more remain possible.
"""

_CURSOR = re.compile(r"[0-9]+(\.[0-9]+(-[0-9]+)?)*(~[A-Za-z0-9_-]+)?")
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
        """Return it as text that is safe in addresses: with ranges of ids, or with them packed.

        >>> FeedCursor(_EPOCH, frozenset({7, 8, 9, 12})).encode()
        '0.7-9.12'
        """
        ranges, at = list(_ranges_of(self.seen)), str((self.at - _EPOCH) // _MICROSECOND)
        found = ".".join([at, *ranges])
        return f"{at}~{_pack(self.seen)}" if len(ranges) > _MAX_RANGES else found


def parse_cursor(text: str) -> FeedCursor:
    """Parse what `FeedCursor.encode` returned.

    Raises:
        RequestError: the text is something else.

    >>> parse_cursor("0.7-9.12").seen == {7, 8, 9, 12}
    True
    """
    try:
        if not _CURSOR.fullmatch(text):
            raise ValueError
        at, is_packed, packed = text.partition("~")
        at, *ranges = at.split(".")
        pairs = [part.partition("-") for part in ranges]
        found = [range(int(first), int(last or first) + 1) for first, _, last in pairs]
        if not all(found) or sum(map(len, found)) > _MAX_SEEN:
            raise ValueError
        seen = frozenset(number for numbers in found for number in numbers)
        if is_packed:
            seen |= _unpack(packed)
        since = _EPOCH + int(at) * _MICROSECOND - LOOKBACK  # which must be a time, too
        return FeedCursor(since + LOOKBACK, seen)
    except (ValueError, OverflowError, zlib.error):
        raise RequestError("after", f"invalid cursor {text[:40]!r}: not from an answer") from None


def read_feed(
    store: FleetReader, query: HistoryQuery, cursor: FeedCursor | None = None
) -> tuple[list[HistoryEntry], FeedCursor]:
    """Return the lines that a reader has not seen, oldest first, and the next cursor.

    Args:
        query: the same for all answers of a reader; at most `limit` lines are returned, and
            not more than its cursor has room for.
        cursor: of the answer before; None returns the newest lines.
    """
    if cursor is None:
        page = store.list_history_page(replace(query, is_ascending=False))
        rows, cursor, is_cut = page.items[::-1], FeedCursor(_EPOCH), False
    else:
        since, limit = cursor.at - LOOKBACK, query.limit + len(cursor.seen)
        page = store.list_history_page(replace(query, since=since, limit=limit, is_ascending=True))
        rows, is_cut = page.items, page.next is not None
    before = cursor
    new = [row for row in rows if row.id not in before.seen]
    unread = before.seen.difference(row.id for row in rows) if is_cut else frozenset()

    def advance(count: int) -> FeedCursor:
        """Return the cursor of a reader that gets some of the new lines, the oldest."""
        rest = new[count:] or (rows[-1:] if is_cut else ())
        at = max(min([page.now, *(row.at + LOOKBACK for row in rest[:1])]), before.at)
        unseen = {row.id for row in new[count:]}
        recent = (row.id for row in rows if row.at >= at - LOOKBACK and row.id not in unseen)
        return FeedCursor(at, unread.union(recent))

    most = min(len(new), query.limit)
    least = min(most, bisect_right(new, page.now - LOOKBACK, key=lambda row: row.at))  # need no id
    sizes = range(least, most + 1)
    fitting = bisect_right(sizes, MAX_LENGTH, key=lambda count: len(advance(count).encode()))
    count = least + max(0, fitting - 1)
    return new[:count], advance(count)


_MAX_SEEN = 100_000  # as many rows may be read again for an answer
_MAX_RANGES = 20  # that are written as such
_MAX_PACKED = 1 << 20


def _ranges_of(numbers: Iterable[int]) -> Iterable[str]:
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _pack(numbers: Iterable[int]) -> str:
    """Return how far they are from each other, compressed: an id with gaps is some bits.

    >>> _unpack(_pack({7, 8, 9, 12})) == {7, 8, 9, 12}
    True
    """
    gaps = (after - before for before, after in pairwise([0, *sorted(numbers)]))
    packed = zlib.compress(" ".join(map(str, gaps)).encode(), 9)
    return urlsafe_b64encode(packed).decode().rstrip("=")


def _unpack(text: str) -> frozenset[int]:
    """Return what `_pack` packed.

    Raises:
        ValueError, zlib.error: the text is something else.
    """
    packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    stream = zlib.decompressobj()
    gaps = stream.decompress(packed, _MAX_PACKED).split()
    if not stream.eof or len(gaps) > _MAX_SEEN:
        raise ValueError
    return frozenset(accumulate(map(int, gaps)))
