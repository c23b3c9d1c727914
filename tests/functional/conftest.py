"""Fixtures for tests of whole programs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.functional.servers.process import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A browser; each test opens tabs of its own."""
    require("chromium")
    from tests.functional.browser import open_browser  # Playwright takes long to import

    with open_browser() as browser:
        yield browser
