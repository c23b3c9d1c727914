"""`overview --watch` keeps its picture while the fleet cannot be read."""

import io
import re
import threading
from datetime import timedelta

import pytest

from nodetracker.cmd.commands.overview import FleetScreen
from nodetracker.model.errors import NotFoundError, StoreUnavailableError
from nodetracker.model.trend import TREND_RESOURCES, TrendAmounts, TrendSample
from tests.unit.cmd.screen import fleets


class Terminal(io.StringIO):
    """A terminal on which somebody presses Ctrl-C when it shows a text."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self._last = last

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        super().write(text)
        if self._last in text:
            self._last = "\0"
            raise KeyboardInterrupt
        return len(text)


def test_an_outage_leaves_the_last_picture_until_ctrl_c(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    readings = iter([fleets.view(fleets.one_node())])

    def read():
        for view in readings:
            return view
        raise StoreUnavailableError("the database is away")

    out = Terminal("the database is away")
    FleetScreen(read, out, 0.01).run()
    shown = out.getvalue()
    assert shown.startswith("\x1b[?1049h")  # the other screen, until Ctrl-C
    painted, _, left = shown.partition("\x1b[?1049l")
    assert "1 node on 1 host: all fine" in painted
    for text in (painted, left):
        assert re.search(
            r"since \d\d:\d\d:\d\dZ; this is the last picture: the database is away", text
        )
    assert "\x1b" not in left


def test_a_host_that_does_not_exist_ends_the_watch(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")

    def read():
        raise NotFoundError("no such host: h1")

    out = Terminal("\0")
    with pytest.raises(NotFoundError):
        FleetScreen(read, out, 0.01).run()
    assert out.getvalue().endswith("\x1b[?25h\x1b[?1049l")


def test_an_error_of_the_program_ends_the_watch_and_is_not_an_outage(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")

    def read():
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        FleetScreen(read, Terminal("\0"), 0.01).run()


class FrozenTerminal(Terminal):
    """A terminal whose output somebody has stopped, as by Ctrl-S, until it is released."""

    def __init__(self) -> None:
        super().__init__("all fine")
        self.released = threading.Event()

    def write(self, text: str) -> int:
        assert self.released.wait(60)
        return super().write(text)


def test_pictures_do_not_pile_up_while_a_terminal_is_stopped(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out, has_read_again = FrozenTerminal(), threading.Event()
    reads, piled_up = [], []

    def read():
        reads.append(True)
        if len(reads) > 1:
            has_read_again.set()
        return fleets.view(fleets.one_node())

    def release():
        piled_up.append(has_read_again.wait(0.2))
        out.released.set()

    releasing = threading.Thread(target=release)
    releasing.start()
    FleetScreen(read, out, 0.001).run()
    releasing.join()
    assert piled_up == [False]


def test_the_last_day_of_the_nodes_on_the_screen_is_read_with_the_fleet(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("LINES", "24")
    asked = []
    amounts = dict.fromkeys(TREND_RESOURCES, TrendAmounts(100, 100, 60, None))

    def read_hours(uuids, now):
        asked.append((uuids, now))
        return {
            uuid: [TrendSample(now - timedelta(hours=age), 1, amounts) for age in range(23, -1, -1)]
            for uuid in uuids
        }

    out = Terminal(" ====")
    FleetScreen(lambda: fleets.view(fleets.one_node()), out, 0.01, read_hours=read_hours).run()
    assert asked[0] == ([fleets.NODE.uuid], fleets.NOW)
    assert "====" in out.getvalue()
