"""Totals on the page have a chart of what they were, and say when they are full."""

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.process.clock import utc_clock
from tests.builders import create, key_of, make_values, register, update
from tests.functional.browser import THEMES, open_tab
from tests.page_fleet import serve_page
from tests.programs import wait_until
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
        disk_allocation_ratio=1.0, metrics={"memory_used_mb": 20_480}, pcpus=0, pcpus_used=0,
    )  # fmt: skip
    store.apply_changes(agent, [create(agent, "n1", values)], 60)
    for hour in range(HOURS + 1):
        now = end - timedelta(hours=HOURS - hour)
        (record,) = store.load_nodes("alpha")
        change = update(record, memory_mb_used=GROWTH_MB * hour)
        store.apply_changes(agent, [change], 60)
        if hour != HOURS - 100:
            store.sample_trends()
    report(store)  # what is down has no forecast
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
        (line,) = memory.locator("path.promised").evaluate_all(
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


def open_charts(tab) -> None:
    tab.page.get_by_role("button", name="Charts").click()
    expect(tab.page.locator(".chart canvas")).to_have_count(3)


def test_charts_are_loaded_when_they_are_opened(browser, url, view):
    with open_tab(browser, "about:blank") as tab:
        asked = []
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.page.goto(url + view)
        expect(tab.page.get_by_role("button", name="Charts")).to_have_attribute(
            "aria-expanded", "false"
        )
        tab.page.wait_for_load_state("networkidle")
        assert not [one for one in asked if "uPlot" in one or "charts.js" in one]
        open_charts(tab)
        assert len([one for one in asked if "uPlot" in one]) == 2
        memory = tab.page.locator(".chart").filter(has_text="Memory")
        expect(memory).to_contain_text("216 of 384 GiB allocated, 20 GiB measured")
        tab.check()
        tab.page.get_by_role("button", name="Charts").click()
        expect(tab.page.locator(".chart")).to_have_count(0)
        assert tab.problems == []


def test_the_cross_hair_is_at_the_same_time_in_all_charts(browser, url):
    with open_tab(browser, url) as tab:
        open_charts(tab)
        times = tab.page.locator(".chart figcaption .quiet")
        last = times.first.inner_text()
        tab.page.locator(".chart .u-over").nth(1).hover(position={"x": 60, "y": 20})
        expect(times.first).not_to_have_text(last)
        assert len(set(times.all_inner_texts())) == 1


def test_charts_are_drawn_again_in_the_colours_of_another_theme(browser, url):
    drawn = "() => document.querySelector('.chart canvas').toDataURL()"
    with open_tab(browser, url) as tab:
        open_charts(tab)
        seen = set()
        for look in (
            {"color_scheme": "light"},
            {"color_scheme": "dark"},
            {"forced_colors": "active"},
        ):
            tab.page.emulate_media(**look)
            tab.page.wait_for_function(f"seen => !seen.includes(({drawn})())", arg=list(seen))
            seen.add(tab.page.evaluate(drawn))
        tab.page.emulate_media(color_scheme="light", forced_colors="none")
        tab.page.get_by_label("Theme").select_option("dark")
        tab.page.wait_for_function(f"seen => seen.includes(({drawn})())", arg=list(seen))
        assert tab.problems == []


def test_values_of_charts_are_also_a_table(browser, url):
    with open_tab(browser, url) as tab:
        open_charts(tab)
        tab.page.get_by_text("Values", exact=True).click()
        lines = tab.page.get_by_role("table", name="Values").locator("tbody tr")
        expect(lines.first).to_contain_text("216 of 384 GiB allocated, 20 GiB measured")
        tab.check(THEMES[:1])


def test_marks_of_events_lead_to_them_by_keyboard(browser, store, url, view):
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(True, "broken fan"))
    with open_tab(browser, url + view) as tab:
        open_charts(tab)
        marks = tab.page.get_by_role("group", name="Events").get_by_role("button")
        expect(marks.last).to_have_accessible_name(re.compile("alpha: .*disabled"))
        marks.last.focus()
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url("**#/events?host=alpha&since=*")
        expect(tab.page.locator("tbody")).to_contain_text("broken fan")
        assert tab.problems == []


def maintain(store):
    change = ServiceChange(maintenance=True, maintenance_reason="fan")
    store.set_service("alpha", COMPUTE_BINARY, change)


def die_and_return(store):
    """Be found without a heartbeat by the watcher of the fleet, and up again."""
    warning = HostWarning(WarningKind.HOST_DOWN, WHOLE_HOST, NO_ITEM, "no heartbeat")
    store.raise_warning("alpha", warning)
    store.resolve_warnings(warning.kind, ["alpha"])


def stop_and_start(store):
    report(store, is_last=True)
    register(store)
    report(store)


def report(store, is_last=False):
    (service,) = store.list_services("alpha")
    store.report_state(key_of(service), service.report_count + 1, AuditState(), is_last=is_last)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (maintain, "in maintenance: fan"),
        (die_and_return, "down: no heartbeat.* nodetracker-compute up"),
        (stop_and_start, "nodetracker-compute stopped.* nodetracker-compute started"),
    ],
)
def test_what_a_host_was_set_to_and_that_it_went_down_and_came_up_has_marks(
    browser, store, url, view, change, said
):
    change(store)
    with open_tab(browser, url + view) as tab:
        open_charts(tab)
        marks = tab.page.get_by_role("group", name="Events").get_by_role("button")
        expect(marks.last).to_have_accessible_name(re.compile(f"alpha: .*{said}"))
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
        assert len([one for one in asked if "/v1/trends?" in one]) <= 1


def list_asked(requests) -> list[str]:
    """Return the nodes whose last day was asked for."""
    found = (urlsplit(url) for url in requests)
    queries = [parse_qs(url.query) for url in found if url.path.endswith("/v1/trends/nodes")]
    return [uuid for query in queries for uuid in query["node"]]


def test_a_row_has_the_last_day_of_its_memory_or_of_what_it_is_sorted_by(browser, url):
    with open_tab(browser, url) as tab:
        line = tab.page.locator("tbody tr")
        line.scroll_into_view_if_needed()
        day = line.get_by_role("img")
        expect(day).to_have_accessible_name("Memory over 24 hours: 50 % to 56 %")
        expect(line.locator("[data-title=Memory] path")).to_have_count(1)
        tab.page.get_by_role("button", name="CPU", exact=True).click()
        expect(day).to_have_accessible_name("CPU over 24 hours: 1 %")
        tab.page.get_by_role("button", name="Disk", exact=True).click()
        expect(day).to_have_accessible_name("Disk over 24 hours: 0 %")
        tab.check()
        assert tab.problems == []


def test_a_last_day_that_was_not_answered_is_asked_for_again(browser, url):
    with open_tab(browser, "about:blank") as tab:
        page, refused = tab.page, []

        def refuse(route):
            refused.append(route.request.url)
            route.fulfill(status=503, body="{}")

        page.clock.install()
        page.route("**/v1/trends/nodes?*", refuse, times=2)
        page.goto(url)
        page.locator("tbody tr").scroll_into_view_if_needed()
        for count in (1, 2):
            wait_until(lambda count=count: page.wait_for_timeout(50) or len(refused) == count)
            page.clock.fast_forward(11_000)
        day = page.locator("tbody tr").get_by_role("img")
        expect(day).to_have_accessible_name("Memory over 24 hours: 50 % to 56 %")


def test_the_last_day_is_asked_for_once_and_of_the_nodes_in_view(browser):
    now = utc_clock() - timedelta(hours=2)
    store = SqliteStore(lambda: now)
    agent = register(store)
    values = make_values(pcpus=0, pcpus_used=0)
    nodes = [create(agent, f"n{number}", values) for number in range(90)]
    store.apply_changes(agent, nodes, 60)
    for _ in range(2):
        now += timedelta(hours=1)
        store.sample_trends()
    store.apply_changes(agent, [create(agent, "n90", values)], 60)
    with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
        page, requests = tab.page, []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        days = page.locator("tbody").get_by_role("img")
        days.first.wait_for()
        page.wait_for_load_state("networkidle")
        seen = list_asked(requests)
        assert 0 < len(seen) < 60
        page.locator("footer").scroll_into_view_if_needed()
        page.locator("tbody tr").last.scroll_into_view_if_needed()
        expect(page.locator("tbody tr").nth(89).get_by_role("img")).to_have_count(1)
        expect(page.locator("tbody tr").nth(90).get_by_role("img")).to_have_count(0)
        for _ in range(2):
            with page.expect_response(lambda response: "/v1/overview" in response.url):
                pass
        asked = list_asked(requests)
        assert len(asked) == len(set(asked)) < 91
        assert tab.problems == []
