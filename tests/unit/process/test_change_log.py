"""The file of who changed what, and that no text of others forges a line of a log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.cmd.screen.streams import SafeFormatter
from nodetracker.process.change_log import (
    CHANGES,
    guard_records,
    log_change,
    open_change_file,
)

FORGED = "n1\nChange -: user admin\x1b[2J\u202e"
ESCAPED = r"n1\x0aChange -: user admin\x1b[2J\u202e"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    found = tmp_path / "changes.log"
    open_change_file(str(found))
    yield found
    open_change_file(None)


def change(name: str = "h1") -> None:
    log_change("user alice", "command host set", name, "c-1", "done")


def test_a_change_is_one_line_with_time(path: Path) -> None:
    change("h1\nChange -: forged")
    (line,) = path.read_text().splitlines()
    moment, _, rest = line.partition(" ")
    assert rest == (
        "Change -: user alice, command host set, target h1\\x0aChange -: forged from c-1: done"
    )
    assert moment[10] == "T"


def test_a_refused_caller_is_a_line_too(path: Path) -> None:
    CHANGES.warning("Login failed: %s", "user 'eve'")
    assert path.read_text().endswith("Login failed: user 'eve'\n")


def test_a_line_may_be_an_object(path: Path) -> None:
    open_change_file(str(path), "json")
    change(FORGED)
    CHANGES.warning("Login failed")
    first, second = map(json.loads, path.read_text().splitlines())
    assert first.pop("at")[10] == "T"
    assert first == {
        "request_id": "-",
        "who": "user alice",
        "what": "command host set",
        "target": FORGED,
        "address": "c-1",
        "outcome": "done",
    }
    assert (second["who"], second["outcome"]) == (None, "Login failed")


class Records(logging.Handler):
    """Keeps the records of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """Guard all records, and return those of the logger ``guarded``."""
    before, handler = logging.getLogRecordFactory(), Records()
    guard_records()
    logging.getLogger("guarded").addHandler(handler)
    yield handler.kept
    logging.getLogger("guarded").removeHandler(handler)
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("%s: %s", ("a", FORGED)),
        ("%s", (ValueError(FORGED),)),
        ("%(name)s", ({"name": FORGED},)),
        (FORGED, ()),
        (ValueError(FORGED), ()),
    ],
)
def test_no_argument_forges_a_line(
    records: list[logging.LogRecord], message: object, arguments: tuple[object]
) -> None:
    logging.getLogger("guarded").warning(message, *arguments)
    assert records[-1].getMessage().endswith(ESCAPED)


def test_numbers_are_formatted_as_numbers(records: list[logging.LogRecord]) -> None:
    logging.getLogger("guarded").warning("%d %.1f %s", 7, 0.5, None)
    assert records[-1].getMessage() == "7 0.5 None"


def test_a_traceback_keeps_its_lines_and_nothing_else(records: list[logging.LogRecord]) -> None:
    try:
        raise ValueError("a\x1b[2J")
    except ValueError:
        logging.getLogger("guarded").exception("it failed")
    text = SafeFormatter(logging.Formatter("%(message)s")).format(records[-1])
    assert text.startswith("it failed\nTraceback")
    assert text.endswith(r"ValueError: a\x1b[2J")


def test_a_file_that_was_moved_away_is_opened_again(path: Path) -> None:
    change()
    path.rename(path.with_suffix(".1"))
    change("h2")
    assert [line.count("target h2") for line in path.read_text().splitlines()] == [1]


def test_another_file_takes_over(path: Path) -> None:
    other = path.with_name("other.log")
    for name in (path, path, other, other, None):  # each reload opens it, changed or not
        change("h1")
        open_change_file(name and str(name))
    change("h1")
    assert [item.read_text().count("\n") for item in (path, other)] == [3, 2]


@pytest.mark.parametrize("name", ["/dev/full", "/proc/none/changes.log"])
def test_a_file_that_cannot_be_written_is_one_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_change_file(name)
    try:
        with caplog.at_level(logging.WARNING):
            change()
            change()
    finally:
        open_change_file(None)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"[audit] log_file: {name}: " in warning.getMessage()


def test_without_a_file_nothing_is_added() -> None:
    open_change_file(None)
    assert not CHANGES.handlers
