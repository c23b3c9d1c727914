"""The file of who changed what."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.process.change_log import CHANGES, log_change, open_change_file


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
        "Change -: user alice, command host set, target h1?Change -: forged from c-1: done"
    )
    assert moment[10] == "T"


def test_a_refused_caller_is_a_line_too(path: Path) -> None:
    CHANGES.warning("Login failed: %s", "user 'eve'")
    assert path.read_text().endswith("Login failed: user 'eve'\n")


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
