"""The page in a browser as operators use it: figures that are right, and what clicks lead to."""

import json
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import ask, claim, make_guest, make_node, move
from tests.contract.scene import build
from tests.functional.browser import THEMES, open_tab
from tests.page_fleet import PageFleet, PageStore, serve_page
from tests.page_node import add_captured_machines
from tests.stores import SqliteStore

WAIT_SECONDS = 60
PHONE = 360
SETTLED_MS = 500


def make_fleet(nodes: int, **changes) -> PageFleet:
    """Return a fleet in which nothing is wrong, with nodes of equal columns."""
    fleet = PageFleet(nodes, is_fine=True)
    fleet.nodes = [replace(node, **changes) for node in fleet.nodes]
    return fleet


def is_overview(response) -> bool:
    return response.url.endswith("/v1/overview") and response.status == 200


def test_a_page_that_is_opened_again_has_the_time_of_now(browser):
    """The fleet is as before, so that the browser may have kept its answer."""
    with (
        serve_page(PageStore(make_fleet(2)), max_age=0) as url,
        open_tab(browser, "about:blank") as tab,
    ):
        times = []
        for page in (tab.page, tab.page.context.new_page()):
            with page.expect_response(is_overview) as answer:
                page.goto(url)
            times.append(answer.value.json()["now"])
        assert times[0] < times[1]


def test_amounts_and_ages_have_the_same_text_as_on_the_terminal(browser):
    golden = json.loads((Path(__file__).parents[1] / "golden" / "amounts.json").read_text())
    with serve_page(PageStore(make_fleet(1))) as url, open_tab(browser, url) as tab:
        shown = tab.page.evaluate(
            """async ({amounts, ages}) => {
                const page = new URL("page.js", document.querySelector("script[src]").src);
                const {age, amount} = await import(page.href);
                return {
                    amounts: amounts.map(([resource, value, role, beside]) =>
                        [resource, value, role, beside, amount(resource, value, role, beside ?? undefined)]),
                    ages: ages.map(([seconds]) => [seconds, age(seconds)]),
                };
            }""",
            golden,
        )
        assert shown == golden


def test_a_node_that_is_full_to_its_limit_is_not_overcommitted(browser):
    """1.2 of 1.2 CPUs are used; as floats, 4 - 2.8 is more than 1.2."""
    full = {
        "vcpus": 4,
        "pcpus": 0,
        "pcpus_used": 0,
        "cpu_used": 1.2,
        "cpu_allocation_ratio": 0.3,
        "reserved": {},
    }
    fleet = make_fleet(2, **full, memory_mb_used=0, disk_used=0.0)
    with (
        serve_page(PageStore(fleet)) as url,
        open_tab(browser, f"{url}#/?only=overcommitted") as tab,
    ):
        tab.page.get_by_text("All 2 nodes are fine").first.wait_for()
        tab.page.get_by_text("No node is like that.").wait_for()
        tab.page.get_by_role("link", name="Clear", exact=True).click()
        tab.page.get_by_text("1.2 of 1.2").nth(1).wait_for()
        assert tab.page.locator(".amount .mark").count() == 0


def test_events_are_those_of_a_node_a_kind_and_a_time(browser):
    store = SqliteStore()
    for host in ("alpha", "beta"):
        make_node(store, host=host)
        claim(store, ask(VCPU=1), host)
    uuid = store.list_nodes("beta")[0].uuid
    with serve_page(store) as url, open_tab(browser, f"{url}#/nodes/{uuid}") as tab:
        page = tab.page
        page.get_by_role("link", name="All events").click()
        lines = page.locator("tbody tr")
        expect(lines).to_have_count(2)  # of this node alone
        page.get_by_label("Kind").select_option("claim")
        page.get_by_label("Host").fill("")
        page.get_by_label("Node", exact=True).fill("")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(lines).to_have_count(2)
        expect(lines.filter(has_text="created")).to_have_count(2)
        expect(lines.filter(has_text="alpha")).to_have_count(1)
        page.get_by_label("To", exact=True).fill("2020-01-01T00:00")
        page.get_by_role("button", name="Show", exact=True).click()
        page.get_by_text("Nothing happened.").wait_for()
        page.get_by_role("link", name="Last night").click()
        since = page.get_by_label("From")
        expect(since).to_have_value(re.compile("T18:00$"))


@pytest.mark.parametrize("hour", ["00:30", "07:30", "09:00", "23:30"])
def test_what_happened_on_a_host_last_night_takes_no_field(browser, hour):
    """The clock of the browser is a month late: the night is that of the server's."""
    store = SqliteStore()
    make_node(store, host="beta")

    def answer(route):
        response = route.fetch()
        if response.status != 200:  # nothing is new
            return route.fulfill(response=response)
        now = f"2026-11-27T{hour}:00Z"
        return route.fulfill(response=response, json=response.json() | {"now": now})

    with (
        serve_page(store) as url,
        open_tab(browser, "about:blank", timezone_id="UTC") as tab,
    ):
        page = tab.page
        page.clock.set_fixed_time(f"2026-10-27T{hour}")
        page.route("**/v1/overview*", answer)
        page.goto(url)
        page.get_by_role("link", name="beta").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("beta")
        page.get_by_role("option", name="Events beta").click()
        page.wait_for_url("**#/events?host=beta")
        page.locator("main").focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**&since=2026-11-26T18%3A00&until=2026-11-27T08%3A00")
        page.go_back()
        page.keyboard.press("/")
        page.keyboard.type("last night beta")
        page.get_by_role("option", name="Last night beta").click()
        page.wait_for_url("**&since=2026-11-26T18%3A00&until=2026-11-27T08%3A00")
        assert tab.problems == []
        page.unroute_all(behavior="ignoreErrors")


def test_titles_and_values_of_cards_do_not_overlap(browser):
    store = SqliteStore()
    make_node(store)
    with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
        tab.look(THEMES[0], PHONE)
        tab.page.goto(f"{url}#/nodes/{store.list_nodes()[0].uuid}")
        cell = tab.page.locator("[data-title='Claims and guests']").first
        cell.wait_for()
        lines = cell.evaluate(
            "cell => cell.getBoundingClientRect().height"
            " / parseFloat(getComputedStyle(cell).lineHeight)"
        )
        assert lines > 2  # the title is wrapped


def test_words_in_tables_are_not_broken_at_1024_pixels(browser):
    store = SqliteStore()
    make_node(store, (make_guest(1, name="a-guest-with-24-characters"[:24]),), host="h" * 24)
    with serve_page(store) as url, open_tab(browser, f"{url}#/workloads") as tab:
        tab.look(THEMES[0], 1024)
        for title in ("Kind", "Claim"):
            cell = tab.page.locator(f"td[data-title={title}] bdi")
            cell.wait_for()
            lines = cell.evaluate("cell => cell.getClientRects().length")
            assert lines == 1, title
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1024


def test_words_on_buttons_are_not_broken(browser):
    store = SqliteStore()
    make_node(store)
    claim(store, ask(VCPU=1))
    uuid = store.list_nodes()[0].uuid
    with serve_page(store) as url, open_tab(browser, f"{url}#/nodes/{uuid}") as tab:
        button = tab.page.get_by_role("button", name="Abort")
        button.wait_for()
        assert button.bounding_box()["height"] < 40


def test_first_nodes_are_seen_while_the_overview_of_a_large_fleet_is_made(browser):
    store = SqliteStore()
    make_node(store)
    answers = threading.Event()
    read = store.read_overview
    store.read_overview = lambda: answers.wait(WAIT_SECONDS) and read()
    with serve_page(store) as url, open_tab(browser, url) as tab:
        page = tab.page
        page.get_by_text("Loading the fleet").wait_for()
        expect(page.locator("tbody tr")).to_have_count(1)
        assert page.locator("[aria-label=Totals]").count() == 0
        answers.set()
        page.locator("[aria-label=Totals]").wait_for()
        expect(page.locator("tbody tr")).to_have_count(1)
        assert tab.problems == []


@pytest.mark.parametrize(
    ("query", "nodes"),
    [("", 100), ("?text=-0007", 1), ("?state=down", 6), ("?only=empty", 0)],
)
def test_the_first_nodes_are_one_page_of_those_that_the_address_selects(browser, query, nodes):
    store = PageStore(PageFleet(120))
    store.insert_rows()
    answers = threading.Event()
    read = store.read_overview
    store.read_overview = lambda: answers.wait(WAIT_SECONDS) and read()
    with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
        page = tab.page
        asked = []
        page.on("request", lambda sent: "/v1/nodes" in sent.url and asked.append(sent.url))
        page.goto(f"{url}#/{query}")
        page.get_by_text("Loading the fleet").wait_for()
        page.wait_for_timeout(1000)
        expect(page.locator("tbody tr")).to_have_count(nodes)
        assert len(asked) == (nodes > 0)
        answers.set()
        page.locator("[aria-label=Totals]").wait_for()
        assert tab.problems == []


def test_the_first_nodes_that_were_not_read_recently_are_asked_for_as_such(browser):
    """How recent a reading is follows from the overview, so they come together with it."""
    store = PageStore(PageFleet(120))
    store.insert_rows()
    answers = threading.Event()
    read = store.read_overview
    store.read_overview = lambda: answers.wait(WAIT_SECONDS) and read()
    with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
        with tab.page.expect_request(lambda sent: "/v1/nodes" in sent.url) as asked:
            tab.page.goto(f"{url}#/?only=unread")
        assert "state=up&freshness=late&freshness=stale" in asked.value.url
        answers.set()
        tab.page.locator("[aria-label=Totals]").wait_for()
        expect(tab.page.locator("tbody tr")).to_have_count(6)
        assert tab.problems == []


def test_lines_of_nodes_that_did_not_change_are_not_rendered_again(browser):
    with serve_page(PageStore(make_fleet(1))) as url, open_tab(browser, url) as tab:
        kept = tab.page.evaluate(
            """async () => {
                const {linesOf} = await import(new URL("overview.js", document.querySelector("script[src]").src));
                const nodes = [{host: "a", nodename: "a"}, {host: "b", nodename: "b"}];
                const read = (reason) => linesOf({nodes, empty_hosts: [], down_since: {a: "2026-01-01T00:00:00Z"},
                    decisions: {b: {disabled_reason: reason}}});
                const [first, same, changed] = [read("x"), read("x"), read("y")];
                return [same, changed].map((lines) => lines.map((line, index) => line === first[index]));
            }"""
        )
        assert kept == [[True, True], [True, False]]


@pytest.mark.parametrize("size", [40, 1000])
def test_an_idle_page_transfers_at_most_2_kb_in_half_a_minute(browser, size):
    with serve_page(PageStore(PageFleet(size))) as url, open_tab(browser, "about:blank") as tab:
        page = tab.page
        page.clock.install()
        page.goto(url)
        page.locator("[aria-label=Totals]").wait_for()
        page.wait_for_load_state("networkidle")
        page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
        sent, pending = {}, set()
        page.on("request", lambda request: pending.add(request))
        for event in ("requestfinished", "requestfailed"):
            page.on(event, lambda request: pending.discard(request))
        line = page.context.new_cdp_session(page)
        line.send("Network.enable")
        line.on(
            "Network.loadingFinished",
            lambda event: sent.update({event["requestId"]: event["encodedDataLength"]}),
        )

        def poll(times):
            for _ in range(times):
                with page.expect_event("requestfinished"):
                    page.clock.run_for(5000)
                page.wait_for_timeout(SETTLED_MS)
                while pending:
                    page.wait_for_timeout(SETTLED_MS)

        poll(2)  # with what is asked for less often
        sent.clear()
        poll(6)
        assert len(sent) >= 6
        assert sum(sent.values()) <= 2000, sent
        assert tab.problems == []


def test_services_warnings_and_moves_are_those_of_a_host(browser):
    store = SqliteStore()
    for host in ("alpha", "beta"):
        make_node(store, host=host)
        store.raise_warning(host, HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "no answer"))
    move(store, claim(store, ask(VCPU=1), "alpha"), "beta")
    with serve_page(store) as url, open_tab(browser, f"{url}#/moves?host=gamma") as tab:
        page = tab.page
        page.get_by_text("No workload is moved.").wait_for()
        page.get_by_label("Host").fill("beta")
        page.get_by_role("button", name="Show", exact=True).click()
        lines = page.locator("tbody tr")
        expect(lines).to_have_count(1)
        for view in ("warnings",):
            page.goto(f"{url}#/{view}?host=beta")
            expect(lines).to_have_count(1)
            expect(lines).to_contain_text("beta")
        page.get_by_role("link", name="What happened").click()
        page.wait_for_url("**#/events?kind=warning&host=beta")
        expect(lines).to_have_count(1)
        assert tab.problems == []


def test_a_warning_is_silenced_in_its_row_and_listed_apart(browser):
    store = SqliteStore()
    make_node(store)
    store.raise_warning("alpha", HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "no answer"))
    with serve_page(store) as url, open_tab(browser, f"{url}#/warnings") as tab:
        page = tab.page
        page.get_by_role("button", name="Silence 4 h").click()
        page.get_by_label("Reason").fill("a disk is ordered")
        page.get_by_role("dialog").get_by_role("button", name="Silence 4 h").click()
        page.get_by_text("No warning.").wait_for()
        page.get_by_role("link", name="Silenced").click()
        expect(page.locator("tbody tr")).to_contain_text("a disk is ordered")
        (found,) = store.list_warnings()
        assert found.silenced_reason == "a disk is ordered"
        assert tab.problems == []


def test_a_host_without_nodes_has_a_line_and_a_tile(browser):
    fleet = make_fleet(2)
    fleet.add_empty_host("silent-1")
    with serve_page(PageStore(fleet)) as url, open_tab(browser, url) as tab:
        page = tab.page
        line = page.locator("tbody tr").filter(has_text="silent-1")
        expect(line).to_contain_text("no node yet")
        expect(line.locator(".since")).to_have_text("3 h")
        page.get_by_role("application", name="2 nodes by their fullest resource").press("End")
        expect(page.locator(".tip")).to_have_text("silent-1: down, never read")
        page.get_by_role("link", name="1 host down").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        tab.check(THEMES[:1])
        assert tab.problems == []


def test_a_problem_leads_to_its_nodes_on_a_phone(browser):
    with (
        serve_page(PageStore(PageFleet(140))) as url,
        open_tab(browser, "about:blank") as tab,
    ):
        tab.look(THEMES[0], PHONE)
        tab.page.goto(url)
        tab.page.get_by_role("link", name="hosts down").click()
        tab.page.wait_for_function(
            "() => document.querySelectorAll('tbody tr').length === 8"
            " && document.getElementById('nodes').getBoundingClientRect().top < innerHeight / 2"
        )
        assert tab.page.evaluate("document.activeElement.id") == "nodes"


def test_nodes_in_maintenance_are_noted_and_listed(browser):
    with serve_page(PageStore(PageFleet(140))) as url, open_tab(browser, url) as tab:
        tab.page.get_by_role("link", name="3 nodes in maintenance").click()
        tab.page.wait_for_url("**#/?only=maintenance")
        tab.page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 3")
        assert tab.page.locator("tbody .is-maintenance").count() == 3


def test_nodes_of_a_truncated_fleet_are_linked_by_what_the_api_filters(browser):
    fleet = PageStore(PageFleet(140))
    with (
        serve_page(fleet, limits={"overview_max_nodes": 20}) as url,
        open_tab(browser, url) as tab,
    ):
        health = tab.page.get_by_role("region", name="Health")
        health.get_by_text("nodes overcommitted").wait_for()
        links = health.get_by_role("link").all_text_contents()
        assert [text.split(" ", 1)[1] for text in links] == [
            "hosts down",
            "nodes not read recently",
            "nodes overcommitted",
            "other warnings",
            "nodes disabled",
            "nodes in maintenance",
        ]
        with tab.page.expect_request("**/v1/nodes?*state=up&freshness=late&freshness=stale*"):
            health.get_by_role("link", name="nodes not read recently").click()


def test_a_node_without_claims_has_no_period_of_claims(browser):
    store = SqliteStore()
    add_captured_machines(store)
    node = store.list_nodes()[0]
    with serve_page(store) as url, open_tab(browser, f"{url}#/nodes/{node.uuid}") as tab:
        tab.page.get_by_text("No claim yet.").wait_for()
        assert "2000-" not in tab.page.locator(".claims").text_content()


def test_buttons_of_a_node_keep_their_words_on_a_phone(browser):
    store = SqliteStore()
    build(store)
    node = next(found for found in store.list_nodes() if found.nodename == "n1")
    with serve_page(store) as url, open_tab(browser, f"{url}#/nodes/{node.uuid}") as tab:
        tab.look(THEMES[0], PHONE)
        button = tab.page.get_by_role("button", name="maintenance")
        button.wait_for()
        assert button.bounding_box()["height"] < 40


def test_a_node_that_does_not_exist_has_a_page(browser):
    with serve_page(SqliteStore()) as url, open_tab(browser, f"{url}#/nodes/gone") as tab:
        tab.page.get_by_text("no such node: gone").wait_for()
        assert tab.page.get_by_role("heading", level=1).all_text_contents() == ["Node"]
        tab.check(THEMES[:1])


def test_a_service_that_is_forced_down_is_not_taken_for_dead(browser):
    store = SqliteStore()
    build(store)
    service = next(found for found in store.list_services() if found.binary == COMPUTE_BINARY)
    store.set_service(service.host, service.binary, ServiceChange(forced_down=True))
    with serve_page(store) as url, open_tab(browser, f"{url}#/services") as tab:
        row = tab.page.get_by_role("row").filter(has_text=service.host)
        row.get_by_text("forced down", exact=True).wait_for()


def test_who_forces_a_host_down_says_why_and_its_pages_have_it(browser):
    store = SqliteStore()
    build(store)
    node = store.list_nodes()[0]
    with serve_page(store) as url, open_tab(browser, f"{url}#/nodes/{node.uuid}") as tab:
        tab.page.get_by_role("button", name="Force down").first.click()
        tab.page.get_by_label("Reason").fill("fenced off")
        tab.page.get_by_role("dialog").get_by_role("button", name="Force down").click()
        tab.page.locator("dd").filter(has_text="fenced off").wait_for()
        tab.page.goto(f"{url}#/host?host={node.host}")
        tab.page.locator("p").filter(has_text="Forced down").filter(
            has_text="fenced off"
        ).wait_for()
    (service,) = store.list_services(node.host, COMPUTE_BINARY)
    assert (service.forced_down, service.forced_down_reason) == (True, "fenced off")


def test_a_part_of_a_cpu_is_looked_for_as_a_whole_one(browser):
    store = SqliteStore()
    build(store)
    with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
        with tab.page.expect_request("**/v1/candidates?*") as request:
            tab.page.goto(f"{url}#/fit?cpus=0.4")
        assert parse_qs(urlsplit(request.value.url).query)["resources"] == ["VCPU:1"]


@pytest.mark.parametrize("query", ["", "?host=h1", "?nodename=n1"])
def test_an_address_without_both_names_is_that_of_no_node(browser, query):
    store = SqliteStore()
    build(store)
    with serve_page(store) as url, open_tab(browser, f"{url}#/node{query}") as tab:
        tab.page.get_by_text("No such node.").wait_for()


@pytest.mark.parametrize("name", ["constructor", "toString"])
def test_no_view_has_the_name_of_what_all_objects_have(browser, name):
    with (
        serve_page(PageStore(make_fleet(1))) as url,
        open_tab(browser, f"{url}#{name}") as tab,
    ):
        tab.page.get_by_text("No view has this address.").wait_for()
        assert tab.problems == []


def test_all_workloads_are_sorted_by_the_api_and_not_those_of_a_page(browser):
    """The largest is on no page before the last by name."""
    store = SqliteStore()
    guests = [make_guest(number, memory_mb=number) for number in range(1, 121)]
    make_node(store, tuple(guests))
    with serve_page(store) as url, open_tab(browser, f"{url}#/workloads") as tab:
        page = tab.page
        names = page.locator("td[data-title=Workload]")
        expect(names.first).to_have_text("vm-1")
        page.get_by_role("button", name="Memory", exact=True).click()
        expect(names.first).to_have_text("vm-120")
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("Memory")
        page.get_by_role("button", name="Memory", exact=True).click()
        expect(names.first).to_have_text("vm-1")
        assert tab.problems == []
