"""The databases of the bench: a server for each measurement, and what a call costs on it."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.statements import count_statements

BUFFERS_MB = 128
"""The default of MariaDB and PostgreSQL."""

MIB = 1024 * 1024

NAMES = ("mariadb", "postgresql", "sqlite")

Row = dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Database:
    """A database with its schema.

    Attributes:
        version: of the server, with its name.
        store: on it.
        server: None for SQLite.
        directory: for files of the measurement.
    """

    url: str
    version: str
    store: SqlStore
    server: MariaDB | PostgreSQL | None
    directory: Path

    def cpu_seconds(self) -> float:
        """Return the CPU time that the server has used."""
        return 0.0 if self.server is None else cpu_seconds(psutil.Process(self.server.process.pid))

    def count_served(self) -> int:
        """Return the number of statements that MariaDB has carried out for all clients."""
        return sum(self._read_status("Com_select", "Com_insert", "Com_update", "Com_delete"))

    def count_connections(self) -> int:
        """Return the number of MariaDB's connections."""
        return sum(self._read_status("Threads_connected"))

    def _read_status(self, *names: str) -> list[int]:
        with self.store.engine.connect() as connection:
            rows = connection.exec_driver_sql("SHOW GLOBAL STATUS")
            return [int(value) for name, value in rows if name in names]

    def measure(self, call: Callable[[], object], repeats: int = 20) -> Row:
        """Return statements, milliseconds and CPU time of a call, after two that warm up."""
        call()
        with count_statements(self.store) as seen:
            call()
        durations = []
        own, server = time.process_time(), self.cpu_seconds()
        for _ in range(repeats):
            started_at = time.perf_counter()
            call()
            durations.append((time.perf_counter() - started_at) * 1000)
        return {
            "statements": len(seen),
            "ms, median": statistics.median(durations),
            "ms, least": min(durations),
            "process, ms of CPU": (time.process_time() - own) * 1000 / repeats,
            "server, ms of CPU": (self.cpu_seconds() - server) * 1000 / repeats,
        }


@contextmanager
def open_database(name: str, directory: Path) -> Iterator[Database]:
    """Start a server with a database; SQLite's is a file in the directory."""
    server = {
        "mariadb": lambda: MariaDB(buffers_mb=BUFFERS_MB),
        "postgresql": lambda: PostgreSQL(buffers_mb=BUFFERS_MB),
        "sqlite": lambda: None,
    }[name]()
    try:
        url = f"sqlite:///{directory}/bench.sqlite"
        if server is not None:
            url = server.create_database("ntbench")
        store = open_store(DatabaseSettings(url))
        try:
            revisions.sync(store.engine)
            yield Database(url, _read_version(store), store, server, directory)
        finally:
            store.close()
    finally:
        if server is not None:
            server.remove()


def _read_version(store: SqlStore) -> str:
    backend = store.engine.dialect.name
    name, function = {
        "mysql": ("MariaDB", "version()"),
        "postgresql": ("PostgreSQL", "current_setting('server_version')"),
        "sqlite": ("SQLite", "sqlite_version()"),
    }[backend]
    with store.engine.connect() as connection:
        version = str(connection.exec_driver_sql(f"SELECT {function}").scalar())
    return f"{name} {version.split('-')[0].split()[0]}"


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process, and of those that it started."""
    times = process.cpu_times()
    own = times.user + times.system + times.children_user + times.children_system
    return float(own + sum(map(cpu_seconds, process.children())))


def rss_mib(process: psutil.Process) -> float:
    """Return the resident memory of a process in MiB."""
    return float(process.memory_info().rss / MIB)
