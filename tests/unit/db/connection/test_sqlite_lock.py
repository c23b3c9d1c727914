"""Whoever holds the lock of an SQLite file is read from /proc/locks."""

import os
from pathlib import Path

import pytest

from nodetracker.db.connection.file_locks import find_holder

PID = 2**22 + 1  # above those of real processes, of which this is one


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for name in ("nt.sqlite", "nt.sqlite-shm", "other.sqlite"):
        (tmp_path / name).write_text("")
    return tmp_path / "nt.sqlite"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / str(PID)).mkdir(parents=True)
    set_state(tmp_path / "proc", "S")
    return tmp_path / "proc"


def set_state(proc: Path, state: str) -> None:
    (proc / str(PID) / "stat").write_text(f"{PID} (nt (x) compute) {state} 1 {PID} 0 -1 4194304\n")


def line(path: Path, mode: str = "WRITE", pid: int = PID, where: str = "120 120") -> str:
    """Return a lock as the kernel writes it."""
    found = path.stat()
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    return f"1: POSIX  ADVISORY  {mode} {pid} {device}:{found.st_ino} {where}\n"


def shm(path: Path) -> Path:
    return path.with_name(f"{path.name}-shm")


@pytest.mark.parametrize(
    ("state", "said"), [("S", ""), ("T", ", which is stopped"), ("t", ", which is stopped")]
)
def test_the_writer_of_a_file_with_a_wal_is_named(
    path: Path, proc: Path, state: str, said: str
) -> None:
    set_state(proc, state)
    (proc / "locks").write_text(line(path, "READ", where="1073741826 1073742335") + line(shm(path)))
    assert find_holder(path, proc) == f"process {PID} (nt (x) compute){said}"


@pytest.mark.parametrize("where", ["1073741824 1073742335", "1073741825 1073741825", "0 EOF"])
def test_the_writer_of_a_file_without_a_wal_is_named(path: Path, proc: Path, where: str) -> None:
    shm(path).unlink()
    (proc / "locks").write_text(line(path, where=where))
    assert find_holder(path, proc) == f"process {PID} (nt (x) compute)"


def test_a_process_that_may_not_be_read_is_named_by_its_number(path: Path, proc: Path) -> None:
    (proc / "locks").write_text(line(shm(path), pid=PID + 1) + line(shm(path)))
    assert find_holder(path, proc) == f"process {PID + 1}"


def test_this_process_is_named_as_such(path: Path, proc: Path) -> None:
    (proc / "locks").write_text(line(shm(path), pid=os.getpid()))
    assert find_holder(path, proc) == "this process"


def test_no_holder_is_named_when_none_is_known(path: Path, proc: Path) -> None:
    assert find_holder(path, proc) is None
    others = [
        line(path.with_name("other.sqlite"), where="0 EOF"),
        line(shm(path), "READ"),
        line(shm(path), where="123 123"),
        line(shm(path)).replace("1: POSIX", "1: -> POSIX"),
        line(shm(path)).replace("POSIX", "FLOCK"),
    ]
    (proc / "locks").write_text("".join(others))
    assert find_holder(path, proc) is None
    (proc / "locks").write_text("1: POSIX ADVISORY WRITE some words that differ\n")
    assert find_holder(path, proc) is None
