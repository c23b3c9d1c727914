"""Measure the overview page in Chromium with large fleets, and print a table.

`python -m tests.bench.page [--nodes 1000 10000]`: milliseconds until the table of nodes is
shown, of script and of all work (with layout and painting) for an answer in which a tenth of the
nodes changed, and for a keystroke in the filter. The fleet is made in memory, so that only
the browser is measured, and the first answer's time has the server's JSON and network.
"""

import argparse
import os
import statistics

from playwright.sync_api import CDPSession, Page

from tests.functional.browser import open_browser, open_tab
from tests.page_fleet import PageFleet, PageStore, serve_page

CHANGED = 0.1
ANSWERS = 3
TEXT = "-0042"
SETTLE_MS = 600
TABLE_SHOWN = """
new MutationObserver((_, observer) => {
  if (document.querySelector("tbody tr")) {
    window.tableShownAt = performance.now();
    observer.disconnect();
  }
}).observe(document, { childList: true, subtree: true });
"""
COLUMNS = (
    "nodes", "ms to the table", "script, ms for a changed answer", "all work, ms",
    "script, ms for a keystroke", "slowest", "all work, ms",
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000])
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    with open_browser() as browser:
        for nodes in arguments.nodes:
            store = PageStore(PageFleet(nodes))
            with serve_page(store) as url, open_tab(browser, "about:blank") as tab:
                tab.page.add_init_script(TABLE_SHOWN)
                tab.page.goto(url)
                print(f"| {nodes} | " + " | ".join(_measure(tab.page, store)) + " |", flush=True)
                assert tab.problems == []


def _measure(page: Page, store: PageStore) -> list[str]:
    page.wait_for_function("() => window.tableShownAt", timeout=60_000)
    shown = page.evaluate("window.tableShownAt")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.wait_for_timeout(SETTLE_MS)
    answers = [_measure_answer(page, session, store) for _ in range(ANSWERS)]
    page.get_by_role("searchbox").focus()
    keys = [_measure_key(page, session, key) for key in TEXT]
    return [
        f"{shown:.0f}",
        *(f"{statistics.median(times):.0f}" for times in zip(*answers, strict=True)),
        f"{statistics.median(script for script, _ in keys):.0f}",
        f"{max(script for script, _ in keys):.0f}",
        f"{statistics.median(task for _, task in keys):.0f}",
    ]


def _measure_answer(page: Page, session: CDPSession, store: PageStore) -> tuple[float, float]:
    before = _read_times(session)
    store.fleet.change(CHANGED)
    with page.expect_response(
        lambda answer: "/v1/overview" in answer.url and answer.status == 200, timeout=90_000
    ) as answer:
        pass
    answer.value.finished()
    page.wait_for_timeout(SETTLE_MS)
    return _difference(before, _read_times(session))


def _measure_key(page: Page, session: CDPSession, key: str) -> tuple[float, float]:
    before = _read_times(session)
    page.keyboard.press(key)
    page.wait_for_timeout(SETTLE_MS)
    return _difference(before, _read_times(session))


def _read_times(session: CDPSession) -> dict[str, float]:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


def _difference(before: dict[str, float], after: dict[str, float]) -> tuple[float, float]:
    """Return milliseconds of script and of all tasks."""
    script, task = (after[name] - before[name] for name in ("ScriptDuration", "TaskDuration"))
    return script * 1000, task * 1000


if __name__ == "__main__":
    main()
