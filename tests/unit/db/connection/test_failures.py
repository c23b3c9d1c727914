"""Exceptions of database drivers are translated to errors that say what to do next."""

import contextlib
import os
import re
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pymysql
import pytest
from oslo_db import exception as oslo
from sqlalchemy import exc as sqlalchemy

from nodetracker.db.connection.failures import is_deadlock, is_lock_wait, translate, translated
from nodetracker.db.connection.url import parse_connection
from nodetracker.model.errors import (
    ConflictError,
    NotFoundError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)

MYSQL = parse_connection("mysql://u:s3cret@db/nt")
POSTGRESQL = parse_connection("postgresql://u:s3cret@db/nt")
SQLITE = parse_connection("sqlite:////absent/nt.sqlite")
SQL = "UPDATE services SET agent_id = :x"


def wrap(cause: Exception) -> sqlalchemy.DBAPIError:
    return sqlalchemy.OperationalError(SQL, {"x": "private"}, cause)


def sqlite_error(message: str, name: str, kind: type = sqlite3.OperationalError) -> Exception:
    error: Exception = kind(message)
    error.sqlite_errorname = name  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (
            pymysql.err.OperationalError(2003, "Can't connect to MySQL server"),
            StoreUnavailableError,
        ),
        (pymysql.err.OperationalError(2013, "Lost connection"), StoreUnavailableError),
        (pymysql.err.OperationalError(1045, "Access denied"), StoreUnavailableError),
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), StoreUnavailableError),
        (pymysql.err.OperationalError(1213, "Deadlock found"), StoreUnavailableError),
        (pymysql.err.OperationalError(1290, "--read-only option"), StoreUnavailableError),
        (pymysql.err.OperationalError(1114, "The table is full"), StoreUnavailableError),
        (pymysql.err.OperationalError(1047, "WSREP has not yet prepared"), StoreUnavailableError),
        (pymysql.err.OperationalError(1049, "Unknown database"), StoreUnavailableError),
        (pymysql.err.ProgrammingError(1146, "Table 'nt.services' doesn't exist"), SchemaError),
        (pymysql.err.OperationalError(1054, "Unknown column 'x'"), SchemaError),
        (pymysql.err.IntegrityError(1062, "Duplicate entry 'private'"), ConflictError),
        (pymysql.err.DataError(1406, "Data too long for column 'private'"), StoreError),
    ],
)
def test_an_error_of_mysql_says_what_to_do_next_and_no_value(
    cause: Exception, expected: type[StoreError]
) -> None:
    error = translate(wrap(cause), MYSQL)
    assert type(error) is expected
    assert "private" not in str(error)
    assert "UPDATE" not in str(error)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (psycopg.OperationalError("connection failed:\n\tpassword s3cret"), StoreUnavailableError),
        (psycopg.errors.ReadOnlySqlTransaction("read-only"), StoreUnavailableError),
        (psycopg.errors.DiskFull("could not extend file"), StoreUnavailableError),
        (psycopg.errors.LockNotAvailable("lock timeout"), StoreUnavailableError),
        (psycopg.errors.DeadlockDetected("deadlock detected"), StoreUnavailableError),
        (psycopg.errors.AdminShutdown("terminating connection"), StoreUnavailableError),
        (psycopg.errors.TooManyConnections("too many clients"), StoreUnavailableError),
        (psycopg.errors.InsufficientPrivilege("permission denied"), StoreUnavailableError),
        (psycopg.errors.IdleInTransactionSessionTimeout("terminating"), StoreUnavailableError),
        (psycopg.errors.UndefinedTable("relation does not exist"), SchemaError),
        (psycopg.errors.UndefinedColumn("column does not exist"), SchemaError),
        (psycopg.errors.UniqueViolation("duplicate key private"), ConflictError),
        (psycopg.errors.StringDataRightTruncation("value private too long"), StoreError),
    ],
)
def test_an_error_of_postgresql_says_what_to_do_next_and_no_value(
    cause: Exception, expected: type[StoreError]
) -> None:
    error = translate(wrap(cause), POSTGRESQL)
    assert type(error) is expected
    assert "private" not in str(error)
    assert "s3cret" not in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.errors.InvalidSqlStatementName('prepared statement "_pg3_7" does not exist'),
        psycopg.errors.DuplicatePreparedStatement('prepared statement "_pg3_7" already exists'),
    ],
)
def test_an_error_of_a_pooler_names_the_mode_that_it_needs(cause: Exception) -> None:
    error = translate(wrap(cause), POSTGRESQL)
    assert type(error) is StoreUnavailableError
    assert str(error) == (
        f"postgresql database nt at db: {cause}: a connection pooler must keep each session, "
        "as PgBouncer with pool_mode = session"
    )


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (sqlite_error("database is locked", "SQLITE_BUSY"), StoreUnavailableError),
        (sqlite_error("database or disk is full", "SQLITE_FULL"), StoreUnavailableError),
        (sqlite_error("attempt to write a readonly database", "SQLITE_READONLY"),
         StoreUnavailableError),
        (sqlite_error("disk I/O error", "SQLITE_IOERR"), StoreUnavailableError),
        (sqlite_error("file is not a database", "SQLITE_NOTADB", sqlite3.DatabaseError),
         StoreUnavailableError),
        (sqlite_error("no such table: services", "SQLITE_ERROR"), SchemaError),
        (sqlite_error("no such column: x", "SQLITE_ERROR"), SchemaError),
        (sqlite_error("UNIQUE constraint failed: services.private", "SQLITE_CONSTRAINT_UNIQUE",
                      sqlite3.IntegrityError), ConflictError),
        (sqlite_error("NOT NULL constraint failed: private", "SQLITE_CONSTRAINT_NOTNULL",
                      sqlite3.IntegrityError), StoreError),
    ],
)  # fmt: skip
def test_an_error_of_sqlite_says_what_to_do_next_and_no_value(
    cause: Exception, expected: type[StoreError]
) -> None:
    error = translate(wrap(cause), SQLITE)
    assert type(error) is expected
    assert "private" not in str(error)


def test_a_file_that_cannot_be_opened_names_it_and_why() -> None:
    cause = sqlite_error("unable to open database file", "SQLITE_CANTOPEN")
    assert str(translate(oslo.DBNonExistentDatabase(None, wrap(cause)), SQLITE)) == (
        "SQLite file /absent/nt.sqlite: unable to open database file: "
        "directory /absent does not exist"
    )


@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_IOERR", "SQLITE_IOERR_WRITE"])
def test_an_error_of_a_full_disk_says_that_it_is_full(code: str) -> None:
    full = parse_connection("sqlite:////proc/nt.sqlite")  # /proc has no space at all
    error = translate(wrap(sqlite_error("disk I/O error", code)), full)
    assert str(error) == (
        "SQLite file /proc/nt.sqlite: disk I/O error: the file system of /proc is full"
    )


def test_an_error_of_a_disk_with_space_left_does_not_say_that_it_is_full(tmp_path: Path) -> None:
    url = parse_connection(f"sqlite:///{tmp_path}/nt.sqlite")
    error = translate(wrap(sqlite_error("disk I/O error", "SQLITE_IOERR_READ")), url)
    assert str(error) == f"SQLite file {tmp_path}/nt.sqlite: disk I/O error"


def test_a_schema_error_says_what_to_run() -> None:
    cause = pymysql.err.ProgrammingError(1146, "Table 'nt.services' doesn't exist")
    assert "run nodetracker-manage db sync" in str(translate(wrap(cause), MYSQL))


@pytest.mark.parametrize(
    ("cause", "deadlock", "lock_wait"),
    [
        (pymysql.err.OperationalError(1213, "Deadlock"), True, False),
        (pymysql.err.OperationalError(1020, "Record has changed since last read"), True, False),
        (pymysql.err.OperationalError(1205, "Lock wait timeout"), False, True),
        (psycopg.errors.DeadlockDetected("deadlock"), True, False),
        (psycopg.errors.SerializationFailure("could not serialize access"), True, False),
        (psycopg.errors.LockNotAvailable("lock timeout"), False, True),
        (psycopg.errors.IdleInTransactionSessionTimeout("idle"), False, False),
        (sqlite_error("database is locked", "SQLITE_BUSY"), False, False),
    ],
)
def test_which_errors_are_deadlocks_and_lock_waits(
    cause: Exception, deadlock: bool, lock_wait: bool
) -> None:
    for error in (cause, wrap(cause), oslo.DBDeadlock(wrap(cause))):
        assert (is_deadlock(error), is_lock_wait(error)) == (deadlock, lock_wait)


def test_text_that_is_not_valid_unicode_is_refused() -> None:
    with pytest.raises(StoreError, match="text rejected: invalid Unicode"), translated(SQLITE):
        raise oslo.DBInvalidUnicodeParameter


def test_an_exhausted_pool_is_unavailable() -> None:
    assert isinstance(translate(sqlalchemy.TimeoutError("QueuePool"), MYSQL), StoreUnavailableError)


def test_own_errors_pass_and_other_errors_lose_their_cause() -> None:
    with pytest.raises(NotFoundError), translated(MYSQL):
        raise NotFoundError("x")
    with pytest.raises(StoreUnavailableError) as caught, translated(MYSQL):
        raise wrap(pymysql.err.OperationalError(2006, "gone"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def explain_unopened(path: Path) -> str:
    cause = sqlite_error("unable to open database file", "SQLITE_CANTOPEN")
    return str(translate(wrap(cause), parse_connection(f"sqlite:///{path}")))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
        (lambda path: None, "or the file is not writable"),
        (Path.touch, "or the file is not writable"),
    ],
    ids=["directory", "link to itself", "missing", "file"],
)
def test_what_sqlite_cannot_open_is_explained(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / "nt.sqlite")
    assert explain_unopened(tmp_path / "nt.sqlite").endswith(said)


def test_a_file_that_may_not_be_read_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nt.sqlite").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read all files
    assert explain_unopened(tmp_path / "nt.sqlite").endswith("Permission denied")


def test_an_explanation_keeps_the_locks_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "nt.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE words (word TEXT)")
        lock = f" {os.getpid()} .*:{path.stat().st_ino} "
        assert re.search(lock, Path("/proc/locks").read_text())
        explain_unopened(path)
        assert re.search(lock, Path("/proc/locks").read_text())


@pytest.mark.parametrize("make", [lambda path: None, Path.touch], ids=["missing", "file"])
def test_without_a_free_descriptor_it_is_not_said_that_a_file_is_not_writable(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "nt.sqlite")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        said = explain_unopened(tmp_path / "nt.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert said.endswith("unable to open database file: Too many open files")
