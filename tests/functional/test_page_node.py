"""A node's page in a browser: its NUMA map, actions, search, where a workload fits, the login."""

import re
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from playwright.sync_api import expect

from nodetracker.api.auth.browser import accept_session_cookie
from nodetracker.api.auth.layer import LoginFailures, authenticate
from nodetracker.api.context import Identity
from nodetracker.model.errors import AuthenticationError
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import make_guest, make_node
from tests.functional.browser import THEMES, DenyChanges, open_tab
from tests.functional.servers.process import find_free_port
from tests.page_fleet import serve_page
from tests.page_node import (
    GPU,
    HOSTILE,
    ONE_GPU,
    POLICY,
    RICH,
    add_captured_machines,
    add_rich_node,
    read_capture,
    uuid_of,
)
from tests.programs import Programs
from tests.stores import SqliteStore

GUEST = {"uuid": uuid_of("late"), "name": "late-guest", "vcpus": 1, "memory_mb": 256, "disk_gb": 1}
NODE = {"nodename": "node-1", "vcpus": 8, "memory_mb": 16384, "disk_gb": 100}
TOKEN = "gAAAAtoken"


@pytest.fixture
def store():
    """The captured machines, and a node with something of everything."""
    made = SqliteStore()
    add_captured_machines(made)
    add_rich_node(made)
    return made


@pytest.fixture
def url(store):
    with serve_page(store) as url:
        yield url


def find_node(store, nodename: str) -> str:
    """Return the address of a node's page."""
    (node,) = [node for node in store.list_nodes() if node.nodename == nodename]
    return f"#/nodes/{node.uuid}"


def read_cpus(page) -> list[tuple[int, str]]:
    """Return the squares of the map: CPU and state."""
    page.locator(".cpu[role=option]").first.wait_for()
    found = page.evaluate(
        "[...document.querySelectorAll('.cpu[role=option]')]"
        ".map(item => [Number(item.id.slice(4)), item.classList[1].slice(4)])"
    )
    return sorted((cpu, state) for cpu, state in found)


class TestNumaMap:
    def test_has_every_cpu_of_captured_machines_once_in_its_state(self, browser, store, url):
        names = [node.nodename for node in store.list_nodes() if node.nodename != RICH[1]]
        assert any("sparse" in name for name in names)
        with open_tab(browser, url) as tab:
            for name in names:
                cpu, topology = read_capture(name)
                first, *shared, dedicated = sorted(cpu.online)
                tab.page.goto(f"{url}{find_node(store, name)}")
                tab.page.get_by_role("heading", name=name).wait_for()
                assert read_cpus(tab.page) == sorted(
                    [(first, "host"), (dedicated, "dedicated")]
                    + [(number, "shared") for number in shared]
                    + [(number, "offline") for number in cpu.offline]
                )
                titles = tab.page.locator(".cell h3").all_text_contents()
                assert len([title for title in titles if title.startswith("Cell")]) == len(
                    topology.cells
                )
            assert tab.problems == []

    def test_names_the_workload_of_each_pinned_cpu(self, browser, store, url):
        (node,) = [node for node in store.list_nodes() if node.nodename == RICH[1]]
        pins = {
            cpu: (claim.workload.name, guest)
            for claim in store.list_claims()
            if claim.numa is not None
            for cell in claim.numa.cells
            for guest, cpu in cell.pins.items()
        }
        pins[15] = ("legacy-vm", 1)  # which has no claim
        with open_tab(browser, f"{url}#/nodes/{node.uuid}") as tab:
            page = tab.page
            page.get_by_role("link", name="db-1").first.wait_for()
            pinned = {cpu for cpu, state in read_cpus(page) if state == "pinned"}
            assert pinned == set(pins)
            for cpu, (name, guest) in pins.items():
                text = f"CPU {cpu}: pinned by {name} (its CPU {guest})"
                page.locator(f"#cpu-{cpu}").and_(page.get_by_role("option", name=text)).wait_for()

    def test_arrows_move_over_the_cpus_of_a_cell_as_over_a_list(self, browser, store, url):
        with open_tab(browser, f"{url}{find_node(store, RICH[1])}") as tab:
            page = tab.page
            cpus, seen = page.get_by_role("listbox").first, []
            cpus.focus()
            for key in ("", "ArrowRight", "ArrowDown", "ArrowLeft", "Home", "ArrowUp", "End"):
                if key:
                    page.keyboard.press(key)
                chosen = cpus.locator("[role=option][aria-selected=true]")
                expect(chosen).to_have_count(1)
                assert cpus.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
                text = chosen.get_attribute("aria-label")
                expect(page.locator(".cell p").first).to_have_text(text)
                seen.append(text)
            assert seen[0].startswith("CPU 0: for the host alone")
            assert seen[0] == seen[4] == seen[5]
            assert seen[1] == seen[3]
            assert len(set(seen)) == 4


def test_what_is_measured_has_its_age(browser, store, url):
    with open_tab(browser, f"{url}{find_node(store, RICH[1])}") as tab:
        shown = tab.page.locator("dl.summary div", has_text="Measured")
        shown.get_by_text("Load: unknown", exact=True).wait_for()
        shown.get_by_text(re.compile(r"^Disk: 811 GiB of 2 TiB in use, [4-9] min ago$")).wait_for()
        assert tab.problems == []


class TestLooks:
    def test_views_are_accessible_fit_the_window_and_show_hostile_names_as_text(
        self, browser, store, url
    ):
        views = {
            find_node(store, RICH[1]): "db-1",
            "#/workloads?project=shop": "Project shop",
            "#/fit?cpus=4&memory=8&disk=10": "nearest",
            f"#/fit?cpus=4&memory=8000&cells=2&pci=nope&why={RICH[0]}": "unknown PCI alias: nope",
        }
        with open_tab(browser, url) as tab:
            for view, text in views.items():
                tab.page.goto(url + view)
                tab.page.get_by_text(text).first.wait_for()
                tab.check()
                if view.startswith("#/nodes"):
                    names = tab.page.locator("td a bdi")
                    assert HOSTILE in names.evaluate_all("all => all.map((name) => name.title)")
                    assert tab.page.locator("main img").count() == 0
            assert tab.problems == []


class TestSearch:
    def test_leads_from_a_part_of_a_name_to_the_node(self, browser, store, url):
        with open_tab(browser, f"{url}#/search") as tab:
            page = tab.page
            page.get_by_label("Workload", exact=True).fill("GACY")
            page.keyboard.press("Enter")
            page.get_by_role("link", name="legacy-vm").wait_for()
            node = page.get_by_role("link", name=RICH[1])
            expect(node).to_have_count(1)  # all workloads were listed before
            node.click()
            page.get_by_role("heading", name=RICH[1]).wait_for()
            assert page.url.endswith(find_node(store, RICH[1]))

    def test_says_that_nothing_is_found(self, browser, url):
        with open_tab(browser, f"{url}#/search?text=%3Cb%3Enone") as tab:
            tab.page.get_by_text("No workload has such a name").wait_for()
            tab.page.goto(f"{url}#/search?text={uuid_of('nothing')}")
            tab.page.get_by_text("no such workload").wait_for()


class TestPalette:
    def test_a_key_opens_it_and_the_keyboard_leads_to_a_node(self, browser, store, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            page.get_by_role("button", name="Go to").wait_for()
            page.keyboard.press("/")
            page.keyboard.type(RICH[1].upper())
            page.get_by_role("option", name=f"node {RICH[1]}").wait_for()
            tab.check()
            page.keyboard.press("Enter")
            page.get_by_role("heading", name=RICH[1], level=1).wait_for()
            assert page.url.endswith(find_node(store, RICH[1]))
            assert page.get_by_role("dialog").count() == 0
            assert tab.problems == []

    def test_finds_a_guest_a_prefix_of_a_uuid_and_a_view(self, browser, store, url):
        claim = store.list_claims()[0]
        texts = {
            "legacy": "workload legacy-vm",
            claim.uuid[:8]: f"claim {claim.uuid}",
            "would it": "view Where would it fit?",
        }
        with open_tab(browser, url) as tab:
            page = tab.page
            page.get_by_role("button", name="Go to").wait_for()
            for text, option in texts.items():
                page.keyboard.press("Control+k")
                page.keyboard.type(text)
                page.get_by_role("option", name=option).wait_for()
                page.keyboard.press("Escape")
                page.get_by_role("dialog").wait_for(state="detached")
            page.keyboard.press("Control+k")
            page.get_by_role("combobox", name="Find a host").fill("legacy")
            page.get_by_role("option", name="legacy-vm").click()
            page.get_by_role("heading", name="legacy-vm").wait_for()

    def test_a_key_opens_it_while_the_last_one_closes(self, browser, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            page.get_by_role("button", name="Go to").click()
            page.get_by_role("combobox", name="Find a host").fill("legacy")
            page.evaluate(
                """() => {
                    document.querySelector("dialog").close();
                    dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
                }"""
            )
            page.get_by_role("combobox", name="Find a host").and_(page.locator(":focus")).wait_for()
            assert page.get_by_role("combobox", name="Find a host").input_value() == ""
            page.keyboard.press("Escape")
            expect(page.locator("dialog")).to_have_count(0)

    def test_an_action_asks_before_it_is_done(self, browser, store, url):
        with open_tab(browser, url) as tab:
            page = tab.page
            page.get_by_role("button", name="Go to").click()
            page.keyboard.type(RICH[0])
            page.get_by_role("option", name=f"Disable {RICH[0]}").click()
            page.get_by_role("dialog").get_by_label("Reason").fill("broken fan")
            page.get_by_role("dialog").get_by_role("button", name="Disable").click()
            page.get_by_role("dialog").wait_for(state="detached")
            (service,) = store.list_services(RICH[0])
            assert service.disabled


class TestWorkloads:
    def test_lists_are_filtered_by_the_address_and_accessible(self, browser, store, url):
        with open_tab(browser, f"{url}#/workloads?name=legacy") as tab:
            page = tab.page
            page.get_by_role("link", name="legacy-vm").wait_for()
            assert page.get_by_role("row").count() == 2
            page.get_by_label("Show").select_option("Claims")
            page.get_by_role("columnheader", name="Since").wait_for()
            page.get_by_role("link", name="db-1").first.wait_for()
            assert "kind=claims" in page.url
            tab.check(THEMES[:1])
            assert tab.problems == []

    def test_a_guest_without_a_claim_is_adopted(self, browser, store, url):
        make_node(store, (make_guest(9, name="late-guest"),), host="lone")
        with open_tab(browser, f"{url}#/workloads?kind=unclaimed&host=lone") as tab:
            page = tab.page
            row = page.get_by_role("row").filter(has_text="late-guest")
            row.get_by_role("checkbox").check()
            page.get_by_text("1 guest chosen").wait_for()
            tab.check(THEMES[:1])
            page.get_by_role("button", name="Adopt").click()
            page.get_by_role("dialog").get_by_role("button", name="Adopt").click()
            row.wait_for(state="detached")
            page.goto(f"{url}#/workloads?kind=claims&host=lone")
            page.get_by_role("row").filter(has_text="late-guest").get_by_text(
                "confirmed"
            ).wait_for()
            assert tab.problems == []


class TestFit:
    def test_shows_what_is_left_and_what_excludes_the_others(self, browser, url):
        with open_tab(browser, f"{url}#/fit") as tab:
            page = tab.page
            page.get_by_label("CPUs", exact=True).fill("4")
            page.get_by_label("Memory (GiB)").fill("8")
            page.get_by_role("button", name="Find nodes").click()
            page.get_by_role("heading", name="1 node would take it").wait_for()
            assert re.search(r"\d →", page.locator("td[data-title='CPUs left']").inner_text())
            page.get_by_role("row").filter(has_text=RICH[0]).get_by_text("48 GiB").wait_for()
            page.get_by_text("4 of 5 nodes have too few CPUs free").wait_for()
            page.get_by_label("Memory (GiB)").fill("8000")
            page.keyboard.press("Enter")
            page.get_by_role("heading", name="0 nodes would take it").wait_for()
            page.get_by_text("8,000 GiB requested").first.wait_for()

    def test_says_why_not_on_a_host(self, browser, url):
        with open_tab(browser, f"{url}#/fit?memory=8000&disk=1") as tab:
            page = tab.page
            page.get_by_role("textbox", name="Why not on").fill(RICH[0])
            page.keyboard.press("Enter")
            why = page.get_by_role("region", name=f"Why not on {RICH[0]}?")
            why.get_by_text("outside huge pages: 56 GiB free, 8,000 GiB requested").wait_for()
            for name in ("Memory 8,000 GiB", "Memory outside huge pages"):
                why.get_by_role("row", name=name).get_by_text("too little free").wait_for()
            why.get_by_role("row").filter(has_text="Disk").get_by_text("fits").wait_for()
            assert f"why={RICH[0]}" in page.url
            page.get_by_role("textbox", name="Why not on").fill("nobody")
            page.keyboard.press("Enter")
            page.get_by_text("No host or node has this name.").wait_for()
            assert tab.problems == []

    def test_asks_for_all_that_a_claim_may_request(self, browser, store):
        policy = replace(POLICY, aliases={"nic": Alias("nic", (AliasSpec("8086", "1583"),))})
        with serve_page(store, policy=policy) as url, open_tab(browser, "about:blank") as tab:
            address = "#/fit?pinned=2&gpus=1&cells=2&pages=2MB&pci=nic:2&traits=A,B&more=VGPU:1"
            with tab.page.expect_request("**/v1/candidates?*") as request:
                tab.page.goto(url + address)
            tab.page.get_by_text("Claims cannot request a GPU of the fleet: NVIDIA H100").wait_for()
            asked = parse_qs(urlsplit(request.value.url).query)
            assert asked == asked | {
                "resources": ["PCPU:2,PGPU:1,VGPU:1"], "numa_cells": ["2"], "page_size": ["2MB"],
                "pci": ["nic:2"], "required": ["A,B"],
            }  # fmt: skip

    def test_offers_each_gpu_model_and_asks_for_the_chosen_one(self, browser, store):
        make_node(store, host="with-gpu", gpus=[GPU], inventory=ONE_GPU)
        aliases = {"h100": Alias("h100", (AliasSpec("10de", "2331"),))}
        policy = replace(POLICY, aliases=aliases)
        served = serve_page(store, policy=policy, scheduler=Scheduler(store, policy))
        with served as url, open_tab(browser, f"{url}#/fit") as tab:
            page = tab.page
            models = page.get_by_label("GPU model")
            expect(models.locator("option")).to_have_text(
                ["NVIDIA H100 PCIe (alias h100)", "NVIDIA L4 (PGPU)"]
            )
            page.get_by_label("GPUs").fill("1")
            page.get_by_role("button", name="Find nodes").click()
            page.get_by_role("heading", name="1 node would take it").wait_for()
            page.get_by_role("row").filter(has_text=RICH[0]).wait_for()
            models.select_option("NVIDIA L4 (PGPU)")
            page.get_by_role("button", name="Find nodes").click()
            page.get_by_role("row").filter(has_text="with-gpu").wait_for()
            tab.check(THEMES[:1])
            assert tab.problems == []

    def test_the_request_survives_why_not_and_the_palette(self, browser, store, url):
        with open_tab(browser, f"{url}#/fit?memory=8000&disk=1") as tab:
            page = tab.page
            page.get_by_role("link", name="all amounts").first.click()
            page.get_by_role("region", name="Why not on").wait_for()
            expect(page.get_by_label("Memory (GiB)")).to_have_value("8000")
            page.get_by_role("link", name="Hosts", exact=True).click()
            page.wait_for_url("**#/hosts")
            page.keyboard.press("/")
            page.keyboard.type(RICH[0])
            page.get_by_role("option", name=f"Why not {RICH[0]}").click()
            page.get_by_role("region", name=f"Why not on {RICH[0]}?").wait_for()
            expect(page.get_by_label("Memory (GiB)")).to_have_value("8000")
            expect(page.get_by_label("CPUs", exact=True)).to_have_value("")
            assert tab.problems == []

    def test_says_that_a_claim_is_too_large_where_enough_is_free(self, browser, url):
        with open_tab(browser, f"{url}#/fit?cpus=40&why={RICH[0]}") as tab:
            why = tab.page.get_by_role("region", name="Why not on")
            row = why.get_by_role("row", name="CPU")
            row.get_by_text("larger than one claim may be, 14").wait_for()
            tab.page.get_by_text("allow no claim of so many CPUs").wait_for()

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("cpus=-4", "CPUs: -4 is not a number from 0 on."),
            ("gpus=many", "GPUs: many is not a number from 0 on."),
            ("cpus=1&pci=nope:2", "Unknown PCI alias: nope. None is configured."),
        ],
    )
    def test_says_what_cannot_be_asked(self, browser, url, query, text):
        with open_tab(browser, f"{url}#/fit?{query}") as tab:
            tab.page.get_by_role("alert").get_by_text(text).wait_for()
            expect(tab.page.get_by_role("heading", name="would take it")).to_have_count(0)


class TestActions:
    def test_who_may_not_sees_no_buttons_and_gets_403_by_hand(self, browser, store):
        with (
            serve_page(store, authorizer=DenyChanges()) as url,
            open_tab(browser, url + find_node(store, RICH[1])) as tab,
        ):
            tab.page.get_by_role("link", name="db-1").first.wait_for()
            tab.page.get_by_role("heading", name="Claims").wait_for()
            buttons = tab.page.locator("main").get_by_role("button")
            names = set(buttons.all_text_contents())
            assert not names & {"Disable", "Enable", "Force down", "Audit now", "Abort"}
            (service,) = store.list_services(RICH[0])
            status = tab.page.evaluate(
                "uuid => fetch(`/v1/services/${uuid}`, {method: 'PATCH', body: '{\"disabled\": true}'"
                ", headers: {'Content-Type': 'application/json'}}).then(({status}) => status)",
                service.uuid,
            )
            assert status == 403
            assert not store.list_services(RICH[0])[0].disabled

    def test_a_claim_is_aborted_and_shown_as_it_is_read_back(self, browser):
        store = SqliteStore()
        add_rich_node(store)
        with serve_page(store) as url, open_tab(browser, url + find_node(store, RICH[1])) as tab:
            page = tab.page
            page.get_by_role("button", name="Abort the claim of cache-2").click()
            page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
            page.get_by_text("released: aborted").nth(1).wait_for()
            (claim,) = store.list_claims(uuid=uuid_of("claim cache-2"))
            assert claim.reason == "aborted"

    def test_a_refusal_shows_its_reasons(self, browser):
        store = SqliteStore()
        add_rich_node(store)
        with serve_page(store) as url, open_tab(browser, url + find_node(store, RICH[1])) as tab:
            tab.page.get_by_role("button", name="Audit now").click()
            dialog = tab.page.get_by_role("dialog")
            dialog.get_by_role("button", name="Audit now").click()
            dialog.get_by_role("alert").get_by_text("does not answer").wait_for()


class Sessions:
    """A `Sessions` with one user."""

    def open(self, login, address) -> str:
        if login.password != "right":
            raise AuthenticationError("wrong user, domain, project or password")
        return TOKEN

    def close(self, token) -> None:
        pass


class TokenAuthenticator:
    """An `Authenticator` of one token."""

    def identify(self, environ):
        if environ.get("HTTP_X_AUTH_TOKEN") != TOKEN:
            raise AuthenticationError("a valid token is required")
        return Identity("alice", None, frozenset({"admin"}))


def require_token(application):
    return accept_session_cookie(authenticate(application, TokenAuthenticator(), LoginFailures()))


def test_a_user_logs_in_and_out(browser, store):
    with (
        serve_page(store, layer=require_token, sessions=Sessions()) as url,
        open_tab(browser, f"{url}#/search") as tab,
    ):
        page = tab.page
        page.get_by_label("User").fill("alice")
        page.get_by_label("Password").fill("wrong")
        tab.check()
        page.keyboard.press("Enter")
        page.get_by_text("wrong user, domain, project or password").wait_for()
        page.get_by_label("Password").fill("right")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Workloads").wait_for()
        (cookie,) = page.context.cookies()
        assert (cookie["value"], cookie["httpOnly"], cookie["sameSite"]) == (TOKEN, True, "Strict")
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Password").wait_for()
        assert page.context.cookies() == []


class Host:
    """An agent with the fake driver and a REST service, on SQLite."""

    def __init__(self, directory) -> None:
        self.port = find_free_port()
        extra = f"[api]\nport = {self.port}\nauth_strategy = noauth\n"
        self.programs = Programs(directory, extra=extra, down_after=3, update_resources_interval=1)
        self.programs.make_schema()
        self.write()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/ui/"

    def write(self, *guests: dict, **document: object) -> None:
        """Write the file of the node."""
        node = NODE | {"guests": list(guests)}
        self.programs.inventory.write_text(yaml.safe_dump({"nodes": [node], **document}))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="module")
def agent(host):
    with host.programs.start() as agent, host.programs.start("nodetracker-api") as api:
        agent.wait_for("is ready")
        api.wait_for("Serving on")
        yield agent


def test_by_keyboard_alone_a_node_is_opened_and_disabled(browser, host, agent):
    with open_tab(browser, host.url) as tab:
        page, press = tab.page, tab.page.keyboard.press
        page.get_by_role("link", name="node-1").last.wait_for()
        tab_to(page, "node-1")
        press("Enter")
        page.get_by_role("button", name="Disable", exact=True).wait_for()
        tab_to(page, "Disable")
        press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.type("new disk")
        press("Enter")
        page.get_by_text("by noauth: new disk").wait_for()
        (service,) = [
            service
            for service in host.programs.ask("service", "list")
            if service["binary"] == "nodetracker-compute"
        ]
        assert (service["status"], service["disabled_reason"]) == ("disabled", "new disk")
        page.get_by_role("button", name="Enable", exact=True).wait_for()
        tab_to(page, "Enable")
        press("Enter")
        tab_to(page.get_by_role("dialog"), "Enable", page)
        press("Enter")
        page.get_by_role("button", name="Disable", exact=True).wait_for()
        tab_to(page, "Overview")
        press("Enter")
        page.get_by_role("heading", name="Nodes").wait_for()
        assert tab.problems == []


def tab_to(where, text: str, page=None) -> None:
    """Press Tab until an element with a text has the focus."""
    page = page or where
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"Tab does not reach {text}")


def test_what_happens_is_seen_without_reloading(browser, host, agent):
    """A guest that starts, a fact that is held, an agent that is killed."""
    (node,) = host.programs.ask("node", "list")
    with open_tab(browser, host.url) as tab:
        page = tab.page
        page.get_by_role("link", name=node["nodename"]).last.click()
        page.get_by_role("heading", name="Workloads").wait_for()
        page.evaluate("window.isSame = true")
        host.write(GUEST)
        page.get_by_role("link", name="late-guest").wait_for()
        host.write(GUEST, fail={"node-1": "disk is away"})
        page.get_by_role("row").filter(has_text="held").first.wait_for()
        page.get_by_text("disk is away").first.wait_for()
        agent.process.kill()
        page.locator(".title .mark").filter(has_text="down").wait_for()
        assert page.evaluate("window.isSame")
