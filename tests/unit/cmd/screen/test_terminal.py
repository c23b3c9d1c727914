"""What a terminal can show."""

import io
import locale

import pytest
from rich.style import Style as Look

from nodetracker.cmd.screen.lines import Style
from nodetracker.cmd.screen.output import FIXED_LOOKS
from nodetracker.cmd.screen.terminal import detect_terminal


class Stream(io.StringIO):
    encoding = "utf-8"

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture(autouse=True)
def _utf8(monkeypatch):
    monkeypatch.setattr(locale, "getencoding", lambda: "UTF-8")


def test_a_pipe_gets_plain_text_screens_of_80_columns_and_tables_of_any_width():
    found = detect_terminal(Stream(False), {})
    assert (found.width, found.is_interactive, found.has_color) == (80, False, False)
    assert not found.has_width
    assert detect_terminal(Stream(False), {"COLUMNS": "90"}).has_width


def test_a_terminal_gets_colors_unless_they_are_refused():
    assert detect_terminal(Stream(True), {}).has_color
    assert not detect_terminal(Stream(True), {"NO_COLOR": "1"}).has_color
    assert detect_terminal(Stream(True), {"NO_COLOR": ""}).has_color  # as no-color.org defines it
    assert not detect_terminal(Stream(True), {"TERM": "dumb"}).has_color


def test_the_colors_that_all_terminals_share_are_used_where_they_exist():
    assert detect_terminal(Stream(True), {"TERM": "tmux-256color"}).has_fixed_colors
    assert detect_terminal(Stream(True), {"TERM": "xterm", "COLORTERM": "yes"}).has_fixed_colors
    assert not detect_terminal(Stream(True), {"TERM": "linux"}).has_fixed_colors


@pytest.mark.parametrize("style", sorted(set(FIXED_LOOKS) - {Style.TITLE, Style.DIM, Style.LEFT}))
@pytest.mark.parametrize("background", [(0, 0, 0), (255, 255, 255)], ids=["dark", "light"])
def test_colors_are_legible_on_dark_and_light_backgrounds(style, background):
    color = Look.parse(FIXED_LOOKS[style]).color
    assert color is not None
    lights = sorted(map(luminance, (color.get_truecolor(), background)))
    assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 3.5


def luminance(color) -> float:
    """Return the relative luminance of WCAG 2."""
    parts = [part / 255 for part in color]
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_the_environment_may_set_the_width():
    assert detect_terminal(Stream(False), {"COLUMNS": "132"}).width == 132
    assert detect_terminal(Stream(False), {"COLUMNS": "wide"}).width == 80


def test_only_ascii_is_shown_in_a_locale_without_utf_8(monkeypatch):
    assert detect_terminal(Stream(True), {}).has_unicode
    monkeypatch.setattr(locale, "getencoding", lambda: "ANSI_X3.4-1968")
    assert not detect_terminal(Stream(True), {}).has_unicode
