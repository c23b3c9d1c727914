"""The feed of the history under writers at the same time, in every database."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodetracker.db.store import SqlStore
from nodetracker.model.listing import HistoryQuery
from nodetracker.usecases.feed import parse_cursor, read_feed
from nodetracker.usecases.reads import read_items
from tests.builders import ask, claim, make_node
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)

HOSTS = [f"host-{number}" for number in range(8)]
QUERY = HistoryQuery(limit=7)


def test_each_event_of_eight_writers_is_read_once(store: SqlStore) -> None:
    _, cursor = read_feed(store, QUERY)
    is_over = threading.Event()
    read: list[int] = []

    def follow() -> None:
        nonlocal cursor
        while True:
            was_over = is_over.is_set()
            entries, found = read_feed(store, QUERY, cursor)
            cursor = parse_cursor(found.encode())
            read.extend(entry.id for entry in entries)
            if was_over and not entries:
                return

    def work(host: str) -> None:
        make_node(store, host=host)
        for _ in range(5):
            store.abort_claim(claim(store, ask(VCPU=1), host).uuid)

    follower = threading.Thread(target=follow)
    follower.start()
    with ThreadPoolExecutor(len(HOSTS)) as pool:
        list(pool.map(work, HOSTS))
    is_over.set()
    follower.join()
    stored = {entry.id for entry in read_items(store.list_history_page, HistoryQuery())}
    assert len(read) == len(set(read))
    assert set(read) == stored
    assert len(stored) >= len(HOSTS) * (1 + 5 * 2)


def test_an_answer_is_one_statement(store: SqlStore) -> None:
    make_node(store)
    _, cursor = read_feed(store, QUERY)
    claim(store, ask(VCPU=1))
    with count_statements(store.engine) as seen:
        entries, _ = read_feed(store, QUERY, cursor)
    assert [entry.event for entry in entries] == ["created"]
    assert len(seen.statements) == 1
