"""The page in a browser: what is seen, in every look, by keyboard alone, and during outages."""

import re
from dataclasses import replace

import pytest
import yaml
from playwright.sync_api import expect

from nodetracker.api.auth.users import hash_password
from nodetracker.model.errors import StoreUnavailableError
from tests.contract.scene import build
from tests.functional.browser import THEMES, WIDTHS, open_tab
from tests.functional.servers.keystone import PASSWORD, TOKEN, serve_keystone
from tests.functional.servers.process import find_free_port
from tests.functional.servers.tls import Authority
from tests.page_fleet import PageFleet, PageStore, serve_page
from tests.programs import Programs
from tests.stores import SqliteStore

IMAGE = "<img src=x onerror=document.title='hacked'>"
HOSTILE = (
    IMAGE,
    "\"quoted' & <b>bold</b>",
    "right\u202eto\u202cleft \u05d0\u05d1\u05d2",
    "n" * 255,
    "emoji-\U0001f984-\U0001f469\u200d\U0001f680",
)
VIEWS = {
    "#/": "n1",
    "#/hosts": "nodetracker-conductor",
    "#/warnings": "clock skew",
    "#/moves": "migration",
    "#/events": "created: ",
    "#/nowhere": "No view",
}
"""Address of a view -> a text that it shows of the scene."""

SECONDS = 1000


def shorten(name):
    """Return what the page shows of a name; its title has all of it."""
    return name if len(name) <= 32 else f"{name[:16]}…{name[-15:]}"


def make_node(nodename):
    return {"nodename": nodename, "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}


class Standalone:
    """nodetracker-standalone with the fake driver and an audit each second."""

    def __init__(self, directory) -> None:
        self.port = find_free_port()
        extra = f"[api]\nport = {self.port}\nauth_strategy = noauth\n"
        self.programs = Programs(directory, extra=extra, update_resources_interval=1)
        self.nodes = [make_node(name) for name in HOSTILE]
        self.write()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def write(self) -> None:
        """Write the file of nodes; the last one of the hostile cannot be read."""
        document = {"nodes": self.nodes, "fail": {HOSTILE[0]: f"{IMAGE} is not ready"}}
        self.programs.inventory.write_text(yaml.safe_dump(document))


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    found = Standalone(tmp_path_factory.mktemp("standalone"))
    with found.programs.start("nodetracker-standalone") as running:
        running.wait_for("is ready")
        running.wait_for("Serving on")
        yield found


@pytest.fixture(scope="module")
def scene():
    """The address of a page that has something of everything."""
    store = SqliteStore()
    build(store)
    with serve_page(store) as url:
        yield url


@pytest.fixture(scope="module")
def fleet():
    return PageStore(PageFleet(140))


@pytest.fixture(scope="module")
def url(fleet):
    with serve_page(fleet) as url:
        yield url


class TestStandalone:
    def test_a_new_node_is_seen_without_reloading(self, browser, standalone):
        with open_tab(browser, standalone.url) as tab:
            page = tab.page
            page.get_by_role("link", name=shorten(HOSTILE[3])).wait_for()
            assert page.url == f"{standalone.url}ui/"
            page.evaluate("window.isSame = true")
            standalone.nodes.append(make_node("new-node"))
            standalone.write()
            page.get_by_role("link", name="new-node").wait_for()
            assert page.evaluate("window.isSame")
            assert tab.problems == []

    def test_hostile_texts_are_shown_as_text(self, browser, standalone):
        with open_tab(browser, f"{standalone.url}ui/") as tab:
            page = tab.page
            for name in HOSTILE[1:]:  # the first one was never read
                link = page.locator("td a").filter(has_text=shorten(name))
                link.first.wait_for()
                assert link.first.text_content() == shorten(name)
                assert name == shorten(name) or link.locator("bdi").get_attribute("title") == name
            tab.check(THEMES[:1])
            page.goto(f"{standalone.url}ui/#/warnings")
            page.get_by_text("is not ready").first.wait_for()
            assert IMAGE in page.locator("tbody").text_content()
            tab.check(THEMES[:1])
            assert page.locator("img, b").count() == 0
            assert "hacked" not in page.title()
            assert tab.problems == []

    def test_by_keyboard_alone_a_node_is_found_and_opened(self, browser, standalone):
        with open_tab(browser, f"{standalone.url}ui/") as tab:
            page, press = tab.page, tab.page.keyboard.press
            page.locator("td a").first.wait_for()
            press("Tab")
            assert focused(page) == "Skip to the content"
            press("Enter")
            press_until(page, "Tab", "input[type=search]")
            page.keyboard.type("bold")
            page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
            press_until(page, "Tab", "td[data-title=Node] a")
            press("Enter")
            page.wait_for_url("**/ui/#/nodes/*")
            page.go_back()
            page.wait_for_url("**/ui/#/?text=bold")
            expect(page.locator("input[type=search]")).to_have_value("bold")
            expect(page.locator("tbody tr")).to_have_count(1)


def focused(page) -> str:
    return page.evaluate("document.activeElement.textContent.trim()")


def press_until(page, key: str, selector: str) -> None:
    """Press a key until an element has the focus, visibly."""
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate(f"document.activeElement.matches('{selector}')"):
            break
    found = page.evaluate(
        f"document.activeElement.matches('{selector}') && "
        "getComputedStyle(document.activeElement).outlineStyle"
    )
    assert found == "solid"


class TestViews:
    @pytest.mark.parametrize("view", VIEWS)
    def test_nothing_is_wrong_with_it_in_any_look(self, browser, scene, view):
        with open_tab(browser, scene + view) as tab:
            tab.page.locator("main").get_by_text(VIEWS[view]).first.wait_for()
            tab.check()
            assert tab.problems == []

    def test_one_that_fails_leaves_the_others(self, browser, scene):
        with open_tab(browser, scene) as tab:
            page = tab.page
            page.route("**/v1/warnings?*", lambda route: route.fulfill(json={"warnings": [None]}))
            page.get_by_role("link", name="Warnings", exact=True).click()
            page.get_by_text("This view failed").wait_for()
            menu = page.get_by_role("navigation", name="Views")
            expect(menu.get_by_role("link")).to_have_count(7)  # there are moves
            menu.get_by_role("link", name="Moves").click()
            page.locator("main").get_by_text("migration").first.wait_for()

    def test_the_theme_can_be_chosen(self, browser, scene):
        with open_tab(browser, scene, color_scheme="light") as tab:
            page = tab.page
            page.get_by_label("Theme").select_option("dark")
            page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
            page.reload()
            page.get_by_label("Theme").wait_for()
            assert page.evaluate("matchMedia('(prefers-color-scheme: light)').matches")
            assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"

    def test_it_fits_at_twice_the_size(self, browser, scene):
        with open_tab(browser, scene) as tab:
            tab.page.locator("td a").first.wait_for()
            tab.look(THEMES[0], WIDTHS[0] // 2)  # as zooming to 200 % does
            width = "document.documentElement.scrollWidth"
            assert tab.page.evaluate(width) <= WIDTHS[0] // 2
            tab.look(THEMES[0], WIDTHS[0])
            tab.page.evaluate("document.documentElement.style.fontSize = '200%'")
            assert tab.page.evaluate(width) <= WIDTHS[0]


def wait_for_nodes(page, nodes) -> None:
    """Wait until the table has these nodes, each with its host."""
    page.wait_for_function(
        "nodes => JSON.stringify([...document.querySelectorAll('tbody tr')].map((row) => "
        "[row.querySelector('[data-title=Host]').textContent, row.querySelector('[data-title=Node]').textContent])) === JSON.stringify(nodes)",
        arg=nodes,
    )


class TestOverview:
    def test_health_is_in_words_and_each_filters(self, browser, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            health = page.get_by_role("region", name="Health")
            health.get_by_role("link", name="hosts down").click()
            page.wait_for_url("**#/?state=down")
            expect(page.locator("tbody tr")).to_have_count(8)
            expect(page).to_have_title(re.compile("^8 hosts down, "))
            health.get_by_role("link", name="disabled").click()
            page.wait_for_url("**#/?status=disabled")
            expect(page.get_by_label("Status")).to_have_value("disabled")
            assert tab.problems == []

    def test_totals_have_what_is_in_use_beside_what_is_allocated(self, browser, url):
        with open_tab(browser, url) as tab:
            memory = tab.page.locator(".total", has_text="Memory")
            memory.get_by_text(
                re.compile(r"allocated, \d+ % in use on \d+ of \d+ nodes")
            ).wait_for()

    def test_it_fits_windows_of_many_widths(self, browser, url):
        with open_tab(browser, url) as tab:
            tab.page.locator("td a").first.wait_for()
            for width in (360, 600, 900, 1024, 1150, 1280):
                tab.look(THEMES[0], width)
                assert tab.page.evaluate("document.documentElement.scrollWidth") <= width

    def test_a_fleet_that_is_too_large_is_read_page_by_page(self, browser):
        store = SqliteStore()
        build(store)
        nodes = sorted((node.host, node.nodename) for node in store.list_nodes())
        limits = {"overview_max_nodes": 2, "max_limit": 2}
        with serve_page(store, limits=limits) as url, open_tab(browser, url) as tab:
            page = tab.page
            page.get_by_text("The fleet has more than 2 nodes").wait_for()
            page.get_by_role("button", name="Host", exact=True).click()
            for start in range(0, len(nodes), 2):
                wait_for_nodes(page, nodes[start : start + 2])
                if start + 2 < len(nodes):
                    page.get_by_role("button", name="Next nodes").click()
            page.get_by_label("Find").fill("n2")
            wait_for_nodes(page, [node for node in nodes if node[1] == "n2"])
            tab.check(THEMES[:1])
            assert tab.problems == []

    def test_order_filter_and_page_are_in_the_address(self, browser, url):
        with open_tab(browser, f"{url}#/?sort=-node&page=2") as tab:
            page = tab.page
            page.get_by_text("101\u2013140 of 140").wait_for()
            assert page.locator("th[aria-sort=descending]").text_content().startswith("Node")
            assert (
                page.locator("tbody tr")
                .last.get_by_role("link")
                .last.inner_text()
                .startswith("host-0000")
            )
            page.get_by_role("button", name="Host", exact=True).click()
            page.wait_for_url("**#/?sort=host")
            expect(page.locator("tbody tr")).to_have_count(100)

    def test_tiles_name_nodes_and_open_them(self, browser, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            picture = page.get_by_role("application", name="140 nodes by their fullest resource")
            picture.focus()
            page.keyboard.press("ArrowRight")
            expect(page.locator(".tip")).to_contain_text("host-0001.example.org: up")
            picture.hover(position={"x": 3, "y": 3})
            expect(page.locator(".tip")).to_contain_text("host-0000.example.org: up")
            picture.click(position={"x": 3, "y": 3})
            page.wait_for_url("**#/nodes/*")

    def test_nodes_that_have_not_changed_are_not_sent_again(self, browser):
        fleet = PageFleet(40, is_fine=True)
        served = serve_page(PageStore(fleet), max_age=0)
        with served as url, open_tab(browser, "about:blank") as tab:
            page = tab.page
            page.clock.install()
            page.goto(url)
            page.locator("td a").first.wait_for()
            for number in (7, 23):
                with page.expect_response(lambda r: "base=" in r.url and r.status == 200) as found:
                    fleet.nodes[number] = replace(fleet.nodes[number], running_vms=5000 + number)
                    page.clock.fast_forward(6 * SECONDS)
                nodes = found.value.json()["nodes"]
                assert [node["host"] for node in nodes] == [f"host-{number:04d}"]
            for number in (7, 23):
                row = page.locator("tbody tr").filter(has_text=f"host-{number:04d}.example.org")
                expect(row).to_contain_text(f"5,0{number:02d}")
            expect(page.locator("tbody tr")).to_have_count(40)
            assert tab.problems == []

    def test_during_an_outage_the_last_answer_remains(self, browser, url, fleet):
        with open_tab(browser, "about:blank") as tab:
            page = tab.page
            page.clock.install()
            page.goto(url)
            page.locator("td a").first.wait_for()
            fleet.error = StoreUnavailableError("away")
            page.clock.fast_forward(6 * SECONDS)
            banner = page.get_by_role("alert")
            banner.get_by_text("No answer since").wait_for()
            assert "The database is unavailable" in banner.text_content()
            assert page.locator("main.old tbody tr").count() == 100
            fleet.error = None
            banner.get_by_role("button", name="Retry now").click()
            banner.wait_for(state="detached")
            expect(page.locator("main.old")).to_have_count(0)

    def test_an_outage_has_a_time_though_an_answer_never_came(self, browser, url, fleet):
        with open_tab(browser, "about:blank") as tab:
            page = tab.page
            page.clock.install()
            page.route("**/v1/about", lambda route: route.fulfill(status=503, body="{}"))
            page.goto(url)
            page.locator("td a").first.wait_for()
            banner = page.get_by_role("alert")
            banner.get_by_text("No answer (").wait_for()
            fleet.error = StoreUnavailableError("away")
            page.clock.fast_forward(6 * SECONDS)
            banner.get_by_text("No answer since").wait_for()
            fleet.error = None

    def test_a_search_that_is_not_answered_has_not_found_nothing(self, browser, url):
        errors = [{"title": "Service unavailable", "detail": "The database is unavailable"}]
        refusal = {"status": 503, "json": {"errors": errors}}
        with open_tab(browser, url) as tab:
            page = tab.page
            page.locator("td a").first.wait_for()
            page.route("**/v1/search?*", lambda route: route.fulfill(**refusal), times=1)
            page.keyboard.press("/")
            palette, status = page.get_by_role("dialog"), page.get_by_role("status")
            page.keyboard.insert_text("zzz")
            failed = "The search failed: Service unavailable: The database is unavailable"
            palette.get_by_text(failed).wait_for()
            expect(status.get_by_text(failed)).to_have_count(1)
            page.keyboard.insert_text("z")
            expect(status.get_by_text("Nothing is found.")).to_have_count(1)
            expect(palette.locator(".error")).to_have_count(0)

    def test_the_icon_of_the_tab_is_the_health(self, browser, url, fleet):
        icon = "document.querySelector('link[rel=icon]').href"
        with open_tab(browser, "about:blank") as tab:
            page = tab.page
            page.clock.install()
            page.goto(url)
            page.wait_for_function(f"() => decodeURIComponent({icon}).includes('\u25b2')")
            fleet.error = StoreUnavailableError("away")
            page.clock.fast_forward(6 * SECONDS)
            page.wait_for_function(f"() => decodeURIComponent({icon}).includes('\u2013')")
            fleet.error = None

    def test_back_finds_where_the_reader_was(self, browser, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            link = page.locator("tbody tr").last.get_by_role("link").last
            link.scroll_into_view_if_needed()
            top = page.evaluate("scrollY")
            assert top > 500
            link.click()
            page.wait_for_url("**#/nodes/*")
            page.wait_for_function("() => scrollY === 0")
            page.go_back()
            page.locator("tbody tr").first.wait_for()
            page.wait_for_function("top => Math.abs(scrollY - top) < 50", arg=top)


def test_with_passwords_the_browser_asks(browser, tmp_path):
    port = find_free_port()
    extra = f"[api]\nport = {port}\nhttp_basic_auth_user_file = {tmp_path}/users\n"
    programs = Programs(tmp_path, extra=extra)
    programs.make_schema()
    (tmp_path / "users").write_text(f"admin:{hash_password('secret', rounds=4)}\n")
    with programs.start("nodetracker-api") as running:
        running.wait_for("Serving on")
        user = {"username": "admin", "password": "secret"}
        with open_tab(browser, f"http://127.0.0.1:{port}/", http_credentials=user) as tab:
            tab.page.locator("main").get_by_text("No node yet").wait_for()
            tab.page.get_by_text("admin").wait_for()
            assert tab.problems == []


@pytest.mark.parametrize("is_tls", [True, False], ids=["TLS", "plain"])
def test_a_session_of_keystone_is_a_cookie_until_it_is_logged_out(browser, tmp_path, is_tls):
    port = find_free_port()
    api = f"[api]\nport = {port}\nauth_strategy = keystone\n"
    if is_tls:
        certificate, key = Authority(tmp_path).issue(tmp_path, "127.0.0.1")
        api += f"cert_file = {certificate}\nkey_file = {key}\n"
    url = f"{'https' if is_tls else 'http'}://127.0.0.1:{port}/ui/"
    with serve_keystone() as keystone:
        programs = Programs(tmp_path, extra=api + keystone.options)
        programs.make_schema()
        with (
            programs.start("nodetracker-api") as running,
            open_tab(browser, "about:blank", ignore_https_errors=True) as tab,
        ):
            running.wait_for("Serving on")
            page, context = tab.page, tab.page.context
            page.goto(url)
            page.get_by_label("User").fill("alice")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Log in").click()
            page.locator("main").get_by_text("No node yet").wait_for()
            (cookie,) = context.cookies()
            assert cookie["name"] == ("__Host-" if is_tls else "") + "nodetracker_session"
            assert cookie["value"].strip('"') == TOKEN
            kind = [cookie[name] for name in ("secure", "httpOnly", "domain", "path")]
            assert kind == [is_tls, True, "127.0.0.1", "/"]
            page.get_by_role("button", name="Log out").click()
            page.get_by_role("button", name="Log in").wait_for()
            assert context.cookies() == []
            assert [revoked for *_, revoked in keystone.deleted] == [TOKEN]
