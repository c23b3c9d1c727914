"""The overview in a browser: the table of nodes and its columns."""

import re

from playwright.sync_api import expect

from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from tests.builders import make_node
from tests.functional.browser import THEMES, open_tab
from tests.page_fleet import PageFleet, PageStore, serve_page
from tests.stores import SqliteStore

TALLEST_LINE = 34
"""Pixels; two lines of text are higher."""

ROWS = "[...document.querySelectorAll('tbody tr')]"


def test_nodes_are_sorted_worst_first_and_in_natural_order(browser):
    store = SqliteStore()
    for host in ("h1", "h10", "h11", "h2"):
        agent = make_node(store, host=host)
        (service,) = store.list_services(host)
        state = AuditState(1.0, audit_interval_seconds=3600)
        store.report_state(agent, service.report_count + 1, state)
    store.set_service("h11", COMPUTE_BINARY, ServiceChange(disabled=True))
    store.raise_warning("h2", HostWarning(WarningKind.DRIFT, "node-1", "memory", "it drifts"))
    store.raise_warning("h10", HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, "", "it is late"))
    with serve_page(store) as url, open_tab(browser, url) as tab:
        hosts = tab.page.locator("td[data-title=Host]")
        expect(hosts).to_have_text(["h2", "h10", "h11", "h1"])
        tab.page.get_by_role("button", name="Host", exact=True).click()
        expect(hosts).to_have_text(["h1", "h2", "h10", "h11"])


def test_each_node_is_one_line_in_windows_from_800_pixels(browser):
    fleet = PageFleet(40)
    fleet.add_empty_host("a-host-with-a-name-of-sixty-three-characters-which-is-the-longest")
    with serve_page(PageStore(fleet)) as url, open_tab(browser, url) as tab:
        page = tab.page
        page.locator("td a").first.wait_for()
        for width in (800, 1024, 1440):
            tab.look(THEMES[0], width)
            heights = page.evaluate(f"{ROWS}.map((row) => row.getBoundingClientRect().height)")
            assert len(heights) == 41
            assert max(heights) <= TALLEST_LINE, width
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        tab.check(THEMES[:1])
        tab.look(THEMES[0], 760)
        assert page.evaluate(f"{ROWS}[0].getBoundingClientRect().height") > 100  # a card


def test_the_columns_that_a_reader_chose_are_remembered(browser):
    with serve_page(PageStore(PageFleet(3))) as url, open_tab(browser, url) as tab:
        page = tab.page
        page.get_by_text("Columns").click()
        page.get_by_role("checkbox", name="Host", exact=True).uncheck()
        headings = page.locator("th")
        expect(headings.filter(has_text="Host")).to_have_count(0)
        page.reload()
        expect(headings.filter(has_text="Node")).to_have_count(1)
        expect(headings.filter(has_text="Host")).to_have_count(0)
        page.get_by_text("Columns").click()
        page.get_by_role("checkbox", name="Host", exact=True).check()
        expect(headings.nth(2)).to_contain_text("Host")
        assert tab.problems == []


def test_without_storage_columns_can_be_chosen_for_a_while(browser):
    with serve_page(PageStore(PageFleet(3))) as url, open_tab(browser, "about:blank") as tab:
        page = tab.page
        page.add_init_script("delete Window.prototype.localStorage; delete window.localStorage;")
        page.goto(url)
        page.get_by_text("Columns").click()
        page.get_by_role("checkbox", name="Host", exact=True).uncheck()
        expect(page.locator("th").filter(has_text="Host")).to_have_count(0)
        assert page.evaluate("typeof localStorage") == "undefined"
        assert tab.problems == []


def test_tiles_are_coloured_by_what_the_reader_chose(browser):
    fleet = PageFleet(40)
    with serve_page(PageStore(fleet)) as url, open_tab(browser, url) as tab:
        page = tab.page
        picture = page.get_by_role("application", name="40 nodes by their fullest resource")
        expect(picture.locator("path.step-4")).to_have_count(1)
        for choice in ("CPU", "memory", "disk", "state"):
            page.get_by_label("Tiles by").select_option(choice)
            page.get_by_role("application", name=f"40 nodes by their {choice}: ").wait_for()
        tiles = page.get_by_role("application", name="2 down or unreachable, 2 not read")
        expect(tiles.locator("path.rank-0")).to_have_count(1)
        expect(tiles.locator("path.step-4")).to_have_count(0)
        tab.check(THEMES[:1])
        page.reload()
        expect(page.get_by_label("Tiles by")).to_have_value("state")
        tiles.wait_for()
        assert tab.problems == []


def test_arrow_keys_move_over_tiles_in_two_dimensions_and_are_spoken(browser):
    with serve_page(PageStore(PageFleet(40))) as url, open_tab(browser, url) as tab:
        page = tab.page
        tab.look(THEMES[0], 360)  # rows of 13 tiles
        page.get_by_label("Tiles by").select_option("memory")
        picture = page.get_by_role("application")
        picture.focus()
        spoken = page.locator("#live")
        expect(spoken).to_contain_text(
            "host-0000.example.org: up, Memory 22.5 of 128 GiB, 17 % full"
        )
        for key, number in (
            ("ArrowDown", 13),
            ("ArrowRight", 14),
            ("ArrowDown", 27),
            ("ArrowUp", 14),
            ("ArrowLeft", 13),
            ("ArrowUp", 0),
            ("ArrowUp", 0),
            ("End", 39),
            ("ArrowDown", 39),
            ("Home", 0),
        ):
            picture.press(key)
            expect(spoken).to_contain_text(f"host-00{number:02}.example.org: ")
        picture.press("Enter")
        page.wait_for_url("**#/nodes/*")


def test_totals_name_what_is_left_on_hosts_that_get_no_claims(browser):
    store = SqliteStore()
    for host in ("h1", "h2"):
        agent = make_node(store, host=host)
        (service,) = store.list_services(host)
        state = AuditState(1.0, audit_interval_seconds=3600)
        store.report_state(agent, service.report_count + 1, state)
    with serve_page(store) as url, open_tab(browser, url) as tab:
        totals = tab.page.get_by_label("Totals")
        expect(totals).to_contain_text(" left")
        assert "on 1 host" not in totals.inner_text()
    store.set_service("h2", COMPUTE_BINARY, ServiceChange(disabled=True))
    with serve_page(store) as url, open_tab(browser, url) as tab:
        totals = tab.page.get_by_label("Totals")
        expect(totals).to_contain_text(
            re.compile(r"GiB left and .+ GiB on 1 host that is disabled")
        )
        tab.page.get_by_role("link", name="node-1").first.click()
        resources = tab.page.get_by_role("region", name="Resources")
        expect(resources).to_contain_text("GiB left")
        assert tab.problems == []
