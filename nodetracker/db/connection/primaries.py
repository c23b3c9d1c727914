"""Notice that a server was replaced, and refuse the one that another has replaced.

Two primaries: a PostgreSQL server that comes back writable beside the replica that was
promoted. What one of them acknowledges the other does not have, so only one may be used.
Each promotion raises the timeline of the log that a server writes, and all copies of a
server have its system identifier, so the lower timeline of two is the older truth.

What a process has seen is marked on the older server, in its table ``primaries``, by
which it is refused by processes that have not seen the newer one. MariaDB and MySQL have
nothing that orders two servers; there, that another one is used is logged.
"""

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import URL

from nodetracker.db.connection import failures
from nodetracker.db.connection.url import describe
from nodetracker.model.errors import StoreUnavailableError

LOG = logging.getLogger(__name__)

_DEFAULT_PORT = "5432"

# A server that follows another writes no log of its own. Also run by users without privileges.
_IDENTIFY = """
SELECT CAST(found.system_identifier AS text), host(inet_server_addr()), inet_server_port(),
    CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_insert_lsn()) END,
    primaries.timeline, primaries.address
FROM pg_control_system() AS found
LEFT JOIN primaries ON primaries.system_identifier = CAST(found.system_identifier AS text)
"""

# No standby, for which a commit may wait, follows a server that was replaced.
_COMMIT_ALONE = "SET SESSION synchronous_commit = local"
_MARK = """
INSERT INTO primaries (system_identifier, timeline, address) VALUES (%s, %s, %s)
ON CONFLICT (system_identifier) DO UPDATE
SET timeline = excluded.timeline, address = excluded.address
WHERE primaries.timeline < excluded.timeline
"""


@dataclass(frozen=True, slots=True)
class Server:
    """What a connection leads to.

    Attributes:
        identifier: what all copies of a server have in common.
        address: as the server itself knows it, behind any proxy.
        timeline: of the log that it writes; 0 = none, or nothing orders such servers.
    """

    identifier: str
    address: str
    timeline: int = 0

    def __str__(self) -> str:
        return f"{self.address} (timeline {self.timeline})" if self.timeline else self.address


class Primaries:
    """The servers of a database that this process has used, and which ones were replaced.

    Thread-safe.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._newest: dict[str, Server] = {}  # by identifier
        self._refused: set[str] = set()  # those that the log says are refused
        self._is_unknown = False  # the log says that servers cannot be identified

    def open(
        self, connect: Callable[[dict[str, Any]], Any], parameters: Mapping[str, Any]
    ) -> tuple[Any, Server | None]:
        """Connect to the first PostgreSQL server of a URL that was not replaced.

        Args:
            connect: opens a connection with parameters of libpq.

        Returns:
            The connection, and its server if that could be found out.

        Raises:
            StoreUnavailableError: none but replaced ones could be reached.
        """
        given: dict[str, Any] | None = dict(parameters)
        refusal: StoreUnavailableError | None = None
        while given is not None:
            try:
                connection = connect(given)
            except Exception:
                if refusal is None:
                    raise
                break
            try:
                server = self.identify(connection)
                newer = None if server is None else self.find_newer(server)
            except BaseException:
                connection.close()
                raise
            if server is None or newer is None:
                if refusal is None:
                    self._end_refusals()
                return connection, server
            refusal = self._refuse(connection, server, newer)
            given = _leave_out(given, connection.info.host, connection.info.port)
            connection.close()
        assert refusal is not None
        raise refusal

    def identify(self, connection: Any) -> Server | None:
        """Return the server of an idle connection to PostgreSQL, None if it cannot be found out.

        Raises:
            The driver's error: as the connection is lost, for example.
        """
        try:
            rows = _execute(connection, _IDENTIFY)
        except Exception as error:
            if connection.closed or not failures.is_unknown_to_server(error):
                raise
            self._note_unknown(error)
            return None
        if not rows:
            return None
        identifier, host, port, log_file, timeline, address = rows[0]
        found = Server(
            identifier,
            f"{host}:{port}" if host else "the local socket",
            int(log_file[:8], 16) if log_file else 0,
        )
        if timeline is not None:
            self.note(Server(identifier, address, timeline))
        self.note(found)
        return found

    def note(self, server: Server) -> None:
        """Note a server that exists; log it if it has replaced the one that was used."""
        with self._lock:
            newest = self._newest.get(server.identifier)
            others = [] if newest else [*self._newest.values()]
            if newest is None or newest.timeline < server.timeline:
                self._newest[server.identifier] = server
        if newest is not None and 0 < newest.timeline < server.timeline:
            LOG.info("%s: %s was promoted after %s", describe(self._url), server, newest)
        elif others:
            LOG.info(
                "%s: this is server %s, not %s as before; it has replaced that, or a backup was "
                "restored to it",
                describe(self._url),
                server.identifier,
                others[-1].identifier,
            )

    def find_newer(self, server: Server) -> Server | None:
        """Return the server that has replaced one that accepts writes."""
        newest = self._newest.get(server.identifier)
        is_older = newest is not None and 0 < server.timeline < newest.timeline
        return newest if is_older else None

    def _refuse(self, connection: Any, server: Server, newer: Server) -> StoreUnavailableError:
        """Log a server that was replaced, once, and mark it; return the error."""
        reason = f"{server} still accepts writes, but {newer} has replaced it"
        with self._lock:
            is_new = server.address not in self._refused
            self._refused.add(server.address)
        if is_new:
            LOG.warning(
                "%s: %s; it is not used. Stop it, or make it a replica of the other",
                describe(self._url),
                reason,
            )
        try:
            _execute(connection, _COMMIT_ALONE)
            _execute(connection, _MARK, (newer.identifier, newer.timeline, newer.address))
        except Exception as error:  # its disk is full, for example; the next one tries again
            LOG.debug("%s cannot be marked: %s", server, failures.explain(error, self._url))
        return StoreUnavailableError(f"{describe(self._url)}: {reason}")

    def _end_refusals(self) -> None:
        """Log that a connection was opened without meeting a server that was replaced."""
        with self._lock:
            met, self._refused = self._refused, set()
        for address in sorted(met):
            LOG.info("%s: %s is no longer in the way", describe(self._url), address)

    def _note_unknown(self, error: Exception) -> None:
        """Log once why a server that was replaced would not be noticed."""
        if failures.is_missing_table(error) or self._is_unknown:
            return  # the schema is to be created or upgraded
        self._is_unknown = True
        LOG.warning(
            "%s: a primary that another has replaced would not be noticed: %s",
            describe(self._url),
            failures.explain(error, self._url),
        )


@functools.cache
def find_primaries(url: URL) -> Primaries:
    """Return what this process knows of the servers of a database, however often it opens that."""
    return Primaries(url)


def _execute(connection: Any, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
    """Run a statement as a transaction of its own, in one round trip; return its rows."""
    was_autocommit = connection.autocommit
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []
    finally:
        if not connection.closed:
            connection.autocommit = was_autocommit


def _leave_out(parameters: dict[str, Any], host: str, port: int) -> dict[str, Any] | None:
    """Return libpq's parameters without one of their servers, None if no other is left.

    >>> _leave_out({"host": "db1,db2", "port": "5432,5433"}, "db1", 5432)
    {'host': 'db2', 'port': '5433'}
    >>> _leave_out({"host": "db1", "port": 5432}, "db1", 5432)
    """
    hosts = str(parameters.get("host") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places = list(zip(hosts, ports, strict=False))
    others = [(h, p) for h, p in places if (h, p or _DEFAULT_PORT) != (host, str(port))]
    if not others or len(others) == len(places):
        return None
    left_hosts, left_ports = zip(*others, strict=True)
    return {**parameters, "host": ",".join(left_hosts), "port": ",".join(left_ports)}
