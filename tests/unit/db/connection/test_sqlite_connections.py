"""Connections to an SQLite file stay open, as long as that is right."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection import sessions
from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.model.errors import SchemaError, StoreUnavailableError
from nodetracker.process.time_limit import limit_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_file(tmp_path / "nt.sqlite", "first")


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = open_database(path)
    yield opened
    opened.close()


def make_file(path: Path, word: str) -> Path:
    """Make a database of one word, as a program leaves it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE words (word TEXT)")
        connection.execute("INSERT INTO words VALUES (?)", [word])
        connection.commit()
    return path


def open_database(path: Path) -> Database:
    return Database(DatabaseSettings(f"sqlite:///{path}"))


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def driver_of(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


def read_words(database: Database) -> list[str]:
    return database.read(lambda c: list(c.scalars(sa.text("SELECT word FROM words"))))


def add_word(database: Database, word: str) -> None:
    insert = sa.text("INSERT INTO words VALUES (:word)")
    database.write(lambda c: c.execute(insert, {"word": word}))


def read_file(path: Path) -> list[str]:
    """Return the words of a file that no program uses, from a copy without a log."""
    copy = Path(shutil.copy(path, path.with_name("copy.sqlite")))
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [word for (word,) in connection.execute("SELECT word FROM words")]


def count_open(path: Path) -> int:
    """Count this process's descriptors of a file."""
    identity = os.path.realpath(path)
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(link.readlink()) == identity
    return found


def test_a_connection_is_used_again_by_another_thread(database: Database) -> None:
    first = database.read(driver_of)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(database.read, driver_of).result() is first
        assert pool.submit(read_words, database).result() == ["first"]


def test_a_use_of_a_connection_sends_its_own_statements_alone(database: Database) -> None:
    sent: list[str] = []
    database.read(driver_of).set_trace_callback(sent.append)
    read_words(database)
    assert sent == ["BEGIN", "SELECT word FROM words", "ROLLBACK"]


def test_no_thread_waits_for_a_connection_and_few_are_kept(database: Database, path: Path) -> None:
    together = threading.Barrier(12, timeout=10)

    def read(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT word FROM words"))
        together.wait()

    for _ in range(3):
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(database.read, [read] * 12))
        assert count_open(log_of(path)) == sessions.KEPT_CONNECTIONS
        # SQLite keeps descriptors of a file with locks for connections that are opened later.
        assert count_open(path) <= 12
    database.close()
    assert count_open(path) == 0


def test_a_closed_database_has_no_log(database: Database, path: Path) -> None:
    add_word(database, "second")
    assert log_of(path).exists()
    database.close()
    assert not log_of(path).exists()
    assert read_file(path) == ["first", "second"]


@pytest.mark.parametrize("way", ["moved over", "renamed and made", "removed and made"])
def test_another_file_of_the_same_name_is_noticed(database: Database, path: Path, way: str) -> None:
    add_word(database, "second")
    other = make_file(path.with_name("other.sqlite"), "other")
    away = path.with_name("away.sqlite")
    if way == "renamed and made":
        path.rename(away)
    elif way == "removed and made":
        path.unlink()
    other.replace(path)
    assert read_words(database) == ["other"]
    add_word(database, "third")
    if way == "renamed and made":
        assert read_file(away) == ["first", "second"]
    database.close()
    assert read_file(path) == ["other", "third"]


def test_a_missing_file_is_made_again_as_by_a_program_that_starts(
    database: Database, path: Path
) -> None:
    add_word(database, "second")
    away = path.rename(path.with_name("away.sqlite"))
    with pytest.raises(SchemaError):
        read_words(database)
    assert path.exists()
    assert read_file(away) == ["first", "second"]
    away.replace(path)
    assert read_words(database) == ["first", "second"]


@pytest.mark.parametrize("way", ["file", "link", "new file"])
def test_connections_of_a_file_that_was_moved_do_not_touch_the_next_one(
    tmp_path: Path, path: Path, way: str
) -> None:
    other = make_file(tmp_path / "other.sqlite", "other")
    away, link = tmp_path / "away.sqlite", tmp_path / "link.sqlite"
    if way == "link":
        link.symlink_to(path)
    elif way == "new file":
        path.unlink()
    database, another = (open_database(link if way == "link" else path) for _ in range(2))
    if way == "new file":
        database.write(lambda c: c.execute(sa.text("CREATE TABLE words (word TEXT)")))
        add_word(database, "first")
    add_word(another, "second")
    with another.engine.connect() as busy:
        busy.execution_options(nodetracker_writes=True)
        add_word(database, "third")
        path.rename(away)
        other.replace(path)
        add_word(database, "new")
        busy.execute(sa.text("INSERT INTO words VALUES ('late')"))
        busy.commit()
    add_word(another, "newer")
    assert read_words(database) == read_words(another) == ["other", "new", "newer"]
    database.close()
    another.close()
    assert read_file(path) == ["other", "new", "newer"]
    assert read_file(away) == ["first", "second", "third", "late"]


def test_a_link_that_names_another_file_is_noticed(tmp_path: Path, path: Path) -> None:
    other = make_file(tmp_path / "other.sqlite", "other")
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    database, direct = open_database(link), open_database(path)
    add_word(database, "second")
    add_word(direct, "third")
    link.unlink()
    link.symlink_to(other)
    assert read_words(database) == ["other"]
    add_word(direct, "fourth")
    database.close()
    assert read_words(open_database(path)) == ["first", "second", "third", "fourth"]
    direct.close()


def test_a_database_that_is_only_read_is_not_kept_open(database: Database, path: Path) -> None:
    reader = Database(DatabaseSettings(f"sqlite:///{path}", is_read_only=True))
    assert "immutable" in reader.url.query
    assert read_words(reader) == ["first"]
    assert count_open(path) == 0


def test_a_database_in_memory_has_one_connection() -> None:
    database = Database(DatabaseSettings("sqlite://"))
    first = database.read(driver_of)
    with database.engine.connect():
        assert database.read(driver_of) is first


def test_the_log_is_written_back_after_some_time(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_word(database, "second")
    read_words(database)
    assert log_of(path).stat().st_size > 0
    monkeypatch.setattr(sessions, "LOG_SECONDS", 0.0)
    read_words(database)
    assert log_of(path).stat().st_size == 0
    assert read_file(path) == ["first", "second"]


def test_nobody_waits_while_the_log_is_in_use(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_word(database, "second")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT word FROM words").fetchall()
        add_word(database, "third")
        monkeypatch.setattr(sessions, "LOG_SECONDS", 0.0)
        started = time.monotonic()
        read_words(database)
        assert time.monotonic() - started < 5  # of the 10 that a writer waits
        assert log_of(path).stat().st_size > 0
    monkeypatch.setattr(sessions, "LOG_SECONDS", 3600.0)
    wait = database.read(lambda connection: connection.scalar(sa.text("PRAGMA busy_timeout")))
    assert wait == sessions.LOCK_WAIT_SECONDS * 1000


def test_a_request_waits_to_open_a_locked_file_no_longer_than_it_has_time(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("INSERT INTO words VALUES ('second')")
        database = open_database(path)
        started = time.monotonic()
        with limit_database(1), pytest.raises(StoreUnavailableError, match="locked"):
            read_words(database)
        assert time.monotonic() - started < 8  # of the 10 that others wait
    assert read_words(database) == ["first", "second"]
    database.close()


def test_the_log_of_a_large_transaction_does_not_stay_large(database: Database, path: Path) -> None:
    def fill(connection: sa.Connection) -> None:
        large = sa.text("INSERT INTO words VALUES (hex(zeroblob(1000000)))")
        for _ in range(10):
            connection.execute(large)

    database.write(fill)
    assert log_of(path).stat().st_size > sessions.LOG_BYTES
    add_word(database, "second")
    assert log_of(path).stat().st_size <= sessions.LOG_BYTES


FORK = """
import os, sys
from pathlib import Path
from tests.unit.db.connection.test_sqlite_connections import add_word, open_database, read_words

database = open_database(Path(sys.argv[1]))
add_word(database, "parent")
child = os.fork()
add_word(database, "child" if child == 0 else "parent again")
assert len(read_words(database)) >= 3
if child == 0:
    database.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
add_word(database, "last")
database.close()
"""


def test_both_processes_go_on_after_a_fork(path: Path) -> None:
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", FORK, path], env=environment, check=True)
    assert not log_of(path).exists()
    words = read_file(path)
    assert sorted(words) == ["child", "first", "last", "parent", "parent again"]
