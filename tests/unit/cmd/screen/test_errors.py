"""Errors are one line, which a terminal shows broken between words."""

import io

from nodetracker.cmd.screen.streams import draw_error, render_error


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_an_error_is_one_line_of_500_characters_at_most():
    assert render_error("a\nb") == r"a\x0ab"
    assert len(render_error("x" * 501)) == 500
    assert render_error("x" * 501).endswith("x...")
    assert render_error("x" * 500) == "x" * 500


def test_an_error_is_broken_between_words_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    error = "claim is refused: needs 4 VCPU, free is 2"
    assert draw_error(error, io.StringIO()) == error
    assert draw_error(error, Terminal()) == "claim is refused: needs 4\nVCPU, free is 2"
