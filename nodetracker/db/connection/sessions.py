"""Prepare each new connection: how long servers wait, and what SQLite lacks."""

import contextlib
import random
import select
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import plugins
from sqlalchemy.engine import URL, CreateEnginePlugin
from sqlalchemy.exc import DisconnectionError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from nodetracker.db.connection.dialect import SQLITE_BEFORE, SQLITE_NOW
from nodetracker.db.connection.primaries import Primaries, Server
from nodetracker.db.connection.url import describe, is_read_only, sqlite_path
from nodetracker.process.time_limit import find_limit

LOCK_WAIT_SECONDS = 10
IDLE_TRANSACTION_SECONDS = 15
"""How long the server waits for the next statement of a transaction, or to send an answer.

It then rolls the transaction back and closes the connection, so a client that is
stopped or cut off holds no lock for longer. The statements of one batch of an audit
follow each other within milliseconds.
"""
MYSQL_IDLE_SECONDS = 30
"""The same for MySQL, which only limits the idle time of a connection, in a transaction or not.

Longer, so that two pooled connections that heartbeats use alternately stay open.
"""
WAIT_FOR_MEMBERS = "SET SESSION wsrep_sync_wait = 3"
"""Let a member of a Galera cluster apply what others have committed before a transaction starts.

1 is for transactions that start with a SELECT, 2 for those with an UPDATE or DELETE. A
member that lags would not find what a caller has just written through another one, and
whatever is decided by that and writes nothing is not certified: no such claim, no room.
"""
IDENTIFY_MYSQL = "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'server_uid', 'server_uuid')"
"""Each is a row where there is one: of Galera, of MariaDB, of MySQL."""
TRUSTED_SECONDS = 1.0
"""How long after a transaction its connection is used again without a ping.

A ping is a round trip: one of four of a heartbeat through a conductor.
"""
WRITES = "nodetracker_writes"
"""Execution option of transactions that write."""

_DRIVERS = ("psycopg", "pymysql")
_NO_SHARED_INDEX = "SQLITE_IOERR_SHMSIZE"
"""SQLite's error where the disk has no room for the index of the log that processes share."""

KEPT_CONNECTIONS = 2
"""How many connections to an SQLite file stay open; more are opened and closed again."""
LOG_SECONDS = 10.0
"""How often a process writes SQLite's log back to the file, at the end of a use."""
LOG_BYTES = 4 << 20
"""What remains of the log that a large transaction wrote.

SQLite writes the log back by itself whenever it has 1,000 pages, which is a little less.
"""
_Identity = tuple[int, int] | None
_PLUGIN = "nodetracker_pool"
_FILES = "nodetracker_files"
_SERVER = "nodetracker_server"
_LOCK_WAIT = "nodetracker_lock_wait"

_SQLITE_TIME = "%Y-%m-%d %H:%M:%S.%f"


class PoolPlugin(CreateEnginePlugin):
    """Sets what oslo.db has no options for.

    It keeps connections to an SQLite file, for which oslo.db sets a pool that keeps none.
    However many threads use the database, none waits for a connection. One to a file that is
    only read is not kept: it may have been opened as a file that nobody else changes.

    Each transaction on a server is ended by who began it; the pool would roll back once more, at
    a round trip for each that wrote. Idle connections are checked by `_ping_idle`.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        if url.get_backend_name() != "sqlite":
            kwargs["pool_reset_on_return"] = None
            if url.get_driver_name() in _DRIVERS:
                kwargs["pool_pre_ping"] = False
        elif kwargs["poolclass"] is NullPool and not is_read_only(url):  # not in memory
            kwargs |= {
                "poolclass": QueuePool,
                "pool_size": KEPT_CONNECTIONS,
                "max_overflow": -1,
                "pool_pre_ping": False,
            }

    def update_url(self, url: URL) -> URL:
        """Return it as it is."""
        return url


plugins.register(_PLUGIN, __name__, PoolPlugin.__name__)


def with_pool(url: URL) -> URL:
    """Return the URL with the plugin that sets up the pool of its connections."""
    return url.update_query_dict({"plugin": _PLUGIN})


def prepare_sessions(primaries: Primaries, engine: sa.Engine) -> None:
    """Configure what oslo.db does not, on each new connection.

    Args:
        primaries: what the process knows of the database's servers.
    """
    engine.hide_parameters = True
    if engine.dialect.name == "sqlite":
        _tune_sqlite(engine)
        return
    if engine.dialect.name == "postgresql":
        _connect_postgresql(engine, primaries)
    else:
        _connect_mysql(engine, primaries)
    _check_used(engine, primaries)


def _connect_postgresql(engine: sa.Engine, primaries: Primaries) -> None:
    @sa.event.listens_for(engine, "do_connect")
    def connect(
        dialect: sa.Dialect,
        record: ConnectionPoolEntry,
        arguments: Any,
        parameters: dict[str, Any],
    ) -> Any:
        def open_one(given: dict[str, Any]) -> Any:
            if dialect.driver == "psycopg":
                # Imported here as it needs its driver, of which at most one is installed.
                from nodetracker.db.connection import psycopg_connection

                opened: Any = psycopg_connection.connect(given)
            else:
                opened = dialect.connect(*arguments, **given)
            try:
                set_up_session(opened, dialect.name, is_mariadb=False)
            except BaseException:
                opened.close()
                raise
            return opened

        connection, record.info[_SERVER] = primaries.open(open_one, parameters)
        return connection


def _connect_mysql(engine: sa.Engine, primaries: Primaries) -> None:
    @sa.event.listens_for(engine, "do_connect")
    def connect(
        dialect: object, record: object, arguments: object, parameters: dict[str, Any]
    ) -> Any:
        from nodetracker.db.connection import pymysql_connection

        return pymysql_connection.connect(parameters)

    @sa.event.listens_for(engine, "connect")
    def set_session(connection: Any, record: object) -> None:
        # Known since the first connection, for which SQLAlchemy's own listener runs first.
        is_mariadb = getattr(engine.dialect, "is_mariadb", False)
        if identifier := set_up_session(connection, engine.dialect.name, is_mariadb):
            primaries.note(Server(identifier, describe(engine.url)))


def _check_used(engine: sa.Engine, primaries: Primaries) -> None:
    """Check connections that were idle, where SQLAlchemy checks each before each transaction.

    For the same round trip, PostgreSQL says again which server this is.
    """
    if engine.dialect.driver not in _DRIVERS:
        return
    dialect: Any = engine.dialect

    @sa.event.listens_for(engine, "connect")
    @sa.event.listens_for(engine, "checkin")  # codespell:ignore
    def note_use(connection: object, record: ConnectionPoolEntry) -> None:
        record.info["used_at"] = time.monotonic()

    def ping(connection: Any, record: ConnectionPoolEntry) -> None:
        try:
            if dialect.name == "postgresql":
                record.info[_SERVER] = primaries.identify(connection)
            else:
                dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            if not dialect.is_disconnect(error, connection, None):
                raise
            raise InvalidatePoolError from error

    @sa.event.listens_for(engine, "checkout")
    def check(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        is_trusted = time.monotonic() - record.info["used_at"] < TRUSTED_SECONDS
        if not is_trusted or _has_input(connection):
            ping(connection, record)
        server = record.info.get(_SERVER)
        if server is not None and primaries.find_newer(server):
            raise DisconnectionError


def _has_input(connection: Any) -> bool:
    """Return whether a connection that waits for nothing has data to read, or has ended."""
    source = getattr(connection, "_sock", connection)  # PyMySQL's; psycopg has `fileno`
    if source is None or getattr(connection, "closed", False):
        return True
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))


def set_up_session(connection: Any, backend: str, is_mariadb: bool) -> str:
    """Prepare a new connection of a driver to a server.

    Returns:
        What identifies a server of MariaDB or MySQL, of Galera the cluster; "" if unknown.
    """
    cursor = connection.cursor()
    for statement in list_session_settings(backend, is_mariadb):
        cursor.execute(statement)
    identifier = "" if backend == "postgresql" else _find_cluster(cursor)
    cursor.close()
    connection.commit()
    return identifier


def _find_cluster(cursor: Any) -> str:
    """Let a member of a Galera cluster wait for the others; return what identifies the server."""

    def read(statement: str) -> dict[str, str]:
        cursor.execute(statement)
        return dict(cursor.fetchall())

    found = read(IDENTIFY_MYSQL)
    if found.get("wsrep_on") != "ON":
        return found.get("server_uid") or found.get("server_uuid") or ""
    cursor.execute(WAIT_FOR_MEMBERS)
    return read("SHOW STATUS LIKE 'wsrep_cluster_state_uuid'").get("wsrep_cluster_state_uuid", "")


def list_session_settings(backend: str, is_mariadb: bool) -> list[str]:
    """Return the statements that prepare a new connection to a server."""
    if backend == "postgresql":
        return [
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"SET SESSION lock_timeout = {LOCK_WAIT_SECONDS * 1000}",
            f"SET SESSION idle_in_transaction_session_timeout = {IDLE_TRANSACTION_SECONDS * 1000}",
            f"SET SESSION tcp_user_timeout = {IDLE_TRANSACTION_SECONDS * 1000}",
        ]
    idle_limit = (
        f"idle_transaction_timeout = {IDLE_TRANSACTION_SECONDS}"
        if is_mariadb
        else f"wait_timeout = {MYSQL_IDLE_SECONDS}"
    )
    return [
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}",
        f"SET SESSION {idle_limit}",
        f"SET SESSION net_write_timeout = {IDLE_TRANSACTION_SECONDS}",
    ]


def limit_lock_wait(connection: sa.Connection) -> None:
    """Let a transaction wait for a lock only as long as its request has time, less a second.

    The database then says itself that it was not granted, and nothing was written.
    """
    seconds = max(1, min(LOCK_WAIT_SECONDS, int(find_limit().cut(LOCK_WAIT_SECONDS + 1) - 1)))
    if connection.info.get(_LOCK_WAIT, LOCK_WAIT_SECONDS) == seconds:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {seconds * 1000}")
        return
    if connection.dialect.name == "sqlite":
        if _FILES not in connection.info:  # in memory, or it excludes all others
            return
        file: Any = connection.connection.dbapi_connection  # before the transaction begins
        file.execute(f"PRAGMA busy_timeout = {seconds * 1000}")
    else:
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {seconds}")
    connection.info[_LOCK_WAIT] = seconds


def _tune_sqlite(engine: sa.Engine) -> None:
    pragmas = [
        "PRAGMA synchronous = FULL",  # what is committed survives a power failure
        "PRAGMA temp_store = MEMORY",  # or a full disk would end reads that sort much
    ]
    usual: list[str] = []
    path = sqlite_path(engine.url)
    if path is not None and not is_read_only(engine.url):
        usual = [
            "PRAGMA journal_mode = WAL",
            f"PRAGMA journal_size_limit = {LOG_BYTES}",
            "PRAGMA schema_version",  # which opens the log, even of a new file
        ]
        _check_kept(engine, path)

    @sa.event.listens_for(engine, "do_connect")
    def connect(
        dialect: sa.Dialect,
        record: ConnectionPoolEntry,
        arguments: Any,
        parameters: dict[str, Any],
    ) -> Any:
        def open_one(*further: str) -> Any:
            every = [*further, *pragmas]
            return _retry_locked(lambda: _connect_sqlite(dialect, arguments, parameters, every))

        seconds = record.info[_LOCK_WAIT] = find_limit().cut(LOCK_WAIT_SECONDS)
        try:
            opened = open_one(f"PRAGMA busy_timeout = {int(seconds * 1000)}", *usual)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != _NO_SHARED_INDEX:
                raise
        else:
            if path is not None:
                record.info[_FILES] = _identify_files(path)
            return opened
        # Excluding all others: the log's index is in this process's memory. Two that wait for
        # each other would wait in vain, as each keeps a part of the lock.
        return open_one("PRAGMA busy_timeout = 0", "PRAGMA locking_mode = EXCLUSIVE")

    # oslo.db sends BEGIN itself, which takes no lock. A writer needs its lock from the
    # start, because a transaction that reads first may be unable to write afterwards.
    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def begin_at_once(
        connection: sa.Connection,
        cursor: object,
        statement: str,
        parameters: object,
        context: object,
        executemany: bool,
    ) -> tuple[str, object]:
        if statement == "BEGIN" and connection.get_execution_options().get(WRITES):
            statement = "BEGIN IMMEDIATE"
        return statement, parameters


def _check_kept(engine: sa.Engine, path: Path) -> None:
    """Use a kept connection only while the path leads to the file that it has opened."""
    written_back_at = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def check(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        opened = record.info.get(_FILES)
        if opened is not None and _identify(path) != opened[0][1]:
            _leave_files(connection, opened)
            raise DisconnectionError

    @sa.event.listens_for(engine, "checkin")  # codespell:ignore
    def check_in(connection: Any, record: ConnectionPoolEntry) -> None:
        nonlocal written_back_at
        if _FILES not in record.info:
            record.close()  # it excludes all others
        elif connection is not None and time.monotonic() - written_back_at >= LOG_SECONDS:
            written_back_at = time.monotonic()
            record.info.pop(_LOCK_WAIT, None)
            _write_back(connection, wait_seconds=0)


def _identify(file: Path) -> _Identity:
    """Return device and inode of a file, None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _identify_files(path: Path) -> list[tuple[Path, _Identity]]:
    """Return the files of a database, the first of which has its rows; the others are its log."""
    real = path.resolve()  # as SQLite names the log
    return [(file, _identify(file)) for file in (real, Path(f"{real}-wal"), Path(f"{real}-shm"))]


def _leave_files(connection: Any, opened: list[tuple[Path, _Identity]]) -> None:
    """Write the log of a file that was moved back to it, and remove the log.

    Whoever opens a file of the same name would else read the log as its own.
    """
    _write_back(connection, wait_seconds=LOCK_WAIT_SECONDS)
    (database, identity), *logs = opened
    if _identify(database) == identity:
        return  # only a link to it has changed
    for file, identity in logs:
        if _identify(file) == identity:
            file.unlink(missing_ok=True)


def _write_back(connection: Any, wait_seconds: int) -> None:
    """Write the log back to the file and empty it, as far as others allow it in that time."""
    with contextlib.suppress(sqlite3.Error):
        connection.execute(f"PRAGMA busy_timeout = {wait_seconds * 1000}")
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_SECONDS * 1000}")


def _connect_sqlite(
    dialect: sa.Dialect, arguments: Any, parameters: dict[str, Any], pragmas: list[str]
) -> Any:
    connection: Any = dialect.connect(*arguments, **parameters)
    try:
        connection.create_function(SQLITE_NOW, 0, _sqlite_now)
        connection.create_function(SQLITE_BEFORE, 2, _sqlite_before)
        for pragma in pragmas:
            connection.execute(pragma)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _retry_locked(connect: Callable[[], Any]) -> Any:
    """Connect as soon as no lock prevents it.

    SQLite itself does not wait for the writer of a new file that is to get a log.
    """
    last_start = time.monotonic() + find_limit().cut(LOCK_WAIT_SECONDS)
    while True:
        try:
            return connect()
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorname == "SQLITE_BUSY"
            if not is_locked or time.monotonic() >= last_start:
                raise
        time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - no secret


def _sqlite_now() -> str:
    """Return the current time in the format of SQLite's columns."""
    return datetime.now(UTC).strftime(_SQLITE_TIME)


def _sqlite_before(time: str, seconds: int) -> str:
    """Return the time some seconds before another."""
    return (datetime.fromisoformat(time) - timedelta(seconds=seconds)).strftime(_SQLITE_TIME)
