"""Progress of long commands; time passes only while the drawing waits."""

import io
import threading

import pytest

from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.progress import (
    Progress,
    ProgressBar,
    ProgressLines,
    draw_until,
    show_progress,
)
from nodetracker.cmd.screen.terminal import Terminal


class Time:
    """A clock, and positions that a command reports when a number of seconds has passed."""

    def __init__(self, *reports: tuple[float, tuple]) -> None:
        self.seconds = 0.0
        self.waits: list[float] = []
        self.progress = Progress("migrating", lambda: self.seconds)
        self._reports = list(reports)

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.seconds += seconds
        while self._reports and self._reports[0][0] <= self.seconds:
            self.progress.report(*self._reports.pop(0)[1])
        return not self._reports


def draw(time: Time, make, terminal: Terminal) -> str:
    out = io.StringIO()
    draw_until(time.wait, time.progress, make(Screen(out, terminal)))
    return out.getvalue()


def test_a_line_is_written_every_few_seconds():
    time = Time((3, (1, 4, "0002: ledger")), (7, (2, 4, "0003: engine")), (18, (4, 4)))
    assert draw(time, ProgressLines, Terminal()).splitlines() == [
        "migrating: 1 of 4, 0002: ledger, 5 s",
        "migrating: 2 of 4, 0003: engine, 10 s",
        "migrating: 2 of 4, 0003: engine, 15 s",
    ]


def test_work_of_unknown_length_shows_its_age():
    assert (
        draw(Time((11, (0, 0))), ProgressLines, Terminal()) == "migrating: 5 s\nmigrating: 10 s\n"
    )


@pytest.mark.parametrize("make", [ProgressLines, ProgressBar])
def test_a_command_that_ends_soon_shows_nothing(make):
    assert draw(Time((0.1, (1, 1))), make, Terminal(is_interactive=True)) == ""


@pytest.mark.parametrize("total", [4, 0])
def test_a_terminal_shows_a_bar_that_disappears(total):
    terminal = Terminal(80, is_interactive=True, has_color=True)
    text = draw(Time((0.6, (1, total, "a \x1b[31m host")), (9, (4, total))), ProgressBar, terminal)
    assert "migrating" in text
    assert r"a \x1b[31m host" in text
    assert "━" in text
    assert text.endswith("\x1b[2K") or text.rstrip("\r").endswith("\x1b[2K")


def test_a_bar_without_colors_has_none():
    text = draw(Time((1, (1, 2)), (2, (2, 2))), ProgressBar, Terminal(80, is_interactive=True))
    assert "migrating" in text
    assert "\x1b[3" not in text


def test_the_drawing_ends_with_the_command_also_when_it_fails():
    before = threading.active_count()
    out = io.StringIO()
    with pytest.raises(ZeroDivisionError), show_progress("migrating", out):
        raise ZeroDivisionError
    assert threading.active_count() == before
    assert out.getvalue() == ""
