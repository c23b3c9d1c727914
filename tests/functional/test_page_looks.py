"""What the page looks like in every state: contrast, and what moves while it loads."""

import time

import pytest

from nodetracker.model.errors import StoreUnavailableError
from tests.contract.scene import build
from tests.functional.browser import THEMES, open_tab
from tests.page_fleet import PageFleet, PageStore, serve_page
from tests.stores import SqliteStore

LEAST_CONTRAST = 4.5
SECONDS = 1000

# Return the contrast of an element's text with what is painted below it, opacity and grayscale of
# all elements around it included.
CONTRAST = """target => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const parse = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [[red, green, blue], alpha / 255];
  };
  const over = ([color, alpha], below) => color.map((part, i) => part * alpha + below[i] * (1 - alpha));
  const gray = ([red, green, blue]) => Array(3).fill(0.2126 * red + 0.7152 * green + 0.0722 * blue);
  const chain = [];
  for (let each = target; each; each = each.parentElement) chain.unshift(getComputedStyle(each));
  const paint = ([style, ...inner], below) => {
    const ground = over(parse(style.backgroundColor), below);
    let found = inner.length > 0 ? paint(inner, ground) : [over(parse(style.color), ground), ground];
    if (style.filter.includes("grayscale")) found = found.map(gray);
    return found.map((color) => over([color, Number(style.opacity)], below));
  };
  const luminance = (color) => color.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const [low, high] = paint(chain, [255, 255, 255]).map(luminance).sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


# Return one button of each look that can be seen, of the open dialog if there is one.
BUTTONS = """() => {
  const found = {};
  for (const button of (document.querySelector("dialog[open]") ?? document).querySelectorAll("button")) {
    const around = button.closest(".old, .banner, dialog, header")?.className;
    if (button.checkVisibility()) found[[button.className, button.disabled, button.parentElement.className, around]] ??= button;
  }
  return Object.values(found);
}"""


def list_faint(tab) -> list[str]:
    """Return the buttons that are faint in a state, and in which."""
    found = []
    handle = tab.page.evaluate_handle(BUTTONS)
    buttons = [each.as_element() for each in handle.get_properties().values()]
    assert buttons
    for theme in THEMES:
        tab.page.emulate_media(color_scheme=theme)
        for button in buttons:
            enter = {
                "normal": lambda: None,
                "hover": lambda button=button: button.hover(force=True),
                "focus": button.focus,
                "disabled": lambda button=button: button.evaluate("it => { it.disabled = true; }"),
            }
            was_disabled = button.is_disabled()
            for state, change in enter.items():
                change()
                contrast = button.evaluate(CONTRAST)
                if contrast < LEAST_CONTRAST:
                    found.append(f"{theme}: {button.inner_text()!r} {state}: {contrast:.2f}")
            button.evaluate("(it, before) => { it.disabled = before; }", was_disabled)
    return found


@pytest.fixture(scope="module")
def scene():
    """The store and address of a page that has something of everything."""
    store = SqliteStore()
    build(store)
    with serve_page(store) as url:
        yield store, url


@pytest.mark.parametrize("view", ["node", "fit"])
def test_every_button_has_contrast_in_every_state(browser, scene, view):
    store, url = scene
    node = store.list_nodes()[0]
    place = f"nodes/{node.uuid}" if view == "node" else view
    with open_tab(browser, f"{url}#/{place}") as tab:
        tab.page.locator("main button").first.wait_for()
        assert list_faint(tab) == []


@pytest.mark.parametrize("action", ["Force down", "Disable"], ids=["danger", "primary"])
def test_so_have_those_of_a_dialog(browser, scene, action):
    store, url = scene
    with open_tab(browser, f"{url}#/host?host={store.list_nodes()[0].host}") as tab:
        tab.page.get_by_role("button", name=action).click()
        tab.page.get_by_role("dialog").get_by_role("button", name="Cancel").wait_for()
        assert list_faint(tab) == []


def test_so_have_those_of_a_page_without_answers(browser):
    fleet = PageStore(PageFleet(140))
    with serve_page(fleet) as url, open_tab(browser, "about:blank") as tab:
        page = tab.page
        page.clock.install()
        page.goto(url)
        page.locator("td a").first.wait_for()
        fleet.error = StoreUnavailableError("away")
        page.clock.fast_forward(6 * SECONDS)
        page.get_by_role("button", name="Retry now").wait_for()
        assert list_faint(tab) == []


@pytest.mark.parametrize("view", ["overview", "node"])
def test_what_is_printed_has_no_controls_and_is_light(browser, scene, view):
    store, url = scene
    place = "" if view == "overview" else f"nodes/{store.list_nodes()[0].uuid}"
    with open_tab(browser, f"{url}#/{place}") as tab:
        page = tab.page
        page.locator("main .total").first.wait_for()
        page.get_by_label("Theme").select_option("dark")
        page.emulate_media(media="print")
        shown = "it => it.checkVisibility() && !it.matches('.sort')"
        controls = page.locator("button, input, select").evaluate_all(f"all => all.filter({shown})")
        assert controls == []
        assert page.locator("main .total").first.is_visible()
        scheme = "getComputedStyle(document.documentElement).colorScheme"
        assert page.evaluate(scheme) == "light"


# Sum what moves, as Cumulative Layout Shift does: not within half a second of an input.
SHIFTS = """
  window.moved = [];
  new PerformanceObserver((list) => moved.push(...list.getEntries()
    .filter((entry) => !entry.hadRecentInput).map(({ value, startTime, sources }) => [value, startTime,
      sources.map(({ node }) => node?.className || node?.nodeName).join(" ")]))).observe({ type: "layout-shift", buffered: true });
"""
MOST_SHIFT = 0.1


@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize(
    "view", ["", "hosts", "host", "nodes", "workloads", "warnings", "events", "fit"]
)
def test_little_moves_while_a_view_loads(browser, scene, view, width):
    store, url = scene
    node = store.list_nodes()[0]
    place = {"host": f"host?host={node.host}", "nodes": f"nodes/{node.uuid}"}.get(view, view)
    with open_tab(browser, "about:blank", viewport={"width": width, "height": 900}) as tab:
        tab.page.add_init_script(SHIFTS)
        tab.page.goto(f"{url}#/{place}")
        tab.page.wait_for_load_state("networkidle")
        moved = tab.page.evaluate("moved")
        assert sum(value for value, *_ in moved) <= MOST_SHIFT, moved


def test_little_moves_when_what_the_user_may_do_is_known_late(browser, scene):
    _, url = scene
    with open_tab(browser, "about:blank", viewport={"width": 360, "height": 900}) as tab:
        tab.page.add_init_script(SHIFTS)
        tab.page.route("**/v1/about", lambda route: (time.sleep(1), route.continue_()))
        tab.page.goto(f"{url}#/warnings")
        tab.page.get_by_role("button", name="Silence 4 h").first.wait_for()
        moved = tab.page.evaluate("moved")
        assert sum(value for value, *_ in moved) <= MOST_SHIFT, moved
