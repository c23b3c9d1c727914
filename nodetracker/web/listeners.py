"""Bind an address, now or as soon as it is free."""

import logging
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address
from typing import Protocol, TypeVar

from nodetracker.model.errors import ExhaustedError, RefusedError, exhaustion_explained

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
BACKLOG = 512
_STOP_SECONDS = 5.0
_LOOPBACK_NAMES = ("localhost", "localhost.")

S = TypeVar("S", bound=socket.socket)


def bind(listen: str, port: int, make_socket: Callable[[int, int, int], S]) -> S:
    """Return a socket that listens on an address; of a name, on its first one.

    Args:
        make_socket: called with family, type and protocol.

    Raises:
        RefusedError: it is in use, or does not exist.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = make_socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedError(f"cannot serve on {listen} port {port}: {reason}") from error
    return listener


class HttpServer(Protocol):
    """Serves in threads of its own."""

    def start(self) -> None:
        """Bind the address and serve.

        Raises:
            RefusedError: it cannot be bound.
            ExhaustedError: its threads cannot be started.
        """

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more requests; return whether all running ones ended in time."""


class RetryingServer:
    """Starts a server in the background, as soon as its address is free.

    Failures never affect the process; the first one is logged.

    Args:
        name: what it serves, for the log.
    """

    def __init__(self, name: str, server: HttpServer, retry_seconds: float = RETRY_SECONDS) -> None:
        self._name = name
        self._server = server
        self._retry_seconds = retry_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._start, name="server-start", daemon=True)

    def start(self) -> None:
        """Start in the background.

        Raises:
            ExhaustedError: the process can have no more threads.
        """
        with exhaustion_explained():
            self._thread.start()

    def stop(self) -> None:
        """Accept no more requests and give running ones a few seconds."""
        self._stopping.set()
        self._thread.join()
        self._server.stop(_STOP_SECONDS)

    def _start(self) -> None:
        level = logging.ERROR
        while not self._stopping.is_set():
            try:
                self._server.start()
                return
            except (RefusedError, ExhaustedError) as error:
                problem = str(error)
            LOG.log(level, "%s: %s; retrying every %g s", self._name, problem, self._retry_seconds)
            level = logging.DEBUG
            self._stopping.wait(self._retry_seconds)


def render_address(host: str, port: int) -> str:
    """Return host and port as in a URL.

    >>> render_address("::1", 80), render_address("node-1", 80)
    ('[::1]:80', 'node-1:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a name or address, without a port, is that of the loopback interface.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "[::1]", "::")]
    [True, True, True, True, False]
    >>> is_loopback("127.example.org")
    False
    """
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        address = ip_address(host[1:-1] if host[:1] + host[-1:] == "[]" else host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
