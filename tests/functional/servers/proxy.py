"""A TCP proxy on the loopback interface that can freeze, or cut a connection within an answer."""

import contextlib
import socket
import threading

_CHUNK_BYTES = 65_536


class Proxy:
    """Forwards connections to a port of this machine until it is frozen.

    A frozen proxy drops what clients send and keeps what the server sends, and neither
    side notices: so do a client that is stopped and a network that is cut.

    Args:
        port: the server's.

    Attributes:
        frozen: set once nothing is forwarded any more.
        cut: set once a connection was cut within an answer.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._freeze_at: bytes | None = None
        self._is_forwarded = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.frozen = threading.Event()
        self._cut_at: bytes | None = None
        self._cutting: socket.socket | None = None
        self.cut = threading.Event()
        self._thawed = threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Forward nothing more on the connections that are open."""
        self.frozen.set()

    def freeze_at(self, data: bytes, is_forwarded: bool = False) -> None:
        """Freeze when a client sends these bytes; only their answer is kept if they are forwarded."""
        self._freeze_at, self._is_forwarded = data, is_forwarded

    def cut_at(self, data: bytes) -> None:
        """Cut the connection in the middle of the answer to the next request with these bytes."""
        self.cut.clear()
        self._cut_at = data

    def thaw(self) -> None:
        """Deliver what the server has sent, and end the connections that were frozen.

        New connections are forwarded.
        """
        self._freeze_at = None
        self._thawed.set()

    def close(self) -> None:
        """End all connections."""
        self.thaw()
        # A listener that is only closed still accepts the connection that it waits for.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:  # it is not served at the moment
                client.close()
                continue
            self._sockets += [client, server]
            for pump in (self._forward_requests, self._forward_answers):
                threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(client):
            if self._cut_at is not None and self._cut_at in data:
                self._cut_at, self._cutting = None, server
            if self._freeze_at is not None and self._freeze_at in data:
                self.frozen.set()
                if self._is_forwarded:
                    _send(server, data)
            if self.frozen.is_set() and not self._thawed.is_set():
                self._thawed.wait()
                break
            _send(server, data)
        _end(server)

    def _forward_answers(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(server):
            if self.frozen.is_set():
                self._thawed.wait()
            if server is self._cutting:
                _send(client, data[: len(data) // 2])
                self._cutting = None
                self.cut.set()
                _end(server)
                break
            _send(client, data)
        if self.frozen.is_set():
            self._thawed.wait()
        _end(client)


def _receive(end: socket.socket) -> bytes:
    try:
        return end.recv(_CHUNK_BYTES)
    except OSError:
        return b""


def _send(end: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        end.sendall(data)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
