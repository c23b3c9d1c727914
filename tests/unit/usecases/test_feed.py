"""The feed of the history: cursors, pages, and lines that are committed late."""

import random
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

import pytest

from nodetracker.model.change import ChangeKind, EventKind, HistoryEntry
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import HistoryQuery, Page
from nodetracker.usecases.feed import LOOKBACK, FeedCursor, parse_cursor, read_feed
from tests.builders import NOW, later

ALL = HistoryQuery(limit=100)


class Lines:
    """A store with lines at seconds after `NOW`."""

    def __init__(self, *seconds: float) -> None:
        self.entries: list[HistoryEntry] = []
        self.now = NOW
        self.add(*seconds)

    def add(self, *seconds: float, gaps: Sequence[int] = (1,)) -> None:
        for second, gap in zip(seconds, cycle(gaps), strict=False):
            number = gap + (self.entries[-1].id if self.entries else 0)
            entry = HistoryEntry(
                later(second), "a", "n", ChangeKind.UPDATE, {}, number, EventKind.NODE
            )
            self.entries.append(entry)

    def list_history_page(self, query: HistoryQuery) -> Page[HistoryEntry]:
        wanted = (e for e in self.entries if query.since is None or e.at >= query.since)
        found = sorted(wanted, key=lambda e: (e.at, e.id), reverse=not query.is_ascending)
        has_more = len(found) > query.limit
        items = tuple(found[: query.limit])
        return Page(items, self.now, items[-1].id if has_more else None)


def follow(store: Lines, cursor: FeedCursor | None, limit: int = 100):
    """Return the ids of the next answer, and the cursor as its reader sends it."""
    entries, after = read_feed(store, replace(ALL, limit=limit), cursor)
    return [entry.id for entry in entries], parse_cursor(after.encode())


def test_each_line_is_in_one_answer_although_it_is_committed_late():
    store = Lines(-100, -10)
    store.now = later(0)
    ids, cursor = follow(store, None)
    assert ids == [1, 2]
    store.add(-30, 1)  # the first of them began before those that were seen
    store.now = later(2)
    ids, cursor = follow(store, cursor)
    assert ids == [3, 4]
    assert follow(store, cursor)[0] == []


def test_a_page_ends_where_the_next_one_begins():
    store = Lines()
    _, cursor = follow(store, None)
    store.add(*(number % 3 for number in range(25)))
    store.now = later(10)
    seen = []
    while ids := (answer := follow(store, cursor, limit=4))[0]:
        assert len(ids) <= 4
        seen += ids
        cursor = answer[1]
    assert sorted(seen) == list(range(1, 26))
    assert len(cursor.encode()) < 40, "consecutive ids are a range"


def test_the_cursor_keeps_only_what_may_be_read_again():
    store = Lines(0, 1)
    store.now = later(2)
    _, cursor = follow(store, None)
    assert cursor.seen == {1, 2}
    store.now = later(3) + LOOKBACK
    assert follow(store, cursor)[1].seen == frozenset()


def test_a_reader_that_was_away_gets_the_oldest_first():
    store = Lines()
    _, cursor = follow(store, None)
    store.add(*range(100, 200))
    store.now = later(300)
    ids, cursor = follow(store, cursor, limit=30)
    assert ids == list(range(1, 31))
    assert follow(store, cursor, limit=30)[0] == list(range(31, 61))


def test_lines_that_are_committed_late_repeat_none_of_a_later_time():
    store = Lines()
    store.now = later(30)
    _, cursor = follow(store, None)
    store.add(30)
    ids, cursor = follow(store, cursor, limit=2)
    assert ids == [1]
    store.add(*range(1, 21))
    seen = []
    while ids := (answer := follow(store, cursor, limit=2))[0]:
        seen += ids
        cursor = answer[1]
    assert seen == list(range(2, 22))


@pytest.mark.parametrize(("rate", "is_held_back"), [(20, False), (200, True)])
def test_a_cursor_is_short_however_many_ids_with_gaps_there_are(rate, is_held_back):
    """As a cluster has them whose members are all written; some lines come late."""
    chance = random.Random(5)
    store, seen, seconds_held = Lines(), [], []
    _, cursor = follow(store, None)
    for second in range(2, 120, 2):
        if second < 60:
            times = sorted(second - 2 * chance.random() for _ in range(2 * rate))
            times[0] -= 25  # of a transaction that took as long
            store.add(*times, gaps=[chance.randint(1, 9) for _ in times])
        store.now = later(second)
        entries, after = read_feed(store, replace(ALL, limit=1000), cursor)
        assert len(after.encode()) < 2048
        cursor = parse_cursor(after.encode())
        assert cursor == after
        seen += [entry.id for entry in entries]
        seconds_held += [(store.now - entry.at).total_seconds() for entry in entries]
    assert sorted(seen) == [entry.id for entry in store.entries]
    assert max(seconds_held) <= LOOKBACK.total_seconds() + 2
    assert (max(seconds_held) > 30) == is_held_back


def test_a_cursor_of_an_earlier_release_goes_on():
    numbers = frozenset(range(1, 2000, 3))
    text = ".".join(["0", *map(str, sorted(numbers))])
    assert parse_cursor(text) == parse_cursor(parse_cursor(text).encode())
    assert parse_cursor(text).seen == numbers


@pytest.mark.parametrize(
    "text",
    [
        "1~",
        "1~x",
        "1~eJw",
        "1~" + urlsafe_b64encode(zlib.compress(b"7 x")).decode(),
        "1~" + urlsafe_b64encode(zlib.compress(b"1 " * 100_001)).decode(),
        "",
        "x",
        "1.a",
        "1.2-x",
        "1.5-3-4",
        "9" * 40,
        "1.0-100001",
        f"1.0-{9**40}",
        "-62135596800000000",
        "-1",
        " 5",
        "5\n",
        "+5",
        "1_0",
        "٣",
        "1.-5",
        "1. 5",
        "1.2-+3",
        "1.2-",
        "1.9-7",
        "1~eJwz BAA_AEY",
    ],
)
def test_a_cursor_of_something_else_is_refused(text):
    with pytest.raises(RequestError, match="after"):
        parse_cursor(text)
