"""A PgBouncer in front of a PostgreSQL server of the tests."""

import sqlalchemy as sa

from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import ServerProcess, require


class PgBouncer:
    """A connection pooler.

    Args:
        pool_mode: what a server connection is lent for: session or transaction.
        pool_size: number of server connections.
    """

    def __init__(self, server: PostgreSQL, pool_mode: str, pool_size: int = 20) -> None:
        require("pgbouncer")
        self._process = ServerProcess("pgbouncer", user="postgres")
        configuration = self._process.directory / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.process.port} user=nodetracker\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._process.port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {pool_mode}\ndefault_pool_size = {pool_size}\n"
        )
        self._configuration = configuration
        self.start()

    def start(self) -> None:
        """Start it and wait for it."""
        self._process.launch(["pgbouncer", self._configuration], self._is_ready)

    def kill(self) -> None:
        """Kill it, with all connections through it."""
        self._process.kill()

    def url(self, connection: str) -> str:
        """Return the URL by which a database of the server is reached through the pooler."""
        url = sa.make_url(connection).set(port=self._process.port)
        return url.render_as_string(hide_password=False)

    def remove(self) -> None:
        """Stop the pooler and delete its files."""
        self._process.remove()

    def _is_ready(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(
                host="127.0.0.1",
                port=self._process.port,
                dbname="postgres",
                autocommit=True,
                connect_timeout=5,
            ) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True
