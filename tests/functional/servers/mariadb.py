"""A MariaDB server for tests."""

import getpass
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER

from tests.functional.servers.process import (
    READY_SECONDS,
    ServerProcess,
    removed_on_failure,
    require,
    run_client,
    wait_for_end,
)
from tests.functional.servers.small_disk import SmallDisk

PASSWORD = "s3cret-of-mariadb"


class MariaDB:
    """One server; databases in it are created as needed.

    Args:
        disk_mb: size of a disk of its own, which `process.disk` fills.
        buffers_mb: memory for pages of tables.
        options: further ones of the server.
        user: as whom it runs when the tests run as root.
    """

    name = "mysql"

    def __init__(
        self,
        disk_mb: int | None = None,
        buffers_mb: int = 16,
        options: Sequence[str] = (),
        user: str | None = None,
    ) -> None:
        require("mariadbd", "mariadb-install-db", "mariadb-admin")
        self.process = ServerProcess("mariadb", user)
        self._data = self.process.directory / "data"
        self._buffers_mb = buffers_mb
        self._options = options
        if disk_mb is not None:
            self.process.disk = SmallDisk(self._data, disk_mb)
        self._socket = self.process.directory / "my.sock"
        self._user = self.process.user or getpass.getuser()
        # A server deletes the temporary tables that it finds there at its start, others' as well.
        self._temporary = self.process.directory / "tmp"
        self._temporary.mkdir()
        if self.process.user is not None:
            shutil.chown(self._temporary, self._user)
        with removed_on_failure(self):
            self.process.run(
                [
                    "mariadb-install-db",
                    "--no-defaults",
                    f"--datadir={self._data}",
                    f"--user={self._user}",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--innodb-log-file-size=4M",
                    "--skip-name-resolve",
                    f"--tmpdir={self._temporary}",
                ]
            )
            self.start()
            self.execute(
                f"CREATE USER IF NOT EXISTS nodetracker@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
                "GRANT ALL ON `nt%`.* TO nodetracker@'127.0.0.1'",
            )

    def start(self) -> None:
        """Start the server and wait for it."""
        self.process.launch(
            [
                "mariadbd",
                "--no-defaults",
                f"--user={self._user}",
                f"--datadir={self._data}",
                f"--socket={self._socket}",
                f"--tmpdir={self._temporary}",
                f"--pid-file={self.process.directory / 'my.pid'}",
                f"--port={self.process.port}",
                "--bind-address=127.0.0.1",
                f"--innodb-buffer-pool-size={self._buffers_mb}M",
                "--innodb-log-file-size=4M",
                "--innodb-flush-log-at-trx-commit=2",
                "--skip-name-resolve",
                *self._options,
            ],
            self._is_ready,
        )

    def stop(self) -> None:
        """Stop the server normally."""
        self.process.stop()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        place = f"127.0.0.1:{self.process.port}/{database}"
        # Otherwise each connection reads all certificates of the machine, 40 ms, to offer TLS.
        return f"mysql+pymysql://nodetracker:{PASSWORD}@{place}?ssl_disabled=true"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; return the last one's rows."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def connect(self, database: str | None = None) -> Any:
        """Return a connection of the administrator."""
        return pymysql.connect(
            unix_socket=str(self._socket),
            user="root",
            database=database,
            autocommit=True,
            ssl_disabled=True,
        )

    def dump(self, database: str) -> bytes:
        """Return the statements that make a database as it is now, read in one transaction."""
        return self._run_client("mariadb-dump", "--single-transaction", database)

    def load(self, database: str, dump: bytes) -> None:
        """Replace the tables of a database by those of a dump, again where others wrote between."""
        while True:
            try:
                self._run_client("mariadb", database, given=dump)
                return
            except subprocess.CalledProcessError as error:
                if b"Duplicate entry" not in error.stderr:
                    raise

    def _run_client(self, program: str, *arguments: str, given: bytes = b"") -> bytes:
        require(program)
        command = [program, "--no-defaults", "--user=root", f"--socket={self._socket}", *arguments]
        return run_client(command, given)

    def set_read_only(self, is_read_only: bool) -> None:
        """Deny or allow writes of ordinary users."""
        self.execute(f"SET GLOBAL read_only = {'ON' if is_read_only else 'OFF'}")

    def kill_connections(self) -> int:
        """Kill all connections of ordinary users, wait for their end and return their number."""
        killed = set()
        for number in self._list_connections():
            try:
                self.execute(f"KILL CONNECTION {number}")
                killed.add(number)
            except pymysql.err.OperationalError as error:
                if error.args[0] != ER.NO_SUCH_THREAD:  # it was closed meanwhile
                    raise
        wait_for_end(killed, self._list_connections)
        return len(killed)

    def _list_connections(self) -> set[int]:
        rows = self.execute(
            "SELECT id FROM information_schema.processlist WHERE user = 'nodetracker'"
        )
        return {number for (number,) in rows}

    def count_waiting(self) -> int:
        """Return how many transactions wait for a lock."""
        # innodb_trx is not updated while it is polled.
        (row,) = self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return int(row[1])

    def count_deadlocks(self) -> int:
        """Return the number of transactions that the server rolled back as deadlocked since its start."""
        (row,) = self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
        return int(row[1])

    def remove(self) -> None:
        """Stop the server and delete its files."""
        self.process.remove()

    def _is_ready(self) -> bool:
        command: list[str | Path] = [
            "mariadb-admin", "--no-defaults", "--user=root", f"--socket={self._socket}", "ping",
        ]  # fmt: skip
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=READY_SECONDS,
        )
        return answer.returncode == 0
