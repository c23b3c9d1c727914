"""The pages of hosts in a browser: what is still there, several at once, and moves that end."""

import re

import pytest
from playwright.sync_api import expect

from nodetracker.model.amounts import Amounts
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.usecases.tolerance import refresh_tolerances
from tests.builders import make_guest, make_node
from tests.contract.scene import build
from tests.functional.browser import THEMES, DenyChanges, open_tab
from tests.packing_fleets import POLICY
from tests.page_fleet import AllowAll, serve_page
from tests.page_node import RICH, add_rich_node
from tests.stores import SqliteStore

FURTHER = [
    "nodetracker:migrations:confirm", "nodetracker:migrations:revert", "nodetracker:plans:create"
]  # fmt: skip
ROOM = {  # CPUs of the guests of a host of 7, and whether these fit elsewhere
    "bulky": ([6], "^0 of 1 guest fits elsewhere.*vm-1.*no node was found"),
    "mixed": ([2, 4], "^1 of 2 guests fit elsewhere.*vm-2"),
    "small": ([1, 1], "^2 of 2 guests fit elsewhere$"),
    "empty": ([], "^There are no guests to move$"),
}

LOSSES = {
    "bulky": "If it fails, there is no place for 1 guest of 512 MiB",
    "small": "If it fails, all its guests fit elsewhere",
}


class AllowMore(AllowAll):
    """A `PolicyAuthorizer` of somebody who may end moves and plan, too."""

    def list_allowed(self, context) -> list[str]:
        return [*super().list_allowed(context), *FURTHER]


@pytest.fixture
def store():
    store = SqliteStore()
    build(store)
    add_rich_node(store)
    return store


@pytest.fixture
def url(store):
    with serve_page(store, authorizer=AllowMore()) as url:
        yield url


def service_of(store, host):
    (service,) = store.list_services(host, COMPUTE_BINARY)
    return service


def test_a_host_is_taken_out_and_says_what_is_still_there(browser, store, url):
    with open_tab(browser, f"{url}#/host?host={RICH[0]}") as tab:
        page = tab.page
        page.get_by_text("1 node, 12 guests").wait_for()
        page.locator(".title").get_by_role("button", name="Take out").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"Host {RICH[0]}")
        expect(dialog).not_to_contain_text("Node")
        dialog.get_by_label("Reason").fill("new disk")
        dialog.get_by_role("button", name="Take out").click()
        page.get_by_text("1 node, 12 \u2192 12 guests").wait_for()
        expect(page.locator("p").get_by_text("new disk")).to_have_count(2)  # disabled, maintenance
        service = service_of(store, RICH[0])
        assert (service.disabled, service.maintenance) == (True, True)
        page.locator(".title").get_by_role("button", name="Put back in").wait_for()
        tab.check()
        assert tab.problems == []


def make_crowded_store():
    store, number = SqliteStore(), 0
    for host, (sizes, _) in ROOM.items():
        guests = [
            make_guest(number := number + 1, vcpu_milli=1000 * size, memory_mb=512, disk_mb=0)
            for size in sizes
        ]
        charge = Amounts(vcpu_milli=1000 * sum(sizes), memory_mb=512 * len(sizes))
        make_node(store, tuple(guests), charge, host=host)
        if not guests:
            store.set_service(host, COMPUTE_BINARY, ServiceChange(disabled=True))
    return store


def test_whether_all_guests_fit_elsewhere_is_said_before_a_host_is_taken_out(browser):
    store = make_crowded_store()
    with serve_page(store, authorizer=AllowMore()) as url, open_tab(browser, url) as tab:
        for host, (_, text) in ROOM.items():
            tab.page.goto(f"{url}#/host?host={host}")
            tab.page.get_by_role("heading", name=host).wait_for()
            tab.page.locator(".title").get_by_role("button", name="Take out").click()
            dialog = tab.page.get_by_role("dialog")
            expect(dialog.get_by_role("status")).to_have_text(re.compile(text))
            tab.check(THEMES[:1])
            dialog.get_by_role("button", name="Cancel").click()
        assert tab.problems == []


def test_whether_its_guests_would_fit_elsewhere_is_said_of_each_host(browser):
    store = make_crowded_store()
    refresh_tolerances(store, POLICY, 600)
    with serve_page(store) as url, open_tab(browser, url) as tab:
        for host, text in LOSSES.items():
            tab.page.goto(f"{url}#/host?host={host}")
            tab.page.get_by_text(text, exact=True).wait_for()
        assert tab.problems == []
        store.save_tolerances((), (), -1)  # too old from now on
        tab.page.reload()
        tab.page.get_by_text(re.compile("fit elsewhere, as of .* ago")).wait_for()


def test_several_hosts_are_taken_out_at_once(browser, store, url):
    with open_tab(browser, f"{url}#/hosts") as tab:
        page = tab.page
        for host in ("alpha", RICH[0]):
            page.get_by_label(f"Choose {host}").check()
        page.get_by_text("2 hosts", exact=True).wait_for()
        tab.check()
        page.get_by_role("button", name="Take out").click()
        dialog = page.get_by_role("dialog")
        chosen = dialog.locator("ul.many").first  # before what the plan says
        expect(chosen.get_by_role("listitem")).to_have_text(
            [re.compile("alpha up"), re.compile(f"{RICH[0]} up")]
        )
        dialog.get_by_role("button", name="Take out").click()
        expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)
        assert all(service_of(store, host).maintenance for host in ("alpha", RICH[0]))
        assert not service_of(store, "beta").maintenance
        page.get_by_role("link", name=RICH[0]).click()
        page.get_by_role("heading", name=RICH[0]).wait_for()
        assert tab.problems == []


def test_a_move_is_ended_where_that_is_allowed(browser, store, url):
    with open_tab(browser, f"{url}#/moves") as tab:
        page = tab.page
        buttons = page.get_by_role("button", name="Revert the move of")
        buttons.first.wait_for()
        before = buttons.count()
        buttons.first.click()
        expect(page.get_by_role("dialog")).to_contain_text("From host")
        page.get_by_role("dialog").get_by_role("button", name="Revert").click()
        expect(buttons).to_have_count(before - 1)
        tab.check()
        assert tab.problems == []


def test_who_may_change_nothing_is_offered_nothing(browser, store):
    with (
        serve_page(store, authorizer=DenyChanges()) as url,
        open_tab(browser, "about:blank") as tab,
    ):
        for view, text in (
            ("hosts", RICH[0]),
            (f"host?host={RICH[0]}", "1 node"),
            ("moves", "Workload"),
        ):
            tab.page.goto(f"{url}#/{view}")
            tab.page.get_by_text(text).first.wait_for()
            assert tab.page.get_by_role("checkbox").count() == 0
            for name in ("Take out", "Choose", "End"):
                assert tab.page.get_by_role("button", name=name, exact=True).count() == 0


def test_a_host_without_nodes_has_a_page(browser, store, url):
    with open_tab(browser, f"{url}#/host?host=nobody") as tab:
        tab.page.get_by_text("No such host.").wait_for()


def test_the_page_links_to_grafana_if_that_is_configured(browser, store):
    dashboard = "https://grafana.example.org/d/nodetracker?orgId=1"
    with (
        serve_page(store, limits={"grafana_url": dashboard}) as url,
        open_tab(browser, url) as tab,
    ):
        expect(tab.page.get_by_role("link", name="Grafana")).to_have_attribute("href", dashboard)
        tab.page.goto(f"{url}#/host?host={RICH[0]}")
        link = tab.page.get_by_role("link", name=f"Grafana of {RICH[0]}")
        expect(link).to_have_attribute("href", f"{dashboard}&var-host={RICH[0]}")
        tab.check()
        assert tab.problems == []
