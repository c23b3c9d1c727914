"""What is printed is safe, and takes as many cells as it is thought to."""

import io
import logging

import pytest
from oslo_config import cfg
from oslo_log import log as oslo_log
from oslo_log.formatters import ContextFormatter

from nodetracker.cmd.screen.streams import SafeFormatter, SafeStream, make_safe
from nodetracker.cmd.screen.terminal import cut_text, safe_text, width_of, wrap_text
from nodetracker.model.text import escape_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vm-1", "vm-1"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\r", r"a\x0ab\x09c\x0d"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("a\u2028b", r"a\u2028b"),
        ("\udc80", r"\udc80"),
        ("日本", "日本"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_control_characters_are_shown_and_all_others_kept(text, shown):
    assert safe_text(text) == shown
    assert safe_text(shown) == shown


def test_every_character_that_could_move_a_cursor_or_reverse_text_is_escaped():
    ranges = (
        (0x00, 0x1F), (0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E),
        (0x2066, 0x2069), (0xFEFF, 0xFEFF), (0xD800, 0xDFFF),
    )  # fmt: skip
    for first, last in ranges:
        for code in range(first, last + 1):
            assert safe_text(f"é{chr(code)}").startswith("é\\"), hex(code)


def test_only_ascii_is_shown_where_nothing_else_can_be():
    assert safe_text("Zürich 日", has_unicode=False) == r"Z\xfcrich \u65e5"


def test_lines_are_kept_where_they_are_meant():
    assert escape_lines("a\nb\x1b") == "a\nb\\x1b"


def test_wide_characters_take_two_cells():
    assert width_of("日本") == 4
    assert cut_text("日本日本", 5) == "日本…"
    assert wrap_text("日本日本", 4) == ["日本", "日本"]


def test_a_name_that_is_too_long_is_broken_between_its_parts():
    name = "rack-1-hypervisor-003.example.org"
    assert wrap_text(name, 24) == ["rack-1-hypervisor-003.", "example.org"]
    assert wrap_text(f"{name} is down", 24) == ["rack-1-hypervisor-003.", "example.org is down"]
    assert wrap_text("x" * 5, 2) == ["xx", "xx", "x"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_text_for_a_terminal_is_made_safe_and_other_text_is_not_changed():
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        make_safe(stream).write("host \x1b]0;x\x07\n")
    assert terminal.getvalue() == "host \\x1b]0;x\\x07\n"
    assert file.getvalue() == "host \x1b]0;x\x07\n"
    assert SafeStream(terminal).isatty()


def test_a_log_line_is_made_safe_and_keeps_its_color_and_its_traceback():
    formatter = SafeFormatter(logging.Formatter("%(color)s%(message)s"))
    values = {"msg": "guest %s", "args": ("a\x1b[2J\nb",), "color": "\x1b[1m"}
    record = logging.makeLogRecord(values)
    assert formatter.format(record) == "\x1b[1mguest a\\x1b[2J\\x0ab"
    assert record.getMessage() == "guest a\x1b[2J\nb"  # for other handlers
    record.exc_text = "Traceback\n  x\x1b[2J"
    assert formatter.format(record).endswith("\nTraceback\n  x\\x1b[2J")


@pytest.mark.parametrize(
    ("name", "text"),
    [("nodetracker.rpc", "the broker is away"), ("kombu", "the broker is away: OSError: refused")],
)
def test_lines_of_nodetracker_say_only_what_they_say(name: str, text: str) -> None:
    """A library calls what logs while it handles its own error."""
    conf = cfg.ConfigOpts()
    oslo_log.register_options(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("logging_default_format_string", "%(message)s")
    formatter = SafeFormatter(ContextFormatter(config=conf, project="p", version="1"))
    record = logging.LogRecord(name, logging.ERROR, "", 0, "the broker is away", None, None)
    try:
        raise OSError("refused")
    except OSError:
        assert formatter.format(record) == text
