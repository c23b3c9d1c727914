"""Databases that go away, refuse and come back: the right error, and then it works again."""

import contextlib
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from nodetracker.db import history
from nodetracker.db.connection import engine, sessions
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions, tables
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import ConfigError, NotFoundError, StoreError, StoreUnavailableError
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from tests.builders import create, make_values, read_history, register, update
from tests.functional.own_logs import list_alarming
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import add_options, find_free_port
from tests.functional.servers.small_disk import SmallDisk
from tests.programs import wait_until

SERVERS: dict[str, Callable[[], Any]] = {"mariadb": MariaDB, "postgresql": PostgreSQL}
SECRETS = ("s3cret-of-mariadb", "s3cret-of-postgresql")


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of this module's own, as its tests stop it."""
    made = SERVERS[request.param]()
    try:
        made.url_of_tests = made.create_database("nt_outages")
        store = open_store(DatabaseSettings(made.url_of_tests))
        revisions.sync(store.engine)
        register(store)
        store.close()
        yield made
    finally:
        made.remove()


@pytest.fixture
def store(server: Any) -> Iterator[SqlStore]:
    opened = open_store(DatabaseSettings(server.url_of_tests))
    yield opened
    opened.close()


def assert_unavailable(call: Callable[[], object]) -> str:
    """Make sure that a call says in one line that the database cannot be used."""
    with pytest.raises(StoreUnavailableError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert "nt_outages" in text or "SQLite file" in text
    assert not any(word in text for word in ("SELECT ", "UPDATE services", "INSERT INTO", *SECRETS))
    assert caught.value.__cause__ is None
    return text


def count_sockets(server: Any) -> int:
    """Count this process's own sockets to a server; threads of earlier tests may have others."""
    found = psutil.Process().net_connections("inet")
    return sum(bool(item.raddr) and item.raddr.port == server.process.port for item in found)


def wait_for_waiter(server: Any) -> None:
    """Wait until a transaction waits for a lock."""
    wait_until(lambda: server.count_waiting() > 0, interval=0.01)


@contextlib.contextmanager
def lock_service(server: Any) -> Iterator[None]:
    """Hold a lock on the services row as an administrator, whose connection none of us kills."""
    connection = server.connect("nt_outages")
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute("SELECT id FROM services FOR UPDATE")
        yield
    finally:
        with contextlib.suppress(pymysql.err.Error, psycopg.Error):  # the server has ended it
            connection.rollback()
        connection.close()


def test_a_stopped_server_is_unavailable_and_comes_back(server: Any, store: SqlStore) -> None:
    agent = register(store)
    server.stop()
    started = time.monotonic()
    said = assert_unavailable(lambda: store.load_versions("alpha", COMPUTE_BINARY))
    assert "refused" in said
    assert_unavailable(lambda: store.apply_changes(agent, [create(agent, "n-stopped")], 60))
    assert time.monotonic() - started < 40
    server.start()
    assert store.load_versions("alpha", COMPUTE_BINARY).epoch == agent.epoch
    assert "n-stopped" in store.apply_changes(agent, [create(agent, "n-stopped")], 60).records


def test_a_store_opened_before_its_server_works_once_there_is_one(server: Any) -> None:
    server.stop()
    early = open_store(DatabaseSettings(server.url_of_tests))
    assert_unavailable(early.now)
    server.start()
    early.now()
    early.close()


def test_a_server_killed_in_mid_transaction_leaves_nothing(server: Any, store: SqlStore) -> None:
    agent = register(store)
    before = read_history(store, "alpha")
    record = store.apply_changes(agent, [create(agent, "n-killed")], 60).records["n-killed"]
    with lock_service(server), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.apply_changes, agent, [create(agent, "n-never")], 60)
        wait_for_waiter(server)
        server.process.cut_power()
        assert_unavailable(waiting.result)
    server.start()
    assert len(read_history(store, "alpha")) == len(before) + 1
    result = store.apply_changes(agent, [update(record, vcpus=1)], 60)
    assert result.records["n-killed"].generation == 2
    assert not store.list_nodes("alpha", "n-never")


def test_a_cut_connection_in_the_pool_is_not_noticed(server: Any, store: SqlStore) -> None:
    agent = register(store)
    assert server.kill_connections() >= 1
    store.report_state(agent, agent.epoch * 10**6, AuditState())


def test_a_connection_cut_in_mid_transaction(server: Any, store: SqlStore) -> None:
    agent = register(store)
    with lock_service(server), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.apply_changes, agent, [create(agent, "n-cut")], 60)
        wait_for_waiter(server)
        server.kill_connections()
        assert_unavailable(waiting.result)
    assert "n-cut" in store.apply_changes(agent, [create(agent, "n-cut")], 60).records


def test_a_read_only_server_is_unavailable_until_it_is_not(server: Any, store: SqlStore) -> None:
    agent = register(store)
    server.set_read_only(True)
    try:
        said = assert_unavailable(
            lambda: store.report_state(agent, agent.epoch * 10**6, AuditState())
        )
        assert "read-only" in said
        assert store.load_versions("alpha", COMPUTE_BINARY).epoch == agent.epoch
    finally:
        server.set_read_only(False)
    store.report_state(agent, agent.epoch * 10**6, AuditState())


def test_a_lock_is_not_waited_for_for_ever(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LOCK_WAIT_SECONDS", 1)
    store = open_store(DatabaseSettings(server.url_of_tests))
    agent = register(store)
    with lock_service(server):
        started = time.monotonic()
        said = assert_unavailable(
            lambda: store.report_state(agent, agent.epoch * 10**6, AuditState())
        )
        assert "lock" in said.lower()
        assert 0.5 < time.monotonic() - started < 40
    store.report_state(agent, agent.epoch * 10**6, AuditState())
    store.close()


def open_patient(server: Any) -> SqlStore:
    """Open the store of a client that gives way to no other one.

    In PostgreSQL, the one that waited for its `deadlock_timeout` looks for a deadlock.
    """
    url = sa.make_url(server.url_of_tests)
    if server.name == "postgresql":
        url = url.set(username="test", password=None)
        url = url.update_query_dict({"options": "-c deadlock_timeout=1h"})
    return open_store(DatabaseSettings(url.render_as_string(hide_password=False)))


def test_deadlocks_are_run_again_and_none_is_lost(server: Any) -> None:
    """Other clients lock the same rows the other way round; each transaction counts once."""
    store = open_store(DatabaseSettings(server.url_of_tests))
    agent = register(store)
    names = ["n-dead-0", "n-dead-1"]
    store.apply_changes(agent, [create(agent, name) for name in names], 60)
    ids = [n.id for name in names for n in store.list_nodes("alpha", name)]
    other = open_patient(server)
    gate = threading.Event()
    lost: list[BaseException] = []

    @sa.event.listens_for(store.engine, "handle_error")
    def note(context: sa.engine.ExceptionContext) -> None:
        lost.append(context.original_exception)

    nodes = tables.compute_nodes
    line = history.line(store.now(), 0, "beta", "n1", ChangeKind.UPDATE)

    def cross(number: int) -> None:
        """Lock the second row, let the store lock the first, then ask for the first.

        It has written much already, so the store's transaction is the one to give way.
        """
        measured = sa.update(nodes).values(mem_available=number)
        with other.engine.begin() as connection:
            history.insert(connection, [line] * 50)
            connection.execute(measured.where(nodes.c.id == ids[1]))
            gate.set()
            wait_for_waiter(server)
            connection.execute(measured.where(nodes.c.id == ids[0]))

    for number in range(3):
        gate.clear()
        thread = threading.Thread(target=cross, args=(number,))
        thread.start()
        gate.wait()
        records = store.load_nodes("alpha", ids)
        result = store.apply_changes(agent, [update(n, vcpus=number) for n in records], 60)
        thread.join()
        assert sorted(result.records) == names
    assert [n.generation for n in store.load_nodes("alpha", ids)] == [4, 4]
    assert lost, "no transaction of the store was ever chosen to give way"
    store.close()
    other.close()


DEADLOCKS: dict[str, list[tuple[type[Exception], tuple[Any, ...]]]] = {
    "mysql": [
        (pymysql.err.OperationalError, (1213, "Deadlock found when trying to get lock")),
        (pymysql.err.InternalError, (1213, "WSREP detected deadlock/conflict and aborted")),
        (pymysql.err.OperationalError, (1205, "Lock wait timeout exceeded")),
    ],
    "postgresql": [
        (psycopg.errors.SerializationFailure, ("could not serialize access",)),
        (psycopg.errors.DeadlockDetected, ("deadlock detected",)),
        (psycopg.errors.LockNotAvailable, ("canceling statement due to lock timeout",)),
    ],
}


def test_deadlocks_at_any_statement_and_at_commit_are_run_again(
    server: Any, store: SqlStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As servers of a Galera cluster report them, which certify a transaction at COMMIT."""
    agent = register(store)
    remaining: list[int] = [0]  # points until the error, then below 0
    errors: list[Exception] = []

    def reach(*_: object) -> None:
        remaining[0] -= 1
        if remaining[0] == 0:
            raise errors.pop()

    sa.event.listen(store.engine, "do_execute", reach)
    sa.event.listen(store.engine, "do_executemany", reach)
    commit = store.engine.dialect.do_commit

    def do_commit(connection: Any) -> None:
        reach()
        commit(connection)

    monkeypatch.setattr(store.engine.dialect, "do_commit", do_commit)
    remaining[0] = 100
    store.apply_changes(agent, [create(agent, "n-certified")], 60)
    points = 100 - remaining[0]
    assert points > 4
    entries = len(read_history(store, "alpha"))
    for kind, arguments in DEADLOCKS[server.name]:
        for point in range(1, points + 1):
            errors.append(kind(*arguments))
            remaining[0] = point
            name = f"n-{kind.__name__}-{arguments[0]}-{point}"
            assert name in store.apply_changes(agent, [create(agent, name)], 60).records
            assert errors == []
            entries += 1
    errors.append(DEADLOCKS[server.name][0][0](*DEADLOCKS[server.name][0][1]))
    remaining[0] = 1
    assert len(read_history(store, "alpha")) == entries
    assert errors == []
    assert list_alarming(caplog) == []


def test_a_transaction_of_a_killed_connection_raises_its_own_error(
    server: Any, store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    """oslo.db would raise the error of the rollback, and log this one with its traceback."""
    database = engine.Database(DatabaseSettings(server.url_of_tests))

    def fail(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT id FROM services FOR UPDATE"))
        server.kill_connections()
        raise NotFoundError("no such claim: x")

    with caplog.at_level(logging.DEBUG), pytest.raises(NotFoundError, match="no such claim: x"):
        database.write(fail)
    own = [record.getMessage() for record in caplog.records if record.name == engine.__name__]
    assert len(own) == 1
    assert "rollback failed, closing the connection" in own[0]
    assert list_alarming(caplog) == []
    assert "dropped" not in caplog.text
    database.close()


def test_a_value_that_the_database_refuses_names_neither_value_nor_statement(
    server: Any, store: SqlStore
) -> None:
    register(store)
    database = engine.Database(DatabaseSettings(server.url_of_tests))
    rename = sa.text("UPDATE services SET host = :host").bindparams(host="xyzzy" * 100)
    with pytest.raises(StoreError) as caught:
        database.write(lambda connection: connection.execute(rename))
    database.close()
    assert not isinstance(caught.value, StoreUnavailableError)
    assert "xyzzy" not in str(caught.value)
    assert "UPDATE" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_port_where_nobody_listens_is_told_soon_and_without_the_password(server: Any) -> None:
    url = server.url_of_tests.replace(f":{server.process.port}/", f":{find_free_port()}/")
    store = open_store(DatabaseSettings(url))
    started = time.monotonic()
    assert_unavailable(store.now)
    assert time.monotonic() - started < 40


def test_a_database_that_is_not_there(server: Any) -> None:
    store = open_store(DatabaseSettings(server.url("nt_absent")))
    with pytest.raises(StoreUnavailableError, match="nt_absent"):
        store.now()


def test_a_server_that_hangs_at_the_first_connect_is_given_up(server: Any) -> None:
    """The time to connect alone counts, however long a statement may take."""
    store = open_store(DatabaseSettings(add_options(server.url_of_tests, connect_timeout=5)))
    server.process.freeze()
    try:
        started = time.monotonic()
        assert_unavailable(store.now)
        assert time.monotonic() - started < 40
    finally:
        server.process.thaw()
    store.now()
    store.close()


def test_a_connect_that_is_given_up_leaves_no_socket(server: Any) -> None:
    """Nor does it wait for the garbage collector, which an agent at rest hardly ever runs."""
    store = open_store(DatabaseSettings(add_options(server.url_of_tests, connect_timeout=5)))
    sockets = count_sockets(server)
    server.process.freeze()
    gc.disable()
    try:
        assert_unavailable(store.now)
        assert count_sockets(server) == sockets
    finally:
        gc.enable()
        server.process.thaw()
    store.close()


def test_a_server_that_hangs_under_an_open_connection_is_given_up(server: Any) -> None:
    url = add_options(server.url_of_tests, connect_timeout=5, read_timeout=5)
    store = open_store(DatabaseSettings(url))
    agent = register(store)
    server.process.freeze()
    try:
        for _ in range(2):
            started = time.monotonic()
            assert_unavailable(lambda: store.report_state(agent, agent.epoch * 10**6, AuditState()))
            assert time.monotonic() - started < 40
    finally:
        server.process.thaw()
    store.report_state(agent, agent.epoch * 10**6, AuditState())
    store.close()


def test_a_server_that_hangs_in_mid_transaction_is_given_up(server: Any) -> None:
    store = open_store(
        DatabaseSettings(add_options(server.url_of_tests, read_timeout=5, connect_timeout=5))
    )
    other = open_store(DatabaseSettings(server.url_of_tests))
    agent = register(other)
    with lock_service(server), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.apply_changes, agent, [create(agent, "n-frozen")], 60)
        wait_for_waiter(server)
        server.process.freeze()
        try:
            assert_unavailable(lambda: waiting.result(60))
        finally:
            server.process.thaw()
    assert not other.list_nodes("alpha", "n-frozen")
    other.close()
    assert store.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    store.close()


def test_a_statement_that_runs_long_but_within_its_time_is_not_cut(server: Any) -> None:
    """Connecting has less time than a statement; a server at work on one is left to it."""
    store = open_store(DatabaseSettings(add_options(server.url_of_tests, connect_timeout=5)))
    sleep = "SELECT sleep(6)" if server.name == "mysql" else "SELECT pg_sleep(6)"
    with store.engine.connect() as connection:
        connection.execute(sa.text(sleep))
    store.close()


def test_a_wrong_password_is_not_repeated(mariadb: MariaDB) -> None:
    url = mariadb.url("nt_any").replace(SECRETS[0], "wr0ng-s3cret")
    store = open_store(DatabaseSettings(url))
    with pytest.raises(StoreUnavailableError) as caught:
        store.now()
    assert "wr0ng-s3cret" not in str(caught.value)
    assert "wr0ng-s3cret" not in repr(DatabaseSettings(url))


class TestSqlite:
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        url = f"sqlite:///{tmp_path / 'nt.sqlite'}"
        revisions.sync(open_store(DatabaseSettings(url)).engine)
        return url

    def test_many_writers_lose_nothing(self, url: str) -> None:
        agent = register(open_store(DatabaseSettings(url)))
        names = [f"n{number}" for number in range(8)]
        store = open_store(DatabaseSettings(url))
        store.apply_changes(agent, [create(agent, name) for name in names], 60)

        def write(name: str) -> int:
            mine = open_store(DatabaseSettings(url))
            done = 0
            for number in range(38):
                record = next(n for n in mine.load_nodes("alpha") if n.nodename == name)
                result = mine.apply_changes(agent, [update(record, vcpus_used=number)], 60)
                done += len(result.records)
            return done

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(write, names)) == 304
        assert {n.generation for n in store.list_nodes()} == {39}
        assert len(read_history(store, "alpha")) == 312

    def test_a_writer_does_not_make_readers_wait(self, url: str) -> None:
        store = open_store(DatabaseSettings(url))
        agent = register(store)
        with store.engine.connect() as writer:
            writer.execute(sa.text("UPDATE services SET topic = 'other'"))
            assert store.load_versions("alpha", COMPUTE_BINARY).epoch == agent.epoch
            assert store.list_services()[0].topic == "compute"
            writer.rollback()

    def test_only_writers_take_the_lock_at_once(self, url: str) -> None:
        store = open_store(DatabaseSettings(url))
        agent = register(store)
        begun: list[str] = []

        @sa.event.listens_for(store.engine, "after_cursor_execute")
        def note(*arguments: Any) -> None:
            if arguments[2].startswith("BEGIN"):
                begun.append(arguments[2])

        store.load_nodes("alpha")
        store.now()
        store.report_state(agent, 1, AuditState())
        store.sync_warnings(agent, [])
        assert begun == ["BEGIN", "BEGIN", "BEGIN IMMEDIATE", "BEGIN IMMEDIATE"]

    def test_the_pragmas_are_set_on_each_connection(self, url: str) -> None:
        with open_store(DatabaseSettings(url)).engine.connect() as connection:
            found = {
                name: connection.execute(sa.text(f"PRAGMA {name}")).scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
        assert found == {
            "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000,
        }  # fmt: skip

    def test_a_lock_is_not_waited_for_for_ever(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "LOCK_WAIT_SECONDS", 1)
        store = open_store(DatabaseSettings(url))
        agent = register(store)
        with store.engine.connect() as writer:
            writer.execute(sa.text("UPDATE services SET topic = 'other'"))
            said = assert_unavailable(lambda: store.report_state(agent, 1, AuditState()))
            assert "locked" in said
            writer.rollback()
        store.report_state(agent, 1, AuditState())

    def test_a_stopped_process_that_holds_the_lock_is_named(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "LOCK_WAIT_SECONDS", 0)
        store = open_store(DatabaseSettings(url))
        agent = register(store)
        code = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
            "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", code, str(store.engine.url.database)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            holder.send_signal(signal.SIGSTOP)
            os.waitpid(holder.pid, os.WUNTRACED)
            try:
                said = assert_unavailable(lambda: store.report_state(agent, 1, AuditState()))
            finally:
                holder.kill()
        assert f"database is locked by process {holder.pid} (" in said
        assert said.endswith("), which is stopped")
        store.report_state(agent, 1, AuditState())

    def test_a_missing_directory_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "absent" / "nt.sqlite"
        said = assert_unavailable(open_store(DatabaseSettings(f"sqlite:///{path}")).now)
        assert str(path) in said
        assert f"directory {path.parent} does not exist" in said

    def test_what_is_no_directory_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        store = open_store(DatabaseSettings(f"sqlite:///{tmp_path / 'file' / 'nt.sqlite'}"))
        assert f"{tmp_path / 'file'} is not a directory" in assert_unavailable(store.now)

    def test_what_is_no_database_is_unavailable(self, tmp_path: Path) -> None:
        (tmp_path / "nt.sqlite").write_text("this is a text and not a database\n" * 100)
        store = open_store(DatabaseSettings(f"sqlite:///{tmp_path / 'nt.sqlite'}"))
        assert "not a database" in assert_unavailable(store.now)

    def test_a_read_only_file_is_unavailable_for_writing(self, url: str) -> None:
        agent = register(open_store(DatabaseSettings(url)))
        store = open_store(DatabaseSettings(url))  # without a connection that is open already

        @sa.event.listens_for(store.engine, "connect")
        def forbid(connection: Any, record: object) -> None:
            connection.execute("PRAGMA query_only = ON")

        assert "readonly" in assert_unavailable(lambda: store.report_state(agent, 1, AuditState()))

    def test_a_full_disk_is_unavailable(self, url: str) -> None:
        agent = register(open_store(DatabaseSettings(url)))
        store = open_store(DatabaseSettings(url))

        @sa.event.listens_for(store.engine, "connect")
        def fill(connection: Any, record: object) -> None:
            connection.execute("PRAGMA max_page_count = 1")

        huge = create(agent, "n1", make_values(labels={f"k{n}": "x" * 500 for n in range(500)}))
        assert "full" in assert_unavailable(lambda: store.apply_changes(agent, [huge], 60))
        assert store.list_nodes() == []


def fill(directory: Path) -> Path:
    """Use all free space of a file system; return the file that has it."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


def read_and_write(directory: Path, keeps_connection: bool = False) -> None:
    """Several read while the disk is full, and a write says what is full."""
    store = make_store(directory)
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1", make_values())], 60)
    if not keeps_connection:  # and with it the log and its index
        store.close()
    ballast = fill(directory)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: store.list_nodes(), range(40)))
    assert [[node.nodename for node in nodes] for nodes in found] == [["n1"]] * 40
    said = assert_unavailable(lambda: store.report_state(agent, 1, AuditState()))
    assert said.endswith(f"the file system of {directory} is full")
    ballast.unlink()
    store.report_state(agent, 2, AuditState())
    assert store.list_services()[0].report_count == 2


def go_on(directory: Path) -> None:
    """The same by connections that are open already."""
    read_and_write(directory, keeps_connection=True)


def read_log(directory: Path) -> None:
    """What a process that was killed left in its log is read while the disk is full."""
    store = make_store(directory)
    with store.engine.connect() as reader:  # keeps the log when the writer closes it
        reader.execute(sa.text("SELECT 1 FROM services"))
        register(store)
        for name in ("nt.sqlite", "nt.sqlite-wal"):
            shutil.copy(directory / name, directory / name.replace("nt", "left"))
    fill(directory)
    left = open_store(DatabaseSettings(f"sqlite:///{directory}/left.sqlite"))
    assert len(left.list_services()) == 1


def sort(directory: Path) -> None:
    """A large result is sorted while the directory of temporary files is full."""
    store = make_store(directory)
    fill(directory)
    large = sa.text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) "
        "SELECT hex(randomblob(200)) AS x FROM n ORDER BY x"
    )
    with store.engine.connect() as connection:
        assert len(connection.execute(large).all()) == 30000


def make_store(directory: Path) -> SqlStore:
    store = open_store(DatabaseSettings(f"sqlite:///{directory}/nt.sqlite"))
    revisions.sync(store.engine)
    return store


@pytest.mark.parametrize("scene", [read_and_write, go_on, read_log, sort])
def test_what_only_reads_goes_on_while_the_disk_of_sqlite_is_full(
    scene: Callable[[Path], None], tmp_path: Path
) -> None:
    """In a process that sees the disk, as SQLite follows links such as ``/proc/PID/root``."""
    directory = tmp_path / "disk"
    disk = SmallDisk(directory, 4)
    try:
        code = (
            f"from pathlib import Path; from {__name__} import {scene.__name__} as scene; "
            f"scene(Path({str(directory)!r}))"
        )
        done = subprocess.run(
            [*disk.prefix, sys.executable, "-c", code],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "SQLITE_TMPDIR": str(directory),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    finally:
        disk.remove()


@pytest.mark.parametrize("url", ["", "not a url", "oracle://u:s3cret-x@h/d"])
def test_a_url_that_cannot_be_used_is_told_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\[database\] connection") as caught:
        open_store(DatabaseSettings(url))
    assert "s3cret" not in str(caught.value)
