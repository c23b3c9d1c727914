"""The overview page in Chromium, with fleets in memory and the server beside it.

The time to the table includes making the answer. CPU time of the browser is that of script, and
of style and layout, for an answer in which a tenth of the nodes changed, and for a keystroke in
the filter.
"""

import argparse
import contextlib
import json
import statistics
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.bench.databases import Row
from tests.functional.browser import open_browser, open_tab
from tests.page_fleet import PageFleet, PageStore, serve_page

CHANGED = 0.1
ANSWERS = 3
TEXT = "-0042"
SETTLE_MS = 600
ANSWER_MS = 3000  # after the answer's last byte
TABLE_SHOWN = """
new MutationObserver((_, observer) => {
  if (document.querySelector("tbody tr")) {
    window.tableShownAt = performance.now();
    observer.disconnect();
  }
}).observe(document, { childList: true, subtree: true });
"""
SCRIPT = frozenset(("EvaluateScript", "FunctionCall", "RunMicrotasks"))
LAYOUT = frozenset(("Layout", "UpdateLayoutTree"))
CATEGORIES = ["devtools.timeline", "v8", "v8.execute"]
DATABASES = ()
OPTIONS = {"nodes": [1000, 10_000]}


def measure(options: argparse.Namespace, _directory: Path) -> Iterator[tuple[str, Row]]:
    """Open the page with fleets of each size."""
    with open_browser() as browser:
        for nodes in options.nodes:
            store = PageStore(PageFleet(nodes))
            store.insert_rows()
            with (
                serve_page(store, max_age=0) as url,
                open_tab(browser, "about:blank") as tab,
            ):
                tab.page.add_init_script(TABLE_SHOWN)
                tab.page.goto(url)
                yield "The overview in Chromium", {"nodes": nodes} | _measure(tab.page, store)
                assert tab.problems == []


def _measure(page: Page, store: PageStore) -> Row:
    page.wait_for_function("() => window.tableShownAt", timeout=60_000)
    shown = page.evaluate("window.tableShownAt")
    page.wait_for_timeout(SETTLE_MS)
    answers = [_measure_answer(page, store) for _ in range(ANSWERS)]
    page.get_by_role("searchbox").focus()
    keys = [_measure_key(page, key) for key in TEXT]
    return {
        "ms to the table": float(shown),
        "ms of script for a changed answer": statistics.median(script for script, _ in answers),
        "of its style and layout": statistics.median(layout for _, layout in answers),
        "ms of script for a keystroke": statistics.median(script for script, _ in keys),
        "slowest": max(script for script, _ in keys),
        "of its style and layout, median": statistics.median(layout for _, layout in keys),
    }


def _measure_answer(page: Page, store: PageStore) -> tuple[float, float]:
    store.fleet.change(CHANGED)
    with _traced(page) as times:
        with page.expect_response(
            lambda answer: "/v1/overview" in answer.url and answer.status == 200, timeout=90_000
        ) as answer:
            pass
        answer.value.finished()
        page.wait_for_timeout(ANSWER_MS)
    return times[0]


def _measure_key(page: Page, key: str) -> tuple[float, float]:
    with _traced(page) as times:
        page.keyboard.press(key)
        page.wait_for_timeout(SETTLE_MS)
    return times[0]


@contextlib.contextmanager
def _traced(page: Page) -> Iterator[list[tuple[float, float]]]:
    """Trace the block; the list gets milliseconds of script, and of style and layout."""
    browser = page.context.browser
    assert browser is not None, "it was launched"
    times: list[tuple[float, float]] = []
    browser.start_tracing(page=page, categories=CATEGORIES)
    yield times
    events = json.loads(browser.stop_tracing())["traceEvents"]
    times.append((_sum_times(events, SCRIPT), _sum_times(events, LAYOUT)))


def _sum_times(events: Iterable[dict[str, Any]], names: Container[str]) -> float:
    """Return milliseconds of CPU time of some events, without those inside another one."""
    total = 0.0
    ends: dict[tuple[int, int], float] = {}  # of the last one of a thread
    for event in sorted(events, key=lambda event: event.get("ts", 0)):
        thread = event.get("pid"), event.get("tid")
        if event.get("name") in names and event["ts"] >= ends.get(thread, 0) and "dur" in event:
            ends[thread] = event["ts"] + event["dur"]
            total += event.get("tdur", event["dur"])
    return total / 1000
