"""A PostgreSQL primary with a streaming replica, which change places."""

import time

from tests.functional.servers.postgresql import PostgreSQL, join_urls
from tests.functional.servers.process import removed_on_failure

NAME = "nt_cluster"
_FOR_REWIND = ("wal_log_hints = on", "wal_keep_size = '256MB'")


class Cluster:
    """Two servers, one of which follows the other.

    Args:
        is_synchronous: what is acknowledged is on both servers.

    Attributes:
        promotion_seconds: how long the last promotion took PostgreSQL.
    """

    promotion_seconds = 0.0

    def __init__(self, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        self._servers: list[PostgreSQL] = []
        with removed_on_failure(self):
            self.primary = self._add(PostgreSQL())
            self.primary.execute(*(f"ALTER SYSTEM SET {setting}" for setting in _FOR_REWIND))
            self.primary.stop()
            self.primary.start()
            self.primary.create_database(NAME)
            self.replica = self._add(PostgreSQL(source=self.primary))
            wait_for_replica(self.primary, is_synchronous)
        self.url = self.join(self.primary, self.replica)

    def _add(self, server: PostgreSQL) -> PostgreSQL:
        self._servers.append(server)
        return server

    def join(self, *servers: PostgreSQL) -> str:
        """Return the URL by which programs find the primary of two servers."""
        return join_urls(
            *(server.url(NAME) for server in servers),
            target_session_attrs="read-write",
            connect_timeout="2",
        )

    def promote(self) -> None:
        """Let the replica replace the primary."""
        began = time.monotonic()
        self.replica.promote()
        self.promotion_seconds = time.monotonic() - began
        self.primary, self.replica = self.replica, self.primary
        wait_for_replica(self.primary, False)  # commits would wait for a replica that is not there

    def rejoin(self) -> None:
        """Let the former primary, which is stopped or killed, follow the one that has replaced it."""
        self.replica.follow(self.primary)
        wait_for_replica(self.primary, self._is_synchronous)

    def start_beside(self, former: PostgreSQL) -> None:
        """Start a server that was replaced as a second primary, whose commits wait for nobody."""
        former.start()
        wait_for_replica(former, False)

    def remove(self) -> None:
        for server in self._servers:
            server.remove()


def wait_for_replica(primary: PostgreSQL, waits: bool) -> None:
    """Let commits wait for the replica, or not."""
    name = "replica" if waits else ""
    primary.execute(
        f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", "SELECT pg_reload_conf()"
    )
