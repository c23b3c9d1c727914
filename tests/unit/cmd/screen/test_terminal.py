"""What a terminal can show."""

import io
import locale

import pytest

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


def test_a_pipe_gets_plain_text_of_80_columns():
    found = detect_terminal(Stream(False), {})
    assert (found.width, found.is_interactive, found.has_color) == (80, False, False)


def test_a_terminal_gets_colors_unless_they_are_refused():
    assert detect_terminal(Stream(True), {}).has_color
    assert not detect_terminal(Stream(True), {"NO_COLOR": "1"}).has_color
    assert detect_terminal(Stream(True), {"NO_COLOR": ""}).has_color  # as no-color.org defines it
    assert not detect_terminal(Stream(True), {"TERM": "dumb"}).has_color


def test_the_environment_may_set_the_width():
    assert detect_terminal(Stream(False), {"COLUMNS": "132"}).width == 132
    assert detect_terminal(Stream(False), {"COLUMNS": "wide"}).width == 80


def test_only_ascii_is_shown_in_a_locale_without_utf_8(monkeypatch):
    assert detect_terminal(Stream(True), {}).has_unicode
    monkeypatch.setattr(locale, "getencoding", lambda: "ANSI_X3.4-1968")
    assert not detect_terminal(Stream(True), {}).has_unicode
