"""The pictures in docs/images; `python -m tests.pictures` renews them.

Each picture of the page has a file in tests/golden/pictures with what a screen reader finds
there, and with the picture's digest: fonts differ, so pixels are not compared.
"""

import contextlib
import hashlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from rich.console import Console
from rich.text import Text

from nodetracker.cmd.commands.node import ListNodes
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.table import draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.usecases.scheduler import Scheduler
from tests.functional.browser import open_browser, open_tab
from tests.goldens import GOLDEN
from tests.page_fleet import serve_page
from tests.picture_fleet import NOW, POLICY, make_picture_fleet
from tests.unit.cmd.screen import fleets

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TEXTS = GOLDEN / "pictures"
WIDTH = 100
TALL = 2000  # pixels, in which each view is in sight as a whole
SETTLED_SECONDS = 10
WANTED_SECONDS = 60  # a busy machine stands still for longer than a view

# rich's own has fonts from the network.
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {terminal_width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{height}"/></clipPath>{lines}</defs>
<rect fill="#292929" width="{terminal_width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, 8)" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


@dataclass(frozen=True)
class View:
    """A picture of the page.

    Attributes:
        address: the fragment of the page's address.
        text: what the page shows once it is complete.
        act: what a reader does then.
        size: width and height of the window.
    """

    address: str
    text: str
    act: Callable[[Page], object] = lambda page: None
    size: tuple[int, int] = (1180, 560)


def _take_out(page: Page) -> None:
    page.keyboard.press("o")
    page.get_by_role("dialog").wait_for()


def _find_train(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("train")
    page.get_by_role("option").filter(has_text="train").nth(2).wait_for()


FIT = "#/fit?cpus=8&memory=32&pci=h100"
VIEWS = {
    "overview": View("#/", "h12.example.org", size=(1440, 900)),
    "tour/fit": View(FIT, "2 nodes would take it"),
    "tour/why": View(f"{FIT}&why=h3", "Why not on h3?"),
    "tour/night": View(
        "#/events?host=h7&since=2026-11-25T18:00&until=2026-11-26T08:00", "memory fault"
    ),
    "tour/lost": View("#/?state=down", "h4.example.org"),
    "tour/full": View("#/", "is full in about"),
    "tour/out": View("#/host?host=h5", "14 guests", _take_out),
    "tour/find": View("#/", "h12.example.org", _find_train),
}
"""Name of a picture -> what it shows."""


@contextlib.contextmanager
def serve_fleet() -> Iterator[str]:
    """Serve the page of the fleet of all pictures; yield its address."""
    store = make_picture_fleet()
    with serve_page(store, policy=POLICY, scheduler=Scheduler(store, POLICY)) as url:
        yield url


def take_picture(
    browser: Browser, url: str, view: View, wanted: str | None = None
) -> tuple[bytes, str]:
    """Return a picture, and what a screen reader finds there.

    Args:
        wanted: what is waited for while the view still changes.
    """
    width, height = view.size
    with open_tab(
        browser, "about:blank", timezone_id="UTC", reduced_motion="reduce",
        viewport={"width": width, "height": TALL},
    ) as tab:  # fmt: skip
        page = tab.page
        page.clock.set_fixed_time(NOW)
        page.goto(url + view.address)
        page.get_by_text(view.text).first.wait_for()
        # Lines of rows are read once they are in sight, which those at the bottom may be for a
        # moment only, before what is above them is drawn.
        page.wait_for_load_state("networkidle")
        expect(page.locator(".day:not([role=img])")).to_have_count(0)
        page.set_viewport_size({"width": width, "height": height})
        view.act(page)
        text = _read_settled(page, wanted)
        return page.screenshot(), text


def _read_settled(page: Page, wanted: str | None) -> str:
    since, text = time.monotonic(), ""
    seconds = SETTLED_SECONDS if wanted is None else WANTED_SECONDS
    while time.monotonic() < since + seconds:
        found = page.locator("body").aria_snapshot()
        if found == wanted:
            return found
        if found != text:
            since, text = time.monotonic(), found
        page.wait_for_timeout(250)
    return text


def read_text(name: str) -> tuple[str, str]:
    """Return the digest and the text of the committed picture of a view."""
    digest, _, text = (TEXTS / f"{name}.txt").read_text().partition("\n")
    return digest, text.rstrip("\n")


def digest_of(picture: bytes) -> str:
    """Return what the first line of a text has of its picture."""
    return hashlib.sha256(picture).hexdigest()


def draw_screens() -> dict[str, str]:
    """Return the pictures of the terminal, as SVG."""
    terminal = Terminal(WIDTH, has_color=True)
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    table = draw_table(ListNodes.layout, fleets.list_rows(), terminal, now)
    overview = draw_overview(fleets.view(fleets.example()), terminal)
    screens = {"terminal-overview": overview, "terminal-node-list": table}
    return {name: _draw(name, lines) for name, lines in screens.items()}


def _draw(name: str, lines: list[Line]) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for text in Screen(io.StringIO(), Terminal(WIDTH, has_color=True)).render(lines):
        console.print(Text.from_ansi(text), soft_wrap=True)
    svg = console.export_svg(title="", code_format=_FORMAT, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Write all pictures, and the texts of those of the page."""
    for name, svg in draw_screens().items():
        (IMAGES / f"{name}.svg").write_text(svg)
    with open_browser() as browser, serve_fleet() as url:
        for name, view in VIEWS.items():
            picture, text = take_picture(browser, url, view)
            (IMAGES / f"{name}.png").write_bytes(picture)
            path = TEXTS / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{digest_of(picture)}\n{text}\n")


if __name__ == "__main__":
    main()
