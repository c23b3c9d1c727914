"""Translate exceptions of the database libraries into nodetracker's errors.

A message is one line with the database and its error. It never contains SQL,
parameters or a password.
"""

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oslo_db import exception as oslo
from sqlalchemy import exc as sqlalchemy
from sqlalchemy.engine import URL

from nodetracker.db.connection.file_locks import find_holder
from nodetracker.db.connection.url import describe, is_read_only, list_secrets, sqlite_path
from nodetracker.model.errors import (
    ConflictError,
    NodetrackerError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.service import FIRST_REVISION
from nodetracker.model.text import omit_tls_codes

_MYSQL_DUPLICATE = {1062, 1586}
_MYSQL_SCHEMA = {1054, 1146, 1364}  # unknown column, no such table, unknown required column
# 1020: a row has changed, under snapshot isolation. Galera reports 1213 at any statement, and at
# COMMIT when another server's transaction was first.
_MYSQL_DEADLOCK = {1020, 1213}
_MYSQL_LOCK_WAIT = 1205
_MYSQL_UNSUPPORTED = {1105, 1235}  # of Percona XtraDB Cluster's strict mode, of MariaDB
_MYSQL_REFUSED_VALUE = {1048, 1264, 1265, 1292, 1366, 1406, 1451, 1452}
_SQLITE_DISK = ("SQLITE_FULL", "SQLITE_IOERR")
_FULL_BYTES = 1 << 20  # SQLite fails before nothing at all is left
_POSTGRESQL_SCHEMA = {"3F000", "42P01", "42703"}
_POSTGRESQL_NO_TABLE = "42P01"
_POSTGRESQL_UNKNOWN = ("0A", "42")  # not supported; missing, or without the privilege
_POSTGRESQL_DEADLOCK = {"40001", "40P01"}
_POSTGRESQL_LOCK_WAIT = "55P03"
# Seen with PgBouncer in transaction mode: a prepared statement does not exist, or does already.
_POSTGRESQL_POOLED = {"26000", "42P05"}
_POOL_MODE = "a connection pooler must keep each session, as PgBouncer with pool_mode = session"
_POSTGRESQL_AWAY = (
    "08", "25006", "25P03", "25P04", "28", "40", "42501", "53", "55", "57", "58", "XX",
)  # fmt: skip


def _unwrap(error: BaseException) -> list[BaseException]:
    """Return the error and all that it wraps, down to the driver's own exception."""
    chain: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and inner not in chain:
        chain.append(inner)
        if isinstance(inner, oslo.DBError):
            inner = inner.inner_exception
        elif isinstance(inner, sqlalchemy.DBAPIError):
            inner = inner.orig
        else:
            inner = None
    return chain


def _find_cause(error: BaseException) -> BaseException:
    """Return the driver's own exception inside the libraries' wrappers."""
    return _unwrap(error)[-1]


def _mysql_code(cause: BaseException) -> int | None:
    """Return the server's or client library's number of a MySQL error."""
    code = cause.args[0] if cause.args else None
    is_mysql = type(cause).__module__.startswith("pymysql")
    return code if is_mysql and isinstance(code, int) else None


def _sqlstate(cause: BaseException) -> str | None:
    """Return PostgreSQL's SQLSTATE, None for other errors."""
    if not type(cause).__module__.startswith("psycopg"):
        return None  # MySQL's drivers have one too, with other meanings
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return code if isinstance(code, str) else None


def is_deadlock(error: BaseException) -> bool:
    """Return whether the database aborted this transaction in favour of another one."""
    cause = _find_cause(error)
    return _mysql_code(cause) in _MYSQL_DEADLOCK or _sqlstate(cause) in _POSTGRESQL_DEADLOCK


def is_lock_wait(error: BaseException) -> bool:
    """Return whether a server did not grant a lock in time."""
    cause = _find_cause(error)
    return _mysql_code(cause) == _MYSQL_LOCK_WAIT or _sqlstate(cause) == _POSTGRESQL_LOCK_WAIT


def is_unsupported(error: BaseException) -> bool:
    """Return whether a MySQL server has a function but refuses it, such as one of a cluster."""
    return _mysql_code(_find_cause(error)) in _MYSQL_UNSUPPORTED


def is_unknown_to_server(error: BaseException) -> bool:
    """Return whether a PostgreSQL server lacks what a statement needs, or denies it to the user."""
    return (_sqlstate(_find_cause(error)) or "").startswith(_POSTGRESQL_UNKNOWN)


def is_missing_table(error: BaseException) -> bool:
    """Return whether a table is missing on a PostgreSQL server."""
    return _sqlstate(_find_cause(error)) == _POSTGRESQL_NO_TABLE


def is_duplicate(error: BaseException) -> bool:
    """Return whether a row with the same key exists already."""
    cause = _find_cause(error)
    return (
        isinstance(error, oslo.DBDuplicateEntry)
        or _mysql_code(cause) in _MYSQL_DUPLICATE
        or _sqlstate(cause) == "23505"
        or getattr(cause, "sqlite_errorname", "")
        in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")
    )


def _is_schema(cause: BaseException) -> bool:
    """Return whether a table or column that this version uses is missing."""
    if isinstance(cause, sqlite3.Error):
        words = ("no such table", "no such column", "has no column named")
        return any(word in str(cause) for word in words)
    return _mysql_code(cause) in _MYSQL_SCHEMA or _sqlstate(cause) in _POSTGRESQL_SCHEMA


def _is_away(error: BaseException, cause: BaseException) -> bool:
    """Return whether the database is unusable at the moment, for any client."""
    sqlstate = _sqlstate(cause)
    if sqlstate is not None:
        return sqlstate.startswith(_POSTGRESQL_AWAY)
    if _mysql_code(cause) is not None:
        return _mysql_code(cause) not in _MYSQL_REFUSED_VALUE
    if isinstance(cause, sqlite3.Error):
        return isinstance(cause, sqlite3.DatabaseError) and not isinstance(
            cause, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError
        )
    # A connection that was never made, or that broke, has no code.
    away = (
        oslo.DBConnectionError
        | sqlalchemy.OperationalError
        | sqlalchemy.InterfaceError
        | sqlalchemy.DisconnectionError
    )
    return any(isinstance(link, away) for link in _unwrap(error))


def explain(cause: BaseException, url: URL) -> str:
    """Return the driver's message on one line, without secrets."""
    diagnosis = getattr(getattr(cause, "diag", None), "message_primary", None)
    if diagnosis:
        text = str(diagnosis)
    elif _mysql_code(cause) is not None and len(cause.args) > 1:
        text = f"{cause.args[1]} ({cause.args[0]})"
    else:
        text = str(cause)
    text = omit_tls_codes(" ".join(text.split())) or type(cause).__name__
    for secret in list_secrets(url):
        text = text.replace(secret, "***")
    return text


def _explain_sqlite(cause: sqlite3.Error, url: URL) -> str:
    """Explain why a file cannot be opened, written or locked; SQLite itself does not."""
    reason = explain(cause, url)
    path = sqlite_path(url)
    name = getattr(cause, "sqlite_errorname", "")
    if path is not None and name.startswith("SQLITE_BUSY"):
        holder = find_holder(path)
        return f"{reason} by {holder}" if holder else reason
    if path is not None and name.startswith(_SQLITE_DISK):
        return f"{reason}{_explain_full(path.absolute().parent)}"
    if name != "SQLITE_CANTOPEN" or path is None:
        return reason
    directory = path.absolute().parent
    if not directory.exists():
        return f"{reason}: directory {directory} does not exist"
    if not directory.is_dir():
        return f"{reason}: {directory} is not a directory"
    if is_read_only(url):
        return f"{reason}: missing (nodetracker-manage db sync creates it) or not readable"
    code = _find_obstacle(path) or _find_limit()
    if code is not None:
        return f"{reason}: {os.strerror(code)}"
    return f"{reason}: directory {directory} or the file is not writable"


def _find_obstacle(path: Path) -> int | None:
    """Return the error with which a file cannot be opened for reading, None if it can.

    A missing file would be created. It is not opened: to close it again would end all locks that
    this process has on it.
    """
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.errno
    if is_directory:
        return errno.EISDIR
    return None if os.access(path, os.R_OK) else errno.EACCES


def _find_limit() -> int | None:
    """Return the error with which no file at all can be opened, None if one can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno
    return None


def _explain_full(directory: Path) -> str:
    """Explain that a directory's file system is full; "" if it is not, or if that is unknown."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return ""
    return f": the file system of {directory} is full" if free < _FULL_BYTES else ""


def translate(error: BaseException, url: URL) -> NodetrackerError:
    """Return the error whose type defines what the caller does next."""
    cause = _find_cause(error)
    name = describe(url)
    if is_duplicate(error):
        return ConflictError(f"{name}: duplicate key")
    if _is_schema(cause):
        return SchemaError(
            f"{name}: schema missing or of another version; run nodetracker-manage db sync "
            f"({explain(cause, url)})"
        )
    if _sqlstate(cause) in _POSTGRESQL_POOLED:
        return StoreUnavailableError(f"{name}: {explain(cause, url)}: {_POOL_MODE}")
    if any(isinstance(link, sqlalchemy.TimeoutError) for link in _unwrap(error)):
        return StoreBusyError(f"{name}: all connections of this process are in use")
    if _is_away(error, cause):
        reason = (
            _explain_sqlite(cause, url) if isinstance(cause, sqlite3.Error) else explain(cause, url)
        )
        is_contended = is_deadlock(error) or is_lock_wait(error)
        return StoreUnavailableError(f"{name}: {reason}", is_contended)
    # All other errors concern a value, which the driver's message would repeat.
    code = _mysql_code(cause) or _sqlstate(cause) or getattr(cause, "sqlite_errorname", None)
    kind = type(cause).__name__
    return StoreError(f"{name}: statement rejected: {kind}{f' {code}' if code else ''}")


def explain_older(revision: str | None) -> str:
    """Return why a schema of a revision before the first one is refused, "" for any other."""
    if revision is None or revision >= FIRST_REVISION:
        return ""
    return f"the schema has revision {revision}, made before 1.0: create a new database"


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Raise exceptions of the database libraries as nodetracker's errors."""
    try:
        yield
    except oslo.DBInvalidUnicodeParameter:  # does not derive from the library's other errors
        raise StoreError(f"{describe(url)}: text rejected: invalid Unicode") from None
    except (oslo.DBError, sqlalchemy.SQLAlchemyError, sqlite3.Error) as error:
        # Without the cause: its text contains the statement.
        raise translate(error, url) from None
