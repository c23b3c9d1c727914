"""Logs that cannot be written: what is lost is counted and reported once."""

import errno
import logging
import os
from collections.abc import Iterator
from logging.handlers import WatchedFileHandler
from pathlib import Path

import pytest

from nodetracker.process.log_guard import LossGuard, guard_handler

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_logger(handler: logging.Handler, monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Return a logger that has only this handler, until the test ends."""
    log = logging.getLogger("tests.log_guard")
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "propagate", False)
    return log


class Disk:
    """A log's file, whose disk may be full: of the next line, some bytes are written."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.handler = WatchedFileHandler(path, delay=True)
        self.log = make_logger(self.handler, monkeypatch)
        guard_handler(self.handler)
        guard_handler(self.handler)
        self._guard: LossGuard = self.handler.emit.__self__  # type: ignore[attr-defined]
        self._write = self._guard._emit

    def fill(self, kept: int) -> None:
        """Let the disk have room for so many bytes."""
        room = kept

        def write(record: logging.LogRecord) -> None:
            nonlocal room
            with self.path.open("a") as file:
                file.write(record.getMessage()[:room])
            room = 0
            raise FULL

        self._guard._emit = write

    def free(self) -> None:
        """Free room."""
        self._guard._emit = self._write

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk(tmp_path / "log", monkeypatch)
    yield found
    found.handler.close()


def test_lost_lines_are_counted_and_reported_once(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.log.warning("first")
    disk.fill(3)
    for number in range(5):
        disk.log.warning("lost %d", number)
    disk.free()
    disk.log.warning("second")
    disk.log.warning("third")
    note = "5 lines were lost, as this log could not be written"
    assert disk.lines() == ["first", "los", note, "second", "third"]
    reason = "No space left on device; dropping log lines until it can be written"
    assert capsys.readouterr().err == f"{disk.path}: {reason}\n"


def test_each_outage_is_reported(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        disk.fill(0)
        disk.log.warning("lost")
        disk.free()
        disk.log.warning("written")
    note = "1 line was lost, as this log could not be written"
    assert disk.lines() == [note, "written", note, "written"]
    assert capsys.readouterr().err.count("No space left") == 2


def test_a_file_that_cannot_be_opened_again_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, away = tmp_path / "logs", tmp_path / "away"
    directory.mkdir()
    disk = Disk(directory / "log", monkeypatch)
    disk.log.warning("first")
    directory.rename(away)
    disk.log.warning("lost")
    away.rename(directory)
    disk.log.warning("second")
    disk.handler.close()
    assert [disk.lines()[0], disk.lines()[-1]] == ["first", "second"]
    assert capsys.readouterr().err.count("No such file") == 1


def test_a_line_that_cannot_be_formatted_is_shown_as_before(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not by the logger: pytest's own handler would raise the error.
    disk.handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("text",)}))
    disk.log.warning("second")
    assert disk.lines() == ["second"]
    assert "--- Logging error ---" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["/dev/full"])
def test_a_stream_that_fails_prints_no_traceback(
    device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(device).open("w", buffering=1) as stream:
        handler = logging.StreamHandler(stream)
        log = make_logger(handler, monkeypatch)
        guard_handler(handler)
        for _ in range(3):
            log.warning("lost")
        err = capsys.readouterr().err
        assert err.count("No space left on device") == 1
        assert "Traceback" not in err
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
