"""Bars of capacities."""

import pytest

from nodetracker.cmd.screen.bars import draw_bar
from nodetracker.cmd.screen.lines import Style, plain_text
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.views.overview import ResourceUse


@pytest.mark.parametrize(
    ("use", "bar"),
    [
        (ResourceUse(limit=100), "░░░░░░░░░░"),
        (ResourceUse(limit=100, reserved=10, claimed=50, unclaimed=20), "▒█████▓▓░░"),
        (ResourceUse(limit=1000, claimed=1), "█░░░░░░░░░"),
        (ResourceUse(limit=1000, claimed=999), "█████████░"),
        (ResourceUse(limit=100, claimed=100), "██████████"),
        (ResourceUse(limit=100, reserved=10, claimed=110), "▒█████████»»"),
        (ResourceUse(limit=100, claimed=1000), "██████████" + "»»»"),
        (ResourceUse(limit=0), "░░░░░░░░░░"),
        (ResourceUse(limit=0, claimed=1), "██████████" + "»»»"),
    ],
)
def test_a_bar_has_a_cell_for_each_share_and_continues_beyond_its_end(use, bar):
    assert plain_text([draw_bar(use, 10, 3, Terminal())]).rstrip() == bar


def test_a_bar_needs_no_unicode():
    use = ResourceUse(limit=100, reserved=10, claimed=50, unclaimed=60)
    drawn = plain_text([draw_bar(use, 10, 3, Terminal(has_unicode=False))]).rstrip()
    assert drawn.isascii()
    assert drawn[10:] == ">>"


@pytest.mark.parametrize(
    ("unclaimed", "styles"),
    [
        (20, [Style.RESERVED, Style.CLAIMED, Style.UNCLAIMED, Style.LEFT]),
        (35, [Style.RESERVED, Style.WARNING, Style.WARNING, Style.LEFT]),
        (50, [Style.RESERVED, Style.BAD, Style.BAD, Style.EXCESS]),
    ],
)
def test_the_color_of_a_bar_says_how_full_it_is(unclaimed, styles):
    use = ResourceUse(limit=100, reserved=10, claimed=50, unclaimed=unclaimed)
    assert [piece.style for piece in draw_bar(use, 20, 3, Terminal())] == styles
