"""Overviews and lists compared with files in ``tests/golden/screens``."""

import io
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from nodetracker.cmd.commands.claim import ListClaims
from nodetracker.cmd.commands.migration import ListMigrations
from nodetracker.cmd.commands.node import ListNodes
from nodetracker.cmd.commands.placement import AuditPlacement, HealPlacement
from nodetracker.cmd.commands.service import ListServices
from nodetracker.cmd.commands.warning import ListWarnings
from nodetracker.cmd.commands.workload import ListWorkloads
from nodetracker.cmd.screen.lines import line_width, plain_text
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.table import draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.watch import Outage, Watch, draw_picture, draw_watch, press
from nodetracker.model.trend import TREND_RESOURCES, TrendAmounts, TrendSample
from nodetracker.views.trends import ForecastLine, Trend
from tests.unit.cmd.screen import fleets, rows
from tests.unit.cmd.screen.golden import check


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("name", "rows", "height"),
    [
        ("one", fleets.one_node(), None),
        ("three", fleets.three_nodes(), None),
        ("300", fleets.many_nodes(300), 30),
    ],
)
def test_the_overview_is_as_its_file_says(name, rows, height, width):
    lines = draw_overview(fleets.view(rows), Terminal(width), height)
    check(f"overview-{name}-{width}", lines)
    assert max(map(line_width, lines)) <= width
    assert height is None or len(lines) <= height


def make_hour(age, allocated):
    """A sample in which so many percent are allocated."""
    amounts = dict.fromkeys(TREND_RESOURCES, TrendAmounts(100, 100, allocated, None))
    return TrendSample(fleets.NOW - timedelta(hours=age), 3, amounts)


class TestTrends:
    """Totals have the last week on terminals, and everywhere when they are full."""

    @pytest.fixture
    def view(self):
        growing = [
            make_hour(hour, 90 - hour // 2)
            for hour in range(167, -1, -1)
            if not 40 < hour < 70  # nobody watched
        ]
        line = ForecastLine("MEMORY_MB", 23.0, 18.0, 31.0, "Memory is full in about 23 days")
        return replace(fleets.view(fleets.three_nodes()), trend=Trend(tuple(growing), (line,)))

    @pytest.mark.parametrize("width", [80, 120])
    def test_on_a_terminal(self, view, width):
        lines = draw_overview(view, Terminal(width, is_interactive=True))
        check(f"overview-trend-{width}", lines)
        assert max(map(line_width, lines)) <= width

    def test_in_ascii(self, view):
        terminal = Terminal(120, is_interactive=True, has_unicode=False)
        text = plain_text(draw_overview(view, terminal))
        assert text.isascii()
        assert "  7 d __...." in text

    def test_a_pipe_has_words_alone(self, view):
        text = plain_text(draw_overview(view, Terminal(120)))
        assert "7 d" not in text
        assert "Memory is full in about 23 days" in text

    def test_a_single_hour_is_no_trend(self, view):
        view = replace(view, trend=Trend(view.trend.hours[:1]))
        text = plain_text(draw_overview(view, Terminal(120, is_interactive=True)))
        assert "7 d" not in text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_hosts_without_nodes_and_long_names_have_their_lines(width):
    terminal = Terminal(width)
    lines = draw_overview(fleets.view(fleets.troubled_nodes()), terminal)
    check(f"overview-troubled-{width}", lines)
    rows = fleets.list_rows(fleets.troubled_nodes())
    lines += (found := draw_table(ListNodes.layout, rows, terminal, fleets.NOW))
    check(f"node-list-troubled-{width}", found)
    assert max(map(line_width, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_watched_fleet_is_as_its_file_says(width):
    terminal = Terminal(width, 20)
    view = fleets.view(fleets.troubled_nodes())
    hours = [make_hour(23 - number, 4 * number) for number in range(24) if not 5 < number < 10]
    view = replace(view, hours={fleets.NODE.uuid: hours})
    lines = draw_watch(press(Watch(), "down", view, terminal), view, None, None, terminal)
    check(f"watch-{width}", lines)
    assert (len(lines), max(map(line_width, lines)) <= width) == (20, True)


@pytest.mark.parametrize("height", range(3, 20))
def test_on_a_low_terminal_nodes_are_left_out_and_the_outage_is_not(height):
    view, terminal = fleets.view(fleets.three_nodes()), Terminal(80, height)
    assert plain_text(draw_overview(view, terminal, height)).startswith("3 nodes on 3 hosts")
    lines = draw_picture(view, Outage("12:00:00", "no route"), terminal)
    assert len(lines) <= height
    assert plain_text(lines[-1:]).startswith("no answer since 12:00:00")


def test_domains_of_names_are_left_out_where_there_is_no_room_for_them():
    nodes = [
        replace(node, host=f"h1.{domain}", nodename=f"a-node-with-a-long-name-{number}.{domain}")
        for number, (node, domain) in enumerate(
            zip(fleets.three_nodes().nodes, ("x.org", "x.org", "y.org"), strict=True)
        )
    ]
    view = fleets.view(replace(fleets.three_nodes(), nodes=tuple(nodes), services=()))
    wide, narrow = (plain_text(draw_overview(view, Terminal(width))) for width in (200, 100))
    assert "h1.x.org  a-node-with-a-long-name-0.x.org" in wide
    assert "a-node-with-a-long-name-2.y.org" in wide
    assert "h1.x.org  …-with-a-long-name-0" in narrow
    assert "a-node-with-a-long-name-2.y.org" not in narrow


LISTS = {
    "node-list": (ListNodes, fleets.list_rows()),
    "node-list-one": (ListNodes, fleets.list_rows()[:1]),
    "node-list-300": (ListNodes, fleets.list_rows(fleets.many_nodes(300))[:45]),
    "warning-list": (ListWarnings, fleets.WARNINGS),
    "warning-list-silenced": (ListWarnings, fleets.SILENCED_WARNINGS),
    "warning-list-all": (ListWarnings, fleets.ALL_WARNINGS),
    "claim-list": (ListClaims, fleets.CLAIMS),
    "workload-list": (ListWorkloads, rows.WORKLOADS),
    "service-list": (ListServices, rows.SERVICES),
    "service-list-forced-down": (ListServices, rows.FORCED_DOWN),
    "migration-list": (ListMigrations, rows.MIGRATIONS),
    "placement-audit": (AuditPlacement, rows.DIFFERENCES),
    "placement-heal": (HealPlacement, rows.HEALED),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_as_its_file_says(name, width):
    command, rows = LISTS[name]
    lines = draw_table(command.layout, rows, Terminal(width), fleets.NOW)
    check(f"{name}-{width}", lines)
    assert max(map(line_width, lines)) <= width


def test_the_overview_needs_no_unicode():
    lines = draw_overview(fleets.view(fleets.three_nodes()), Terminal(100, has_unicode=False))
    check("overview-three-ascii", lines)
    assert plain_text(lines).isascii()


def test_a_fleet_without_nodes_or_problems_is_described():
    empty = fleets.OverviewRows(fleets.NOW)
    assert plain_text(draw_overview(fleets.view(empty), Terminal())).startswith(
        "0 nodes on 0 hosts"
    )
    one = plain_text(draw_overview(fleets.view(fleets.one_node()), Terminal()))
    assert one.startswith("1 node on 1 host: all fine\n")


def test_an_outage_leaves_the_last_picture_and_its_start():
    terminal = Terminal(80, 20)
    lines = draw_picture(fleets.view(fleets.one_node()), Outage("14:02:11", "no route"), terminal)
    check("overview-outage-80", lines)
    assert len(lines) <= 20
    assert plain_text(draw_picture(None, Outage("14:02:11", ""), terminal)) == (
        "no answer since 14:02:11\n"
    )


def test_a_thousand_nodes_are_drawn_quickly():
    view, terminal = fleets.view(fleets.many_nodes(1000)), Terminal(120, has_color=True)
    begin = time.process_time()
    Screen(io.StringIO(), terminal).show(draw_overview(view, terminal))
    assert time.process_time() - begin < 1.5  # 0.1 s on an idle machine; tests/bench measures it
