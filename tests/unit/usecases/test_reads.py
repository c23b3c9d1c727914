"""Lists that are read to their ends."""

from nodetracker.model.listing import HistoryQuery, Page
from nodetracker.usecases.reads import read_items, read_pages
from tests.builders import register
from tests.stores import SqliteStore


def test_each_page_goes_on_where_the_one_before_ended():
    store = SqliteStore()
    for number in range(5):
        register(store, f"h{number}")
    query = HistoryQuery(limit=2)
    pages: list[Page] = list(read_pages(store.list_history_page, query))
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert len({item.id for item in read_items(store.list_history_page, query)}) == 5
