"""Totals on the page have a chart of what they were, and say when they are full."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from nodetracker.process.clock import utc_clock
from tests.builders import create, make_values, register, update
from tests.functional.browser import open_tab
from tests.page_fleet import serve_page
from tests.stores import SqliteStore

HOURS = 9 * 24
GROWTH_MB = 1024


@pytest.fixture(scope="module")
def store():
    """A node whose memory grows by 1 GiB an hour for nine days; one hour in between is missing."""
    end = utc_clock()
    now = end - timedelta(hours=HOURS)
    store = SqliteStore(lambda: now)
    agent = register(store)
    values = make_values(
        memory_mb=393_216, memory_mb_used=0, ram_allocation_ratio=1.0, cpu_allocation_ratio=4.0,
        disk_allocation_ratio=1.0, metrics={"memory_used_mb": 20_480},
    )  # fmt: skip
    store.apply_changes(agent, [create(agent, "n1", values)], 60)
    for hour in range(HOURS + 1):
        now = end - timedelta(hours=HOURS - hour)
        (record,) = store.load_nodes("alpha")
        change = update(record, memory_mb_used=GROWTH_MB * hour)
        store.apply_changes(agent, [change], 60)
        if hour != HOURS - 100:
            store.sample_trends()
    return store


@pytest.fixture(scope="module")
def url(store):
    with serve_page(store) as url:
        yield url


@pytest.fixture(params=["fleet", "node"])
def view(request, store):
    return "#/" if request.param == "fleet" else f"#/nodes/{store.list_nodes()[0].uuid}"


def test_charts_are_of_the_chosen_period_and_say_the_same_in_words(browser, url, view):
    with open_tab(browser, url + view) as tab:
        memory = tab.page.locator(".total").filter(has_text="Memory")
        week = "Last week: 48 GiB to 216 GiB allocated, 20 GiB measured"
        expect(memory.get_by_text(week)).to_be_visible()
        (line,) = memory.locator("path:not([class])").evaluate_all(
            "all => all.map((path) => path.getAttribute('d'))"
        )
        assert line.count("M") == 2  # an hour is missing
        expect(
            tab.page.get_by_text(re.compile("Memory is full in about [789] days"))
        ).to_be_visible()
        expect(
            tab.page.locator(".total").filter(has_text="CPU").get_by_text("measured")
        ).to_be_hidden()
        tab.check()
        choice = tab.page.get_by_label("Trends of the last")
        choice.select_option("day")
        expect(memory.get_by_text("Last day: 192 GiB to 216 GiB allocated")).to_be_visible()
        choice.select_option("month")
        expect(memory.get_by_text("Last month: ")).to_be_visible()
        assert tab.problems == []


def test_without_samples_there_are_no_charts(browser):
    store = SqliteStore()
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    store.sample_trends()
    with serve_page(store) as url, open_tab(browser, url) as tab:
        expect(tab.page.locator(".total").first).to_be_visible()
        assert tab.page.locator(".trend").count() == 0
        assert tab.page.get_by_label("Trends of the last").count() == 0
        assert tab.problems == []


def test_an_hour_is_asked_for_once(browser, url):
    with open_tab(browser, url) as tab:
        asked = []
        tab.page.on("request", lambda request: asked.append(request.url))
        expect(tab.page.locator(".trend").first).to_be_visible()
        with tab.page.expect_response(lambda response: "/v1/overview" in response.url):
            pass
        with tab.page.expect_response(lambda response: "/v1/overview" in response.url):
            pass
        assert len([one for one in asked if "trends" in one]) <= 1
