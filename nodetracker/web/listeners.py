"""Bind an address, now or as soon as it is free."""

import logging
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address
from typing import TypeVar

from nodetracker.model.errors import RefusedError

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
BACKLOG = 512
_LOOPBACK_NAMES = ("localhost", "localhost.")

S = TypeVar("S", bound=socket.socket)
T = TypeVar("T")


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


def retry_start(
    name: str, start: Callable[[], T], stopping: threading.Event, retry_seconds: float
) -> T | None:
    """Start a server as soon as its address is free; only the first failure is logged.

    Args:
        name: what it serves, for the log.
        start: raises RefusedError while the address cannot be bound.

    Returns:
        What `start` returns, None if `stopping` was set before.
    """
    level = logging.ERROR
    while not stopping.is_set():
        try:
            return start()
        except RefusedError as error:
            LOG.log(level, "%s: %s; retrying every %g s", name, error, retry_seconds)
        level = logging.DEBUG
        stopping.wait(retry_seconds)
    return None


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
