"""The seven tasks of ``docs/tour.md`` on the page, by mouse and by keyboard, with what each takes."""

import re
from dataclasses import dataclass
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.clock import utc_clock
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import create, make_device, make_guest, make_values, register, update
from tests.functional.browser import open_tab
from tests.page_fleet import serve_page
from tests.stores import SqliteStore

SCREEN = {"width": 1440, "height": 900}
REASON = "new disk"
ALIAS = Alias("h100", (AliasSpec("10de", "2331"),), PciDeviceType.PCI)
HOURS = 4 * 24
LOST = "h2"
MOST = {  # task -> clicks and keys that it may take
    "room": (2, 11),
    "why": (2, 4),
    "night": (2, 4),
    "lost": (0, 0),
    "full": (0, 0),
    "out": (3, 13),
    "guest": (1, 6),
}
BEFORE = {"room": (5, 21), "why": (3, None), "night": (4, 9), "lost": (1, None), "full": (0, 0),
          "out": (4, 15), "guest": (None, 7)}  # fmt: skip
"""What it took before hosts had verbs."""


def make_fleet() -> SqliteStore:
    """Seven hosts; memory is filled hour by hour, h1 and h4 have a GPU, and one host is lost."""
    end = utc_clock()
    now = end - timedelta(hours=HOURS)
    store = SqliteStore(lambda: now)
    gpu = make_device("10000:81:00.0", vendor_id="10de", product_id="2331", class_id="030200",
                      dev_type=PciDeviceType.PCI, parent_addr=None)  # fmt: skip
    agents = {}
    for number in range(1, 8):
        host = f"h{number}"
        agents[host] = agent = register(store, host, f"agent-of-{host}")
        devices = (gpu,) if number in (1, 4) else ()
        values = make_values(
            vcpus=64, pcpus=0, pcpus_used=0, memory_mb=131_072, memory_mb_used=0, local_gb=1000,
            facts={}, reserved={}, overhead={}, inventory={}, numa_topology={},
            **pci_columns(devices),
        )  # fmt: skip
        guests = tuple(
            make_guest(10 * number + which, name=f"train-{which}" if host == "h6" else f"g-{host}")
            for which in range(1, 3)
        )
        store.apply_changes(agent, [create(agent, f"{host}-n1", values, guests, devices)], 60)
    for hour in range(HOURS + 1):
        now = end - timedelta(hours=HOURS - hour)
        for host, agent in agents.items():
            (record,) = store.load_nodes(host)
            store.apply_changes(agent, [update(record, memory_mb_used=512 * hour)], 60)
        store.sample_trends()
    for host, agent in agents.items():
        (service,) = store.list_services(host)
        if host != LOST:
            state = AuditState(1.0, audit_interval_seconds=3600)
            store.report_state(agent, service.report_count + 1, state)
    return store


@pytest.fixture(scope="module")
def url():
    store = make_fleet()
    policy = AdmissionPolicy(60, 600, aliases={ALIAS.name: ALIAS})
    with serve_page(store, policy=policy, scheduler=Scheduler(store, policy)) as url:
        yield url, store


@dataclass
class Hand:
    """Counts what a user does on a page; the first control has to be in sight."""

    page: Page
    clicks: int = 0
    keys: int = 0

    def click(self, what) -> None:
        what.wait_for()
        if self.clicks == 0:
            box = what.bounding_box()
            assert box["y"] + box["height"] <= self.page.evaluate("innerHeight")
            assert self.page.evaluate("scrollY") == 0
        what.click()
        self.clicks += 1

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.keys += len(keys)

    def type(self, text: str) -> None:
        """Type a text; by mouse, fields are filled without a count."""
        self.page.keyboard.type(text)
        self.keys += len(text)


class Mouse(Hand):
    """A user who clicks; texts are typed into the field that has the focus."""

    def option(self, name: str):
        return self.page.get_by_role("option", name=name, exact=True)

    def button(self, name: str):
        return self.page.get_by_role("navigation", name="Actions").get_by_role("button", name=name)

    @property
    def go(self):
        return self.page.get_by_role("button", name="Go to")

    def room(self) -> None:
        self.click(self.go)
        self.type("8 32 h100")
        self.click(self.option("room for 8 CPUs, 32 GiB, h100"))

    def why(self) -> None:
        self.click(self.button("Why not"))
        self.type("h3")
        self.click(self.option("Why not h3"))

    def night(self) -> None:
        self.click(self.button("Last night"))
        self.type("h7")
        self.click(self.option("Last night h7"))

    def out(self) -> None:
        self.click(self.button("Take out"))
        self.type("h5")
        self.click(self.option("Take out h5"))
        self.page.get_by_label("Reason").and_(self.page.locator(":focus")).wait_for()
        self.type(REASON)
        self.click(self.page.get_by_role("dialog").get_by_role("button", name="Take out"))

    def guest(self) -> None:
        self.click(self.go)
        self.type("train")


class Keyboard(Hand):
    """A user who only types."""

    def room(self) -> None:
        self.press("/")
        self.type("8 32 h100")
        self.press("Enter")

    def why(self) -> None:
        self.press("w")
        self.type("h3")
        self.press("Enter")

    def night(self) -> None:
        self.press("n")
        self.type("h7")
        self.press("Enter")

    def out(self) -> None:
        self.press("o")
        self.type("h5")
        self.press("Enter")
        self.page.get_by_label("Reason").and_(self.page.locator(":focus")).wait_for()
        self.type(REASON)
        self.press("Enter")

    def guest(self) -> None:
        self.press("/")
        self.type("train")


def see(task: str, page: Page, store: SqliteStore) -> None:
    """Wait for the answer of a task."""
    if task == "room":
        page.get_by_role("heading", name="2 nodes would take it").wait_for()
    elif task == "why":
        page.get_by_role("region", name="Why not on h3?").get_by_role("row").nth(1).wait_for()
        if "memory=32" in page.url:  # the request before
            page.get_by_role("region", name="Why not on h3?").get_by_text("h100: 1").wait_for()
    elif task == "night":
        page.wait_for_url(re.compile(r"#/events\?host=h7&since=.*T18%3A00&until=.*T08%3A00"))
    elif task == "lost":
        lost = page.get_by_role("link", name=re.compile("down")).first
        assert lost.bounding_box()["y"] < SCREEN["height"]
        lost.wait_for()
    elif task == "full":
        expect(page.get_by_label("Totals")).to_contain_text(re.compile("full in about"))
    elif task == "out":
        page.get_by_role("dialog").wait_for(state="detached")
        (service,) = store.list_services("h5", COMPUTE_BINARY)
        assert (service.disabled, service.maintenance) == (True, True)
        assert service.disabled_reason == service.maintenance_reason == REASON
    elif task == "guest":
        page.get_by_role("option", name=re.compile("train-1 on h6")).wait_for()


@pytest.mark.parametrize("task", MOST)
@pytest.mark.parametrize("user", [Mouse, Keyboard])
def test_a_task_takes_few_steps_from_the_first_screen(browser, url, user, task):
    address, store = url
    with open_tab(browser, address, viewport=SCREEN) as tab:
        page, hand = tab.page, user(tab.page)
        page.locator("tbody tr").nth(6).wait_for()
        page.get_by_role("navigation", name="Actions").wait_for()
        if task == "why":  # of the request of the task before
            Keyboard(page).room()
            page.get_by_role("heading", name="2 nodes would take it").wait_for()
        getattr(hand, task, lambda: None)()
        see(task, page, store)
        clicks, keys = MOST[task]
        if user is Mouse:
            assert hand.clicks <= clicks
        else:
            assert hand.keys <= keys
        assert tab.problems == []


def test_tasks_take_two_thirds_of_what_they_took():
    for column in (0, 1):
        known = [task for task in MOST if BEFORE[task][column] is not None]
        assert all(MOST[task][column] <= BEFORE[task][column] for task in known)
        before = sum(BEFORE[task][column] for task in known)
        assert 3 * sum(MOST[task][column] for task in known) <= 2 * before
