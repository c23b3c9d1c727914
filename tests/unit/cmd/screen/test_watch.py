"""The keys of ``overview --watch``, from what is looked at to what is looked at then."""

import dataclasses
import re
from functools import partial

import pytest

from nodetracker.cmd.screen.lines import make_line, plain_text
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.watch import (
    Order,
    Outage,
    Watch,
    draw_watch,
    list_lines,
    list_shown,
    press,
)
from nodetracker.model.trend import TREND_RESOURCES, TrendAmounts, TrendSample
from tests.unit.cmd.screen import fleets

VIEW = fleets.view(fleets.troubled_nodes())
TERMINAL = Terminal(100, 24)


def press_all(*keys, view=VIEW, terminal=TERMINAL):
    watch = Watch()
    for key in keys:
        watch = press(watch, key, view, terminal)
    return watch


def draw(watch, view=VIEW, outage=None, description=None, terminal=TERMINAL):
    return plain_text(draw_watch(watch, view, outage, description, terminal))


def hosts_of(watch):
    return [line.node.host for line in list_lines(VIEW, watch)]


@pytest.mark.parametrize("key", ["q", "c-c"])
def test_q_and_ctrl_c_end_it_alike(key):
    assert press_all(key).is_over
    assert press_all("down", "c-m", key).is_over


def test_while_a_filter_is_typed_q_is_a_letter():
    watch = press_all("/", "q")
    assert (watch.is_over, watch.text) == (False, "q")
    assert press_all("/", "q", "c-c").is_over


def test_arrows_stay_within_the_list():
    first = hosts_of(Watch())
    assert press_all("up").selected[0] == first[0]
    assert press_all("down").selected[0] == first[1]
    assert press_all("end", "down").selected[0] == first[-1]
    assert press_all("end", "home").selected[0] == first[0]
    assert press_all("pagedown").selected[0] == first[-1]


def test_the_filter_is_a_part_of_the_names_of_host_or_node():
    assert hosts_of(press_all("/", *"PUTE-4")) == ["compute-4"]
    assert hosts_of(press_all("/", *"nnn")) == ["rack-7"]
    watch = press_all("/", *"rackx", "c-h", "c-m")
    assert (watch.text, watch.is_typing) == ("rack", False)
    assert press(watch, "escape", VIEW, TERMINAL).text == ""
    assert "no node has this in its name" in draw(press_all("/", *"zzz"))


def test_each_press_of_s_is_the_next_order():
    orders = [press_all(*"s" * count).order for count in range(7)]
    assert orders == [*Order, Order.WORST]
    assert hosts_of(press_all("s"))[0] == "compute-1"
    assert hosts_of(press_all(*"sssss")) == sorted(hosts_of(Watch()))


def test_enter_opens_a_node_and_escape_leaves_it():
    watch = press_all("c-m")
    assert watch.opened == ("compute-3", "bare metal \u65e5\u672c\u8a9e \x1b[31m")
    assert draw(watch).startswith("reading bare metal")
    assert "\x1b" not in draw(watch)
    assert press(watch, "escape", VIEW, TERMINAL).opened is None


def test_a_host_without_nodes_cannot_be_opened():
    assert press_all("/", *"compute-4", "c-m", "c-m").opened is None


def test_a_description_is_moved_up_to_its_end():
    description = [make_line(f"line {number}") for number in range(30)]
    watch = press_all("c-m", "down", "down")
    assert draw(watch, description=description).startswith("line 2\n")
    lines = draw(press(watch, "end", VIEW, TERMINAL), description=description).splitlines()
    assert lines[-2:] == ["line 29", "Esc: back  up, down: move  q: quit"]


@pytest.mark.parametrize("height", range(5, 30))
def test_it_takes_the_height_of_the_terminal_and_totals_four_lines(height):
    terminal = Terminal(80, height)
    show = partial(draw_watch, terminal=terminal, description=None)
    lines = show(press_all("end", terminal=terminal), VIEW, None)
    assert len(lines) == height
    assert "\u25b6" in plain_text(lines)
    titles = ("CPU  ", "Pinned  ", "Memory  ", "Disk  ")
    totals = [line for line in plain_text(lines).splitlines() if line.startswith(titles)]
    assert len(totals) in (0, 3)
    notice = show(Watch(), VIEW, Outage("12:00:00", "no route"))
    assert len(notice) <= height
    assert plain_text(notice[-1:]).startswith("no answer since 12:00:00")


class TestHours:
    """The last day of the nodes on the screen."""

    def test_the_nodes_on_the_screen_are_known(self):
        view = fleets.view(fleets.many_nodes(300))
        for keys in ((), ("pagedown",), ("end",), ("/", "9", "9", "c-m")):
            watch = press_all(*keys, view=view)
            shown = list_shown(watch, view, TERMINAL)
            drawn = draw(watch, view).partition("STATE")[2]  # below the causes
            assert 0 < len(shown) < 24
            # What is not shown is not drawn: one node has a name that is cut.
            hosts = {line.node.host for line in shown}
            assert set(re.findall(r"rack-\d+-node-\d+", drawn)) == {
                host for host in hosts if host.startswith("rack")
            }
        assert list_shown(press_all("c-m"), VIEW, TERMINAL) == []

    @pytest.mark.parametrize(
        ("keys", "title"), [("", "MEMORY"), ("s", "CPU"), ("ss", "MEMORY"), ("sss", "DISK")]
    )
    def test_are_of_the_amount_that_sorts(self, keys, title):
        sample = TrendSample(
            fleets.NOW, 1, dict.fromkeys(TREND_RESOURCES, TrendAmounts(100, 100, 60, None))
        )
        view = dataclasses.replace(VIEW, hours={fleets.NODE.uuid: [sample]})
        terminal = Terminal(160, 24)
        header, line = (
            found
            for found in draw(press_all(*keys, view=view), view, terminal=terminal).splitlines()
            if "STATE" in found or "compute-1" in found
        )
        assert line.index("\u2585") > header.index(title)
        following = {"CPU": "MEMORY", "MEMORY": "DISK", "DISK": "GUESTS"}[title]
        assert line.index("\u2585") < header.index(following)
        narrow = draw(press_all(*keys, view=view), view, terminal=Terminal(110, 24))
        assert "\u2585" not in narrow
