"""The wall: the fleet on a monitor that nobody touches, from afar and for long."""

import pytest
from playwright.sync_api import expect

from tests import page_fleet
from tests.functional.browser import THEMES, open_tab
from tests.functional.servers.process import find_free_port
from tests.page_fleet import PageFleet, PageStore, serve_page
from tests.programs import wait_until

SCREEN = {"width": 1440, "height": 900}
MINUTE = 60_000
SMALLEST = 28
"""Pixels of a font: seven arc minutes at 4 m of a monitor of 60 cm."""

SIZES = """[...document.querySelectorAll('.wall *')]
    .filter((each) => [...each.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .filter((each) => each.getClientRects().length > 0 && !each.closest('.hidden-text'))
    .map((each) => parseFloat(getComputedStyle(each).fontSize)
        * (each.ownerSVGElement ? each.getScreenCTM().a : 1))"""

# Return whether the clock has the server's time, and at most ten seconds more, which were skipped.
SHOWS_NOW = """async () => {
    const { now } = await fetch('../v1/overview').then((answer) => answer.json());
    const shown = document.querySelector('.clock time').textContent;
    return [0, 10].some((s) => shown.includes(new Date(Date.parse(now) + s * 1000).toTimeString().slice(0, 5)));
}"""


@pytest.fixture
def store():
    return PageStore(PageFleet(40))


@pytest.mark.parametrize("address", ["#/?wall", "#/wall"])
def test_it_has_no_controls_and_is_read_from_afar(browser, store, address):
    with serve_page(store) as url, open_tab(browser, url + address, viewport=SCREEN) as tab:
        page = tab.page
        page.locator(".state").get_by_text("2 hosts down").wait_for()
        page.get_by_text("host-0007 down for 3 h").wait_for()
        page.locator(".wall .tile-number").first.wait_for()
        assert page.locator(":is(a, button, select, input, header, footer)").count() == 0
        assert min(page.evaluate(SIZES)) >= SMALLEST
        assert page.evaluate("document.documentElement.scrollHeight") <= SCREEN["height"]
        tab.check(THEMES)
        assert tab.problems == []


def test_it_survives_a_restart_of_the_service(browser, store, monkeypatch):
    port = find_free_port()
    monkeypatch.setattr(page_fleet, "find_free_port", lambda: port)
    with open_tab(browser, "about:blank", viewport=SCREEN) as tab:
        page = tab.page
        page.clock.install()
        with serve_page(store) as url:
            page.goto(f"{url}#/?wall")
            page.locator(".state").get_by_text("2 hosts down").wait_for()
        page.clock.fast_forward(6_000)
        page.get_by_role("alert").get_by_text("No answer since").wait_for()
        expect(page.locator(".old .state")).to_contain_text("2 hosts down")
        store.fleet = PageFleet(40, is_fine=True)
        with serve_page(store):
            page.clock.fast_forward(MINUTE)
            expect(page.locator(".state")).not_to_contain_text("down")
            expect(page.locator(".old")).to_have_count(0)
            expect(page.get_by_text("No answer since")).to_have_count(0)


def test_after_a_sleep_it_asks_at_once_and_has_the_time_of_the_server(browser, store):
    with serve_page(store, max_age=0) as url, open_tab(browser, "about:blank") as tab:
        page = tab.page
        page.clock.install()
        page.goto(f"{url}#/?wall")
        page.locator(".state").get_by_text("2 hosts down").wait_for()
        clock = page.locator(".clock time")
        before = clock.inner_text()
        store.fleet = PageFleet(40, is_fine=True)
        page.clock.fast_forward("07:30:00")  # each timer is due once, as after a sleep
        expect(page.locator(".state")).not_to_contain_text("down")
        page.clock.fast_forward(6_000)
        assert before[-2:].isdigit()
        wait_until(lambda: page.evaluate(SHOWS_NOW))
        assert tab.problems == []


def test_it_does_not_grow(browser, store):
    with serve_page(store, max_age=0) as url, open_tab(browser, "about:blank") as tab:
        page = tab.page
        page.clock.install()
        page.goto(f"{url}#/?wall")
        page.locator(".wall .tile-number").first.wait_for()
        devtools = page.context.new_cdp_session(page)
        counts = []
        for _ in range(3):
            for _ in range(10):
                store.fleet.change(0.5)
                with page.expect_response(lambda response: "/v1/overview" in response.url):
                    page.clock.fast_forward(6_000)
            devtools.send("HeapProfiler.collectGarbage")
            counts.append(devtools.send("Memory.getDOMCounters"))
        for name in ("nodes", "jsEventListeners"):
            assert counts[2][name] <= counts[1][name] * 1.1, counts


def test_no_text_of_it_is_cut_off_at_400_percent(browser, store):
    zoomed = {"width": 320, "height": 225}
    with (
        serve_page(store) as url,
        open_tab(browser, f"{url}#/?wall", viewport=zoomed) as tab,
    ):
        lines = tab.page.locator("main li")
        lines.first.wait_for()
        cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth).length"
        assert lines.evaluate_all(cut) == 0
        assert tab.problems == []
