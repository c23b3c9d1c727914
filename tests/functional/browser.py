"""A browser for tests of the page: Debian's Chromium, with what went wrong in it."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tests.page_fleet import AllowAll

CHROMIUM = "/usr/bin/chromium"
TIMEOUT_MS = 60_000
WIDTHS = (1280, 360)
THEMES = ("light", "dark")

expect.set_options(timeout=TIMEOUT_MS)  # 5 s are short beside other tests

_AXE = Axe()
TWO_FRAMES = "() => new Promise(end => requestAnimationFrame(() => requestAnimationFrame(end)))"


@dataclass
class Tab:
    """A page of the browser.

    Attributes:
        problems: messages and errors of its console, and requests that failed, but for
            those that end with the page that sent them.
    """

    page: Page
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self._note(message.text, message.type))
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("requestfailed", self._note_failure)

    def look(self, theme: str, width: int) -> None:
        """Change the system's theme and the width of the window."""
        self.page.emulate_media(color_scheme=theme)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_function("width => window.innerWidth === width", arg=width)
        self.page.evaluate(TWO_FRAMES)  # what follows the width is drawn in the second

    def check(self, themes: Sequence[str] = THEMES) -> None:
        """Check that axe finds nothing and that nothing is wider than the window, in all looks.

        The narrowest one is also checked with a font of twice the size.
        """
        for theme in themes:
            for width in WIDTHS:
                self.look(theme, width)
                found = _AXE.run(self.page)
                assert found.violations_count == 0, f"{theme} {width}: {found.generate_report()}"
                self._check_width(width)
        self.page.evaluate("document.documentElement.style.fontSize = '200%'")
        self._check_width(min(WIDTHS))
        self.page.evaluate("document.documentElement.style.fontSize = ''")

    def _check_width(self, width: int) -> None:
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{self.page.url} needs {wide} px"

    def _note_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":
            self._note(f"failed: {request.url}: {request.failure}")

    def _note(self, text: str, kind: str = "error") -> None:
        self.problems.append(f"{kind}: {text}")


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def open_tab(browser: Browser, url: str, **options: Any) -> Iterator[Tab]:
    """Open an address in a context of its own, e.g. with ``http_credentials``."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    tab = Tab(context.new_page())
    tab.page.goto(url)
    yield tab
    context.close()


class DenyChanges(AllowAll):
    """A `PolicyAuthorizer` that allows no changes."""

    def is_allowed(self, context, rule, target=None) -> bool:
        return rule not in super().list_allowed(context)

    def list_allowed(self, context) -> list[str]:
        return []
