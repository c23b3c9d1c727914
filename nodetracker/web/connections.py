"""Connections of a server: how many there are, and how long each waits for its client.

A connection is ended when its client takes too long for a handshake, for the header of a
request, or to read an answer. When there are too many, the one that has waited longest for
its client makes room for the next, so that slow clients keep nobody out.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

LOG = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
MAX_UNREAD_BYTES = 64 * 1024 * 1024

_ENDING = 8
"""Connections more than the most while as many are being closed."""

_LOG_SECONDS = 60.0
_LEAST_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a client may take.

    Attributes:
        handshake: for that of TLS.
        idle: without a request.
        header: from the first byte of a request to the end of its header.
        body: from there to the end of its body.
        send: to read each MiB of an answer, or its rest.
    """

    handshake: float = 10
    idle: float = 30
    header: float = 10
    body: float = 10
    send: float = 60


DEADLINES = Deadlines()


def find_max_connections(max_descriptors: int) -> int:
    """Return how many connections a process may have.

    The other half of its file descriptors is for its database, broker and files.

    >>> find_max_connections(96), find_max_connections(4096)
    (48, 1000)
    """
    return min(MAX_CONNECTIONS, max_descriptors // 2)


class Listener(socket.socket):
    """A listening socket with at most a number of connections."""

    max_connections = MAX_CONNECTIONS
    max_unread_bytes = MAX_UNREAD_BYTES

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.is_plain = True
        self._count = 0
        self._logged_at = float("-inf")
        # By descriptor, longest without a request first; without those that are being ended.
        self._kept: OrderedDict[int, Connection | _Accepted] = OrderedDict()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and end another one if there are too many.

        Raises:
            BlockingIOError: no client waits, or connections have to be closed first.
            ConnectionAbortedError: every connection is in use; the client was refused.
            OSError: as for any socket.
        """
        if self._count > self.max_connections + _ENDING:
            raise BlockingIOError
        found, address = super().accept()
        if self._count >= self.max_connections:
            self._log_full()
            if not self._end_one():
                self._refuse(found)
                raise ConnectionAbortedError
        accepted = _Accepted(self, found)
        self._kept[accepted.fileno()] = accepted
        self._count += 1
        return accepted, address

    def attach(self, descriptor: int, connection: "Connection") -> None:
        """Note that the protocol of a connection takes over; it keeps its place."""
        if descriptor in self._kept:
            self._kept[descriptor] = connection

    def renew(self, descriptor: int) -> None:
        """Note that a request of a connection was answered."""
        if descriptor in self._kept:
            self._kept.move_to_end(descriptor)

    def forget(self, descriptor: int) -> None:
        """Note that a connection is closed."""
        self._kept.pop(descriptor, None)
        self._count -= 1

    def limit_bytes(self) -> None:
        """End the connections with most bytes until all together have few enough."""
        sizes = {
            descriptor: connection.buffered_bytes
            for descriptor, connection in self._kept.items()
            if isinstance(connection, Connection)
        }
        total = sum(sizes.values())
        while total > self.max_unread_bytes:
            largest = max(sizes, key=sizes.__getitem__)
            total -= sizes.pop(largest)
            self._kept.pop(largest).end()

    def _end_one(self) -> bool:
        """End the connection that has waited longest for its client; return whether one has."""
        for descriptor, connection in self._kept.items():
            if connection.is_waiting:
                del self._kept[descriptor]
                connection.end()
                return True
        return False

    def _refuse(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.setblocking(False)
            if self.is_plain:
                client.send(_UNAVAILABLE)
            client.shutdown(socket.SHUT_WR)
            client.recv(65536)  # what is not read resets the connection, and loses the answer

    def _log_full(self) -> None:
        if time.monotonic() - self._logged_at >= _LOG_SECONDS:
            self._logged_at = time.monotonic()
            LOG.warning(
                "%d connections are open, which is the most; closing those that have waited "
                "longest for their clients",
                self._count,
            )


class _Accepted(socket.socket):
    """A connection's socket, which reports that it is closed."""

    is_waiting = True

    def __init__(self, listener: Listener, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._listener: Listener | None = listener

    def close(self) -> None:
        if self._listener is not None:
            self._listener.forget(self.fileno())
            self._listener = None
        super().close()

    def end(self) -> None:
        """End it before it has a protocol, as in a handshake; the event loop closes it."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class _Wait(Enum):
    """What a connection waits for."""

    REQUEST = "its first byte"
    HEADER = "the rest of its header"
    READER = "the client to read"
    CLOSE = "the client to read the rest"


class Connection(H11Protocol):
    """uvicorn's protocol with deadlines for the client."""

    def __init__(self, listener: Listener, deadlines: Deadlines, **options: Any) -> None:
        super().__init__(**options)
        self._listener = listener
        self._deadlines = deadlines
        self._descriptor = -1
        self._wait: _Wait | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread_bytes = 0  # when the timer was started

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn."""
        return self._wait is not None or (self.cycle is not None and self.cycle.more_body)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were received and not used, or sent and not read."""
        body = 0 if self.cycle is None else len(self.cycle.body)
        unread: int = self.transport.get_write_buffer_size()
        return unread + body + len(self.conn.trailing_data[0])

    def end(self) -> None:
        """Close the connection at once, to make room for others."""
        is_body_missing = self._wait is None and not self.cycle.response_started
        if self._wait is _Wait.HEADER or is_body_missing:
            self.transport.write(_UNAVAILABLE)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._listener.attach(self._descriptor, self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        is_open = cycle is not None and not cycle.response_complete
        if is_open and (cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False  # the request before is whole: it is answered, and the last
            return
        self.transport.write(_INVALID)  # uvicorn 0.54 fails to answer a HEAD
        self.transport.close()
        if is_open:  # a request whose body is broken gets no further answer
            cycle.disconnected = True
            cycle.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def on_response_complete(self) -> None:
        self._listener.renew(self._descriptor)
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Start a deadline if what it waits for has changed."""
        if self.flow.write_paused or self.flow.read_paused:
            self._listener.limit_bytes()
        wait = self._find_wait()
        if wait is self._wait:
            return
        self._wait = wait
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait is not None:
            self._start(wait)

    def _start(self, wait: _Wait) -> None:
        self._unread_bytes = self.buffered_bytes
        self._timer = self.loop.call_later(self._find_seconds(wait), self._expire)

    def _find_wait(self) -> _Wait | None:
        """Return what it waits for; None while a request is read or carried out."""
        if self.transport.is_closing():
            return _Wait.CLOSE
        if self.flow.write_paused:
            return _Wait.READER
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        return _Wait.HEADER if self.conn.trailing_data[0] else _Wait.REQUEST

    def _find_seconds(self, wait: _Wait) -> float:
        if wait is _Wait.REQUEST:
            return self._deadlines.idle
        if wait is _Wait.HEADER:
            return self._deadlines.header
        return self._deadlines.send

    def _expire(self) -> None:
        wait = self._wait
        if wait in (_Wait.READER, _Wait.CLOSE):
            if self._unread_bytes - self.buffered_bytes >= _LEAST_READ_BYTES:
                self._start(wait)
            else:
                self.transport.abort()
            return
        if wait is _Wait.HEADER:
            self.transport.write(_TIMEOUT)
        self.timeout_keep_alive_handler()
        self._watch()


def _render_refusal(status: HTTPStatus, detail: str) -> bytes:
    """Return an answer without the application, after which the connection is closed."""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(detail)}\r\n"
        f"Connection: close\r\n\r\n{detail}"
    ).encode()


_INVALID = _render_refusal(HTTPStatus.BAD_REQUEST, "The request is not valid HTTP.")
_TIMEOUT = _render_refusal(HTTPStatus.REQUEST_TIMEOUT, "The header did not arrive in time.")
_UNAVAILABLE = _render_refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections.")
