"""Connect to PostgreSQL so that neither side waits for ever; `engine` imports this on demand.

libpq limits only the time for connecting. The kernel of a server whose processes
hang still acknowledges every packet, so TCP timeouts never end a statement.
"""

import random
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import AdaptContext, Buffer, Params, PQGen, PQGenConn, Query
from psycopg.adapt import Loader

from nodetracker.process.time_limit import find_limit

T = TypeVar("T")


class LimitedCursor(psycopg.Cursor[Any]):
    """A cursor that leaves the server's limit of idle transactions in force.

    PostgreSQL (seen with 15) stops this limit at each message and starts it again after a
    Sync. psycopg (seen with 3.3) ends an executemany with a Sync and a Flush, after which
    a client that freezes would keep its locks. An empty query ends with another Sync.
    """

    def executemany(
        self, query: Query, params_seq: Iterable[Params], *, returning: bool = False
    ) -> None:
        """Run a statement for each set of parameters."""
        super().executemany(query, params_seq, returning=returning)
        self.connection.execute("")


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server is silent for too long.

    Attributes:
        read_timeout: seconds without traffic; each byte in either direction restarts them.
    """

    read_timeout = 0

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> PQGenConn[Self]:
        """Give up connecting when a request's time is over: several hosts have a timeout each."""
        limit = find_limit()
        connecting = super()._connect_gen(*args, **kwargs)
        try:
            wanted = next(connecting)
            while True:
                ready = yield wanted
                if limit.is_over:
                    raise psycopg.OperationalError(f"no connection within {limit.seconds:g} s")
                wanted = connecting.send(ready)
        except StopIteration as end:
            connection: Self = end.value
            return connection

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Run one exchange with the server: a statement, commit or rollback.

        Raises:
            psycopg.OperationalError: the server was silent; the connection is closed.
        """
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, exchange: PQGen[T]) -> PQGen[T]:
        """Forward an exchange; psycopg resumes it every 0.1 s while nothing happens."""
        limit = find_limit()
        deadline = time.monotonic() + self.read_timeout
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if ready:
                    deadline = time.monotonic() + self.read_timeout
                elif limit.is_over or time.monotonic() >= deadline:
                    self.close()
                    seconds = min(self.read_timeout, limit.seconds)
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                wanted = exchange.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


class LenientTimestampLoader(Loader):
    """Loads a time that Python cannot have, such as ``infinity``, as its text.

    Otherwise psycopg fails the whole statement, and with it the reader of all other rows.
    """

    _loader_class = psycopg.adapters.get_loader(
        psycopg.adapters.types["timestamp"].oid, pq.Format.TEXT
    )

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        assert self._loader_class is not None
        self._loader = self._loader_class(oid, context)

    def load(self, data: Buffer) -> Any:
        """Return a datetime, or else the text."""
        try:
            return self._loader.load(data)
        except psycopg.DataError:
            return bytes(data).decode()


def connect(parameters: Mapping[str, Any]) -> BoundedConnection:
    """Connect with libpq's parameters and ``read_timeout`` in seconds."""
    known = dict(parameters)
    read_timeout = int(known.pop("read_timeout"))
    try:
        connection = BoundedConnection.connect(**known, cursor_factory=LimitedCursor)
    except psycopg.Error as error:
        # The traceback refers to the half-open connection's socket, and reference cycles of
        # SQLAlchemy keep the traceback until the next garbage collection.
        traceback.clear_frames(error.__traceback__)
        raise
    connection.read_timeout = read_timeout
    connection.adapters.register_loader("timestamp", LenientTimestampLoader)
    # psycopg (seen with 3.3) counts the names of its prepared statements from 0 on each
    # connection. A pooler that lends one server connection to several of them would let one
    # execute what another has prepared, instead of failing.
    connection._prepared._prepared_idx = random.getrandbits(60)
    return connection
