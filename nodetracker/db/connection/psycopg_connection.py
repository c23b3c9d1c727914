"""Connections to PostgreSQL that give up a silent server; `engine` imports this when needed.

libpq bounds connecting alone. The kernel of a server whose processes hang still
acknowledges every packet, so TCP's timeouts never end a statement there.
"""

import time
import traceback
from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server says nothing for too long.

    Attributes:
        read_timeout: seconds of silence; each byte that comes or goes starts them anew.
    """

    read_timeout = 0

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Run one exchange with the server; every statement, commit and rollback is one.

        Raises:
            psycopg.OperationalError: the server was silent; the connection is closed.
        """
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, exchange: PQGen[T]) -> PQGen[T]:
        """Pass an exchange on; psycopg asks it again every 0.1 s while nothing happens."""
        deadline = time.monotonic() + self.read_timeout
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if ready:
                    deadline = time.monotonic() + self.read_timeout
                elif time.monotonic() >= deadline:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.read_timeout} s")
                wanted = exchange.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


def connect(parameters: Mapping[str, Any]) -> BoundedConnection:
    """Connect with the parameters of libpq, and ``read_timeout`` in seconds."""
    known = dict(parameters)
    read_timeout = int(known.pop("read_timeout"))
    try:
        connection = BoundedConnection.connect(**known)
    except psycopg.Error as error:
        # The traceback holds the half-made connection's socket, and reference cycles of
        # SQLAlchemy hold the traceback until the garbage collector comes, which may be late.
        traceback.clear_frames(error.__traceback__)
        raise
    connection.read_timeout = read_timeout
    return connection
