"""The overview in a browser: the table of nodes and its columns."""

import json
import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from tests.builders import make_node
from tests.functional.browser import THEMES, TWO_FRAMES, open_tab
from tests.page_fleet import PageFleet, PageStore, serve_page
from tests.stores import SqliteStore

SETTLE_MS = 2000
MOVES = 60  # of the pointer, each to another tile
TILE = 11  # pixels, with the gap
TALLEST_LINE = 34
"""Pixels; two lines of text are higher."""

LOWEST = "innerHeight - (document.querySelector('.verbs')?.offsetHeight ?? 0)"
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
        for step in (4, 5):
            expect(picture.locator(f"path.fill-{step}")).to_have_count(1)
        for choice in ("CPU", "memory", "disk"):
            page.get_by_label("Tiles by").select_option(choice)
            page.get_by_role("application", name=f"40 nodes by their {choice}: ").wait_for()
        expect(page.locator(".tiles path.fill-5")).to_have_count(0)  # no disk is overcommitted
        tab.check(THEMES[:1])
        page.reload()
        expect(page.get_by_label("Tiles by")).to_have_value("disk")
        assert tab.problems == []


@pytest.mark.parametrize("size", [40, 1000, 10_000])
def test_ten_nodes_and_what_needs_attention_are_on_the_first_screen(browser, size):
    screen = {"width": 1440, "height": 900}
    store = PageStore(PageFleet(size))
    with (
        serve_page(store, limits={"overview_max_nodes": size}) as url,
        open_tab(browser, url, viewport=screen) as tab,
    ):
        page = tab.page
        page.get_by_role("region", name="Needs attention").wait_for()
        page.locator("tbody .since").first.wait_for()
        ends = page.evaluate(f"{ROWS}.map((row) => row.getBoundingClientRect().bottom)")
        lowest = page.evaluate(LOWEST)
        assert len([end for end in ends if end <= lowest]) >= 10
        assert page.locator(".tiles svg[role]").bounding_box()["height"] <= 120
        assert tab.problems == []


def test_what_needs_attention_is_linked_and_the_rest_unfolds(browser):
    with serve_page(PageStore(PageFleet(40))) as url, open_tab(browser, url) as tab:
        causes = tab.page.get_by_role("region", name="Needs attention")
        expect(causes.get_by_role("listitem")).to_have_count(4)
        more = causes.get_by_role("button", name="4 more")
        more.click()
        expect(causes.get_by_role("listitem")).to_have_count(8)
        expect(causes.get_by_role("button", name="Fewer")).to_have_attribute(
            "aria-expanded", "true"
        )
        causes.get_by_role("link", name="overcommitted in memory").click()
        tab.page.wait_for_url("**#/?only=overcommitted")
        assert tab.problems == []
        causes.get_by_role("link", name="host-0007 down for 3 h, no heartbeat").click()
        tab.page.wait_for_url("**#/host?host=host-0007")  # of which the store knows no more


def test_a_state_is_a_sign_and_an_outline_and_fullness_the_hue(browser):
    """Texture is of parts alone: nothing of a cell is hatched."""
    with serve_page(PageStore(PageFleet(40))) as url, open_tab(browser, url) as tab:
        tiles = tab.page.locator(".tiles svg[role]")
        outlines = tiles.locator(".tile-outline").get_attribute("d")
        signs = tiles.locator(".tile-sign").get_attribute("d")
        assert outlines.count("M") == signs.count("M") == 6  # of 40 nodes
        assert tiles.locator(".hatch, .dots").count() == 0
        expect(tiles.locator(".tile-number")).to_have_count(40)
        expect(tiles.locator(".tile-label").first).to_have_text("host-0000")
        hatched = tab.page.locator("tbody tr").filter(has=tab.page.locator(".hatch"))
        expect(hatched).to_have_count(8)  # the nodes with unclaimed guests
        hues = tab.page.evaluate(
            "[...document.querySelectorAll('.tiles path[class^=fill]')].map(getFill)"
            ".concat([...document.querySelectorAll('td .bar .part')].map(getFill))".replace(
                "getFill", "(part) => getComputedStyle(part).fill"
            )
        )
        assert len(set(hues)) == 6  # the steps of both are the same


@pytest.mark.parametrize("place", ["", "host?host=host-0010"])
def test_unclaimed_guests_of_large_fleets_and_hosts_are_hatched(browser, place):
    store = PageStore(PageFleet(40))
    store.insert_rows()
    with (
        serve_page(store, limits={"overview_max_nodes": 20}) as url,
        open_tab(browser, f"{url}#/{place}") as tab,
    ):
        rows = tab.page.locator("tbody tr").filter(has=tab.page.locator("td .bar"))
        expect(rows).to_have_count(1 if place else 40)
        hatched = rows.filter(has=tab.page.locator(".hatch"))
        expect(hatched).to_have_count(1 if place else 8)
        assert tab.problems == []


@pytest.mark.parametrize("size", [40, 1000])
def test_the_map_puts_nodes_with_the_same_custom_traits_together(browser, size):
    fleet = PageFleet(size)
    racks = [node.uuid for node in fleet.nodes[: size // 4]]
    store = PageStore(fleet)
    store.list_custom_traits = lambda: dict.fromkeys(racks, ("CUSTOM_RACK_7",))
    with serve_page(store) as url, open_tab(browser, url) as tab:
        tiles = tab.page.locator(".tiles")
        tab.page.get_by_label("Grouped by").select_option("traits")
        expect(tiles.locator(".tile-label")).to_have_text(["RACK_7", "no trait"])
        tab.check(THEMES[:1])
        tiles.locator("svg[role]").press("ArrowRight")
        expect(tiles.locator(".tip")).to_contain_text("host-000")
        tab.page.get_by_label("Grouped by").select_option("host")
        expect(tiles.get_by_text("RACK_7")).to_have_count(0)
        assert tab.problems == []


def test_what_signs_and_colours_mean_is_behind_a_button(browser):
    with serve_page(PageStore(PageFleet(40))) as url, open_tab(browser, url) as tab:
        for name, text in (
            ("What the bars mean", "unclaimed"),
            ("What the cells mean", "down or unreachable"),
        ):
            meaning = tab.page.get_by_role("dialog", name=name)
            expect(meaning).to_be_hidden()
            tab.page.get_by_role("button", name=name).click()
            expect(meaning).to_contain_text(text)
            tab.check(THEMES)
            tab.page.keyboard.press("Escape")
            expect(meaning).to_be_hidden()
        assert tab.problems == []


def test_a_label_of_the_map_opens_its_host(browser):
    with serve_page(PageStore(PageFleet(40))) as url, open_tab(browser, url) as tab:
        tab.page.locator(".tiles svg[role]").click(position={"x": 20, "y": 8})
        tab.page.wait_for_url("**#/host?host=host-0000")


def test_arrow_keys_move_over_tiles_in_two_dimensions_and_are_spoken(browser):
    with serve_page(PageStore(PageFleet(40))) as url, open_tab(browser, url) as tab:
        page = tab.page
        tab.look(THEMES[0], 360)  # rows of three hosts
        page.get_by_label("Tiles by").select_option("memory")
        picture = page.get_by_role("application")
        picture.focus()
        spoken = page.locator("#live")
        expect(spoken).to_contain_text(
            "host-0000.example.org: up, Memory 22.5 of 128 GiB, 17 % full"
        )
        for key, number in (
            ("ArrowDown", 3),
            ("ArrowRight", 4),
            ("ArrowDown", 7),
            ("ArrowUp", 4),
            ("ArrowLeft", 3),
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


def test_the_menu_has_six_entries_and_moves_while_there_are_any(browser):
    """Addresses of earlier releases still lead somewhere."""
    with serve_page(PageStore(PageFleet(3))) as url, open_tab(browser, url) as tab:
        menu = tab.page.get_by_role("navigation", name="Views").get_by_role("link")
        names = ["Overview", "Hosts", "Workloads", "Warnings", "Events", "Fit"]
        expect(menu).to_have_text(names)
        for old, entry in (("services", "Hosts"), ("search", "Workloads"), ("moves", "Moves")):
            tab.page.goto(f"{url}#/{old}")
            expect(menu.and_(tab.page.locator("[aria-current=page]"))).to_have_text(entry)
        assert tab.problems == []


def test_a_heading_is_seen_before_scripts_arrive(browser):
    with serve_page(PageStore(PageFleet(3))) as url, open_tab(browser, "about:blank") as tab:
        tab.page.route("**/*.js", lambda route: None)
        tab.page.goto(url, wait_until="commit")
        expect(tab.page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(tab.page.get_by_text("Loading…")).to_be_visible()


def test_where_the_cells_of_the_map_are_is_found_once_for_the_same_hosts(browser):
    """What is left of an answer is drawn, which is most of its cost in large fleets."""
    fleet = PageFleet(40)
    with serve_page(PageStore(fleet), max_age=0) as url, open_tab(browser, url) as tab:
        cells = tab.page.locator(".tiles path.fill-3")
        tab.page.locator("tbody tr").first.wait_for()
        session = tab.page.context.new_cdp_session(tab.page)
        session.send("Profiler.enable")
        session.send("Profiler.startPreciseCoverage", {"callCount": True})
        found = []
        for change in (lambda: fleet.change(0.5), lambda: fleet.add_empty_host("host-0000-b")):
            before = cells.get_attribute("d")
            change()
            expect(cells).not_to_have_attribute("d", before)
            found.append(_count_calls(session))
        of_usage, of_hosts = found
        for name in ("layOut", "sortPlaces"):
            assert not of_usage[name]
            assert of_hosts[name]
        assert of_usage["drawPaths"] == of_usage["summarize"]
        assert tab.problems == []


def _count_calls(session):
    """Return how often each function was called since this was asked last."""
    scripts = session.send("Profiler.takePreciseCoverage")["result"]
    calls = Counter()
    for function in (function for script in scripts for function in script["functions"]):
        calls[function["functionName"]] += function["ranges"][0]["count"]
    return calls


def test_a_pointer_on_the_map_does_not_paint_the_table_again(browser):
    """Compared with a page without the rule, by the CPU time of one browser."""
    with serve_page(PageStore(PageFleet(1000))) as url, open_tab(browser, url) as tab:
        tab.page.locator("tbody tr").first.wait_for()
        tab.page.route("**/v1/**", lambda route: None)  # what is answered later is painted, too
        tab.page.wait_for_timeout(SETTLE_MS)
        times = []
        for rule in ("", "auto"):  # that of the style sheet, and none
            tab.page.evaluate(
                "rule => { for (const each of document.querySelectorAll('.tiles svg, table'))"
                " each.style.isolation = rule; }", rule
            )  # fmt: skip
            browser.start_tracing(page=tab.page, categories=["devtools.timeline"])
            box = tab.page.locator(".tiles svg[role]").bounding_box()
            for step in range(MOVES):
                tab.page.mouse.move(box["x"] + 5 + TILE * step, box["y"] + 1.5 * TILE)
                tab.page.evaluate(TWO_FRAMES)  # otherwise several moves may be painted as one
            events = json.loads(browser.stop_tracing())["traceEvents"]
            times.append(sum(each.get("tdur", 0) for each in events if each["name"] == "Paint"))
        assert 2 * times[0] < times[1]
        assert tab.problems == []
