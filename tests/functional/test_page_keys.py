"""The page by keyboard: lines of lists, verbs with keys, where the focus is, and what is announced."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from nodetracker.model.amounts import Amounts
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.process.clock import utc_clock
from tests.builders import make_guest, make_node, update
from tests.functional.browser import THEMES, open_tab
from tests.page_fleet import serve_page
from tests.stores import SqliteStore

HOSTS = ("h1", "h2", "h3", "h10")
FOCUSED = "document.activeElement.textContent.trim()"


@pytest.fixture
def store():
    made = SqliteStore()
    for number, host in enumerate(HOSTS):
        make_node(made, (make_guest(number, name=f"vm-{host}"),), host=host)
    return made


@pytest.fixture
def url(store):
    with serve_page(store) as url:
        yield url


def service_of(store, host):
    (service,) = store.list_services(host, COMPUTE_BINARY)
    return service


def wait_for_focus(page, text: str) -> None:
    page.wait_for_function(f"text => {FOCUSED} === text", arg=text)


class TestLines:
    def test_letters_and_arrows_move_over_lines_and_enter_opens_one(self, browser, url):
        with open_tab(browser, f"{url}#/hosts") as tab:
            page, press = tab.page, tab.page.keyboard.press
            page.locator("tbody tr").nth(3).wait_for()
            for key, host in (
                ("j", "h1"), ("j", "h2"), ("ArrowDown", "h3"), ("j", "h10"), ("j", "h10"),
                ("k", "h3"), ("ArrowUp", "h2"),
            ):  # fmt: skip
                press(key)
                wait_for_focus(page, host)
            tab.check(THEMES[:1])
            press("Enter")
            page.get_by_role("heading", name="h2", level=1).wait_for()
            page.go_back()
            page.locator("tbody tr").nth(3).wait_for()
            assert tab.problems == []

    def test_lines_are_chosen_and_taken_out_and_put_back_by_key(self, browser, store, url):
        with open_tab(browser, f"{url}#/hosts") as tab:
            page, press = tab.page, tab.page.keyboard.press
            page.locator("tbody tr").nth(3).wait_for()
            for key in ("j", "x", "j", "x", "o"):
                press(key)
            dialog = page.get_by_role("dialog")
            expect(dialog.locator("ul.many").get_by_role("listitem")).to_have_text(
                [re.compile("^h1 up"), re.compile("^h2 up")]
            )
            page.keyboard.type("new disk")
            press("Enter")
            dialog.wait_for(state="detached")
            expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)
            assert [service_of(store, host).maintenance for host in HOSTS] == [1, 1, 0, 0]
            wait_for_focus(page, "h2")
            row = page.get_by_role("row").filter(has_text="h2")
            row.get_by_text("new disk").wait_for()
            press("i")
            dialog.get_by_text("new disk").first.wait_for()  # how it is now
            press("Tab")
            page.keyboard.press("Enter")
            dialog.wait_for(state="detached")
            assert [service_of(store, host).disabled for host in HOSTS] == [1, 0, 0, 0]
            assert tab.problems == []

    def test_keys_may_come_faster_than_the_page_is_drawn(self, browser, url):
        with open_tab(browser, f"{url}#/hosts") as tab:
            tab.page.locator("tbody tr").nth(3).wait_for()
            tab.page.evaluate(
                "for (const key of 'jxjxo') document.activeElement.dispatchEvent("
                "new KeyboardEvent('keydown', { key, bubbles: true }))"
            )
            hosts = tab.page.get_by_role("dialog").get_by_role("listitem")
            expect(hosts).to_have_text([re.compile("^h1 up"), re.compile("^h2 up")])

    def test_what_is_typed_next_is_the_reason(self, browser, url):
        """Before a frame is painted, too; the page would take letters for keys of verbs."""
        with open_tab(browser, f"{url}#/hosts") as tab:
            tab.page.locator("tbody tr").nth(3).wait_for()
            focused = tab.page.evaluate(
                "async () => {"
                " for (const key of 'jo') document.activeElement.dispatchEvent("
                "new KeyboardEvent('keydown', { key, bubbles: true }));"
                " for (let step = 0; step < 50; step += 1) await null;"
                " return document.activeElement.name; }"
            )
            assert focused == "reason"

    def test_a_click_makes_a_line_the_current_one(self, browser, url):
        with open_tab(browser, f"{url}#/hosts") as tab:
            page = tab.page
            page.get_by_role("row").filter(has_text="h3").locator("[data-title=Guests]").click()
            wait_for_focus(page, "h3")
            bar = page.get_by_role("navigation", name="Actions")
            expect(bar).to_contain_text("h3")
            bar.get_by_role("button", name="Guests").click()
            page.wait_for_url("**#/workloads?host=h3")

    def test_no_key_steals_what_is_typed_or_chosen(self, browser, url):
        with open_tab(browser, f"{url}#/hosts") as tab:
            page = tab.page
            page.locator("tbody tr").nth(3).wait_for()
            page.get_by_label("Find").focus()
            page.keyboard.type("joxkn?el/")
            expect(page.get_by_label("Find")).to_have_value("joxkn?el/")
            page.get_by_role("combobox", name="State").focus()
            page.keyboard.press("o")
            expect(page.get_by_role("dialog")).to_have_count(0)

    def test_keys_are_listed_and_can_be_switched_off(self, browser, url):
        with open_tab(browser, f"{url}#/hosts") as tab:
            page = tab.page
            page.locator("tbody tr").nth(3).wait_for()
            page.keyboard.press("?")
            dialog = page.get_by_role("dialog", name="Keys")
            expect(dialog.get_by_role("definition").first).to_have_text("Take out")
            tab.check()
            dialog.get_by_label("Letters are keys").uncheck()
            page.keyboard.press("Escape")
            dialog.wait_for(state="detached")
            page.keyboard.press("o")
            page.keyboard.press("j")
            expect(page.get_by_role("dialog")).to_have_count(0)
            page.get_by_role("button", name="Keys").click()
            dialog.get_by_label("Letters are keys").check()
            dialog.get_by_role("button", name="Close").click()
            page.keyboard.press("o")
            page.get_by_role("combobox", name="Take out: which host?").wait_for()
            assert tab.problems == []


class TestWords:
    @pytest.mark.parametrize(
        ("text", "option"),
        [
            ("take h2 out", "Take out h2"),
            ("put h2 back", "Put back in h2"),
            ("h2 events", "Events h2"),
            ("disable h2", "Disable h2"),
            ("what happened on h2", "Events h2"),
        ],
    )
    def test_the_palette_does_what_is_said(self, browser, url, text, option):
        with open_tab(browser, url) as tab:
            page = tab.page
            page.locator("tbody tr").nth(3).wait_for()
            page.keyboard.press("/")
            page.keyboard.type(text)
            page.get_by_role("option", name=option, exact=True).wait_for()
            expect(page.get_by_role("option").first).to_have_text(re.compile(option))

    def test_enter_waits_for_the_answer(self, browser, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            page.locator("tbody tr").nth(3).wait_for()
            page.keyboard.press("/")
            page.keyboard.type("disable h3", delay=0)
            page.keyboard.press("Enter")
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Reason").wait_for()
            expect(dialog.locator("ul.many").get_by_role("listitem")).to_have_text(re.compile("h3"))


class TestFocus:
    def test_it_stays_where_it_was_after_enter(self, browser, url):
        with open_tab(browser, f"{url}#/workloads") as tab:
            page = tab.page
            page.locator("tbody tr").nth(3).wait_for()
            sort = page.get_by_role("button", name="Memory")
            sort.focus()
            page.keyboard.press("Enter")
            page.wait_for_url("**sort=-memory_mb")
            wait_for_focus(page, "Memory\u25bc")
            field = page.get_by_role("textbox", name="Host")
            field.fill("h2")
            page.keyboard.press("Enter")
            expect(page.locator("tbody tr")).to_have_count(1)
            expect(field).to_be_focused()
            expect(page.locator("#live")).to_have_text("Workloads: 1 line")

    def test_a_dialog_gives_it_back_even_if_its_button_has_changed(self, browser, store, url):
        with open_tab(browser, f"{url}#/host?host=h1") as tab:
            page = tab.page
            actions = page.locator(".title .actions")
            actions.get_by_role("button", name="Take out").focus()
            page.keyboard.press("Enter")
            page.get_by_label("Reason").wait_for()
            page.keyboard.press("Enter")
            expect(actions.get_by_role("button", name="Put back in")).to_be_focused()
            assert service_of(store, "h1").maintenance

    def test_the_last_page_of_a_table_keeps_it(self, browser):
        store = SqliteStore()
        guests = tuple(make_guest(number) for number in range(150))
        make_node(store, guests, host="h1")
        with serve_page(store) as url, open_tab(browser, f"{url}#/workloads") as tab:
            page = tab.page
            page.get_by_text("1\u2013100 of 150").wait_for()
            page.get_by_role("button", name="Next").focus()
            page.keyboard.press("Enter")
            page.get_by_text("101\u2013150 of 150").wait_for()
            expect(page.get_by_role("button", name="Next")).to_be_focused()

    @pytest.mark.parametrize("is_early", [True, False])
    def test_a_page_turned_while_the_rest_of_a_list_comes_is_turned(self, browser, is_early):
        store = SqliteStore()
        guests = tuple(make_guest(number) for number in range(250))
        make_node(store, guests, host="h1")
        with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
            page = tab.page
            rest = re.compile("/v1/workloads.*limit=1000")
            page.route(rest, lambda _route: None)
            page.goto(f"{url}#/workloads")
            page.get_by_text("1\u2013100 of 250").wait_for()
            following = page.get_by_role("button", name="Next")
            following.focus()
            if is_early:
                page.keyboard.press("Enter")
            with page.expect_response(rest):
                page.unroute(rest)  # and what is held goes on
            page.wait_for_timeout(200)  # it is drawn
            if not is_early:
                page.keyboard.press("Enter")
            page.get_by_text("101\u2013200 of 250").wait_for()
            expect(following).to_be_focused()


class TestTitles:
    def test_the_object_comes_first_and_an_outage_before_it(self, browser, store, url):
        with open_tab(browser, "about:blank") as tab:
            page = tab.page
            page.clock.install()
            page.goto(f"{url}#/host?host=h2")
            expect(page).to_have_title("h2 \u2013 nodetracker")
            page.goto(f"{url}#/hosts")
            expect(page).to_have_title("Hosts \u2013 nodetracker")
            node = next(found for found in store.list_nodes() if found.host == "h3")
            page.goto(f"{url}#/nodes/{node.uuid}")
            expect(page).to_have_title("node-1 \u2013 nodetracker")

            def fail(*_args, **_more):
                raise StoreUnavailableError("away")

            store.read_overview = fail
            page.clock.fast_forward(6000)
            expect(page).to_have_title("No answer \u2013 node-1 \u2013 nodetracker")


class TestTwoTabs:
    def test_the_second_confirmation_sees_that_the_state_has_changed(self, browser, store, url):
        with open_tab(browser, f"{url}#/host?host=h1") as tab:
            page = tab.page
            page.locator(".title").get_by_role("button", name="Disable").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("listitem").get_by_text("up").wait_for()
            dialog.get_by_label("Reason").fill("second")
            change = ServiceChange(disabled=True, disabled_reason="first", disabled_by="bob")
            store.set_service("h1", COMPUTE_BINARY, change)
            dialog.get_by_role("button", name="Disable").click()
            dialog.get_by_text("h1 was changed meanwhile").wait_for()
            dialog.get_by_text("by bob: first").wait_for()
            assert service_of(store, "h1").disabled_reason == "first"
            tab.check(THEMES[:1])
            dialog.get_by_role("button", name="Disable").click()
            dialog.wait_for(state="detached")
            assert service_of(store, "h1").disabled_reason == "second"


class TestProgress:
    def test_every_browser_shows_how_many_guests_have_left(self, browser):
        store = SqliteStore()
        agent = make_node(store, host="h1")
        (record,) = store.load_nodes("h1")
        start = record.values.running_vms + record.values.total_containers
        change = ServiceChange(
            disabled=True, disabled_reason="fan", maintenance=True, disabled_by="eve"
        )
        store.set_service("h1", COMPUTE_BINARY, change)
        store.apply_changes(agent, [update(record, running_vms=0, total_containers=4)], 60)
        with serve_page(store) as url, open_tab(browser, f"{url}#/host?host=h1") as tab:
            page = tab.page
            page.get_by_text(f"{start} \u2192 4 guests").wait_for()
            bar = page.get_by_role("progressbar", name="Guests that have left")
            expect(bar).to_have_js_property("value", start - 4)
            page.get_by_text("by eve: fan").wait_for()
            tab.check()
            (record,) = store.load_nodes("h1")
            store.apply_changes(agent, [update(record, total_containers=0)], 60)
            page.get_by_text(f"{start} \u2192 0 guests").wait_for()
            page.locator(".title").get_by_role("button", name="Put back in").click()
            page.get_by_role("dialog").get_by_role("button", name="Put back in").click()
            page.get_by_text("1 node, no guests").wait_for()
            assert not service_of(store, "h1").disabled


class TestManyHosts:
    def test_totals_order_and_search_are_those_of_all(self, browser):
        store = SqliteStore()
        for number in range(7):
            make_node(store, charge=Amounts(memory_mb=1024 * number), host=f"h{number}")
        store.set_service("h3", COMPUTE_BINARY, ServiceChange(maintenance=True))
        with (
            serve_page(store, limits={"max_limit": 3}) as url,
            open_tab(browser, f"{url}#/hosts") as tab,
        ):
            page = tab.page
            hosts = page.locator("td[data-title=Host]")
            page.get_by_text("1\u20133 of 7").wait_for()
            page.get_by_role("button", name="Fullest").click()
            expect(hosts).to_have_text(["h6", "h5", "h4"])
            step = page.get_by_role("button", name="Next")
            step.click()
            expect(hosts).to_have_text(["h3", "h2", "h1"])
            page.get_by_text("4\u20136 of 7").wait_for()
            step.focus()
            page.keyboard.press("Enter")
            expect(hosts).to_have_text(["h0"])
            expect(step).to_be_focused()
            expect(page.locator("#live")).to_have_text("Hosts: 7 lines")
            page.get_by_label("Find").fill("h5")
            expect(hosts).to_have_text(["h5"])
            page.get_by_role("link", name="Clear", exact=True).click()
            page.get_by_role("combobox", name="Maintenance").select_option("yes")
            expect(hosts).to_have_text(["h3"])
            tab.check(THEMES[:1])
            assert tab.problems == []


class TestDown:
    def test_what_is_down_says_since_when_and_no_uptime(self, browser):
        late = [timedelta(hours=2)]
        store = SqliteStore(lambda: utc_clock() - late[0])
        make_node(store, host="h2")
        late[0] = timedelta()
        (node,) = store.list_nodes()
        with serve_page(store) as url, open_tab(browser, f"{url}#/nodes/{node.uuid}") as tab:
            lines = tab.page.locator("dl.summary")
            expect(lines).to_contain_text("Down since")
            for word in ("Uptime", "Measured"):
                expect(lines).not_to_contain_text(word)
            tab.page.goto(f"{url}#/host?host=h2")
            tab.page.get_by_text("Down since").wait_for()
            expect(tab.page.locator("main")).not_to_contain_text("Heartbeat")
