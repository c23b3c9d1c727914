"""A PostgreSQL server for tests; it runs as ``postgres`` when the tests run as root."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.functional.servers.process import (
    READY_SECONDS,
    ServerProcess,
    removed_on_failure,
    require,
    run_client,
    wait_for_end,
)
from tests.functional.servers.small_disk import SmallDisk

PASSWORD = "s3cret-of-postgresql"
KILL_CONNECTIONS = (
    "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'nodetracker'"
)


def find_programs() -> Path:
    """Return the directory of the newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    return found[-1] if found else Path("/usr/lib/postgresql/bin")


def join_urls(*urls: str, **options: str) -> str:
    """Return the URL of a database on several servers, which are tried in this order."""
    first, *_ = parsed = [sa.make_url(url) for url in urls]
    places = tuple(f"{url.host}:{url.port}" for url in parsed)
    joined = sa.URL.create(
        first.drivername, first.username, first.password, None, None, first.database,
        {"host": places, **options},
    )  # fmt: skip
    return joined.render_as_string(hide_password=False)


class PostgreSQL:
    """One server; databases in it are created as needed.

    Args:
        disk_mb: size of a disk of its own, which `process.disk` fills.
        buffers_mb: memory for pages of tables.
        source: a server of which this one is a replica.
    """

    name = "postgresql"

    def __init__(
        self,
        disk_mb: int | None = None,
        buffers_mb: int = 16,
        source: "PostgreSQL | None" = None,
    ) -> None:
        programs = find_programs()
        require(programs / "initdb", programs / "postgres", "setpriv")
        self._programs = programs
        self.process = ServerProcess("postgresql", user="postgres")
        self._data = self.process.directory / "data"
        self._buffers_mb = buffers_mb
        if disk_mb is not None:
            self.process.disk = SmallDisk(self._data, disk_mb, self.process.user)
        with removed_on_failure(self):
            if source is not None:
                self._run(
                    "pg_basebackup", "-D", self._data, "-d", source.replication, "-R", "-c", "fast"
                )
                self.start()
                return
            self._run(
                "initdb", "-D", self._data, "-U", "test", "-A", "trust", "-N",
                "--no-instructions", "--locale=C.UTF-8", "-E", "UTF8",
                # Text is ordered by letters, as on most servers, and not by bytes.
                "--locale-provider=icu", "--icu-locale=en-US",
            )  # fmt: skip
            self.start()
            self.execute(f"CREATE ROLE nodetracker LOGIN PASSWORD '{PASSWORD}'")

    @property
    def replication(self) -> str:
        """The connection by which a replica follows this server, and its name there."""
        return (
            f"host=127.0.0.1 port={self.process.port} user=test dbname=postgres "
            "application_name=replica"
        )

    @property
    def place(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.process.port}"

    def _run(self, program: str, *arguments: str | Path) -> None:
        self.process.run([self._programs / program, *arguments])

    def promote(self) -> None:
        """Let a replica accept writes; return when it does.

        Only from its next checkpoint on does `pg_rewind` find its new timeline.
        """
        self.execute("SELECT pg_promote()", "CHECKPOINT")

    def follow(self, source: "PostgreSQL") -> None:
        """Become a replica of a server that has replaced this one, which is stopped."""
        self._run(
            "pg_rewind", "-D", self._data, f"--source-server={source.replication}", "-R",
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start the server and wait for it."""
        self.process.launch(
            [
                self._programs / "postgres", "-D", self._data, "-k", self.process.directory,
                "-p", str(self.process.port), "-c", "listen_addresses=127.0.0.1",
                "-c", "fsync=off", "-c", f"shared_buffers={self._buffers_mb}MB",
                "-c", "dynamic_shared_memory_type=mmap",
            ],
            self._is_ready,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop the server without waiting for its clients."""
        self.process.stop(signal.SIGINT)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.execute(f"CREATE DATABASE {name} OWNER nodetracker")
        return self.url(name)

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql+psycopg://nodetracker:{PASSWORD}@{self.place}/{database}"

    def connect(self, database: str = "postgres") -> Any:
        """Return a connection of the administrator."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.process.port,
            user="test",
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements as the administrator; return the last one's rows."""
        with self.connect(database) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def dump(self, database: str) -> bytes:
        """Return the statements that make a database as it is now, read in one transaction."""
        options = "--clean", "--if-exists", "--no-owner", "--no-privileges"
        return self._run_client("pg_dump", *options, database)

    def load(self, database: str, dump: bytes) -> None:
        """Replace the tables of a database by those of a dump, again after a deadlock."""
        options = "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1"
        while True:
            try:
                self._run_client("psql", *options, f"--dbname={database}", given=dump)
                return
            except subprocess.CalledProcessError as error:
                if b"deadlock detected" not in error.stderr:
                    raise

    def _run_client(self, program: str, *arguments: str, given: bytes = b"") -> bytes:
        place = f"--host={self.process.directory}", f"--port={self.process.port}"
        command = [self._programs / program, *place, "--username=nodetracker", *arguments]
        return run_client(command, given)

    def set_read_only(self, is_read_only: bool) -> None:
        """Deny or allow writes in new transactions of ordinary users."""
        state = "on" if is_read_only else "off"
        # At once, or the old connections would be used among new ones.
        self.kill_connections(f"ALTER ROLE nodetracker SET default_transaction_read_only = {state}")

    def kill_connections(self, *before: str) -> int:
        """Kill all connections of ordinary users, wait for their end and return their number.

        Args:
            before: statements that are run first.
        """
        killed = {number for number, _ in self.execute(*before, KILL_CONNECTIONS)}
        wait_for_end(killed, self._list_connections)
        return len(killed)

    def _list_connections(self) -> set[int]:
        rows = self.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'nodetracker'")
        return {number for (number,) in rows}

    def count_waiting(self) -> int:
        """Return how many transactions wait for a lock."""
        (row,) = self.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int(row[0])

    def count_deadlocks(self) -> int:
        """Return the number of deadlocks; it is updated with a short delay."""
        (row,) = self.execute("SELECT sum(deadlocks) FROM pg_stat_database")
        return int(row[0])

    def remove(self) -> None:
        """Stop the server and delete its files."""
        self.process.stop(signal.SIGQUIT)
        self.process.remove()

    def _is_ready(self) -> bool:
        answer = subprocess.run(
            [
                self._programs / "pg_isready", "-q", "-h", self.process.directory,
                "-p", str(self.process.port),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=READY_SECONDS,
        )  # fmt: skip
        return answer.returncode == 0
