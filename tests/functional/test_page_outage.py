"""The page in a browser while the database of its service is stopped."""

import re

import pytest
from playwright.sync_api import expect

from tests.functional.api_service import AWAY, Service, fill
from tests.functional.browser import open_tab
from tests.functional.servers.mariadb import MariaDB
from tests.programs import Programs, wait_until

POLL = 6_000
AFTER_ERRORS = 61_000
"""Milliseconds after which the page has asked again."""


@pytest.fixture
def server():
    made = MariaDB()
    yield made
    made.remove()


def test_old_rows_remain_until_the_database_is_back(browser, server, tmp_path):
    url = server.create_database("nt_page")
    Programs(tmp_path, url).make_schema()
    fill(url)
    service = Service(tmp_path, url)
    with service.run(), open_tab(browser, "about:blank") as tab:
        page, banner = tab.page, tab.page.get_by_role("alert")
        page.clock.install(time="2026-01-31T00:04:05Z")  # the hour has two digits, too
        page.goto(f"http://127.0.0.1:{service.port}/ui/")
        node = page.locator("td a").get_by_text("n1")
        node.wait_for()
        assert banner.count() == 0
        server.stop()
        wait_until(lambda: service.summarize("/v1/overview") == AWAY)
        page.clock.fast_forward(POLL)
        banner.get_by_text(re.compile(r"No answer since \d\d:\d\d:\d\d [A-Z]+")).wait_for()
        assert "The database is unavailable" in banner.text_content()
        page.locator("main.old").get_by_text("n1").first.wait_for()
        server.start()
        wait_until(lambda: service.send("/v1/overview")[0] == 200)
        page.clock.fast_forward(AFTER_ERRORS)
        banner.wait_for(state="detached")
        expect(page.locator("main.old")).to_have_count(0)
        node.wait_for()
