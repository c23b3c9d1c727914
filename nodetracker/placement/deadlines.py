"""Limit how long the answer to a request may take, its headers included.

The timeout of a socket only limits the time without a byte: a server that
sends one within each timeout would be waited for without end.
"""

import http.client
import io
import socket
import time
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import PoolManager, ProxyManager

_TIMEOUTS = 2
"""The limit, in timeouts of the request."""


def limit_answers(session: Any) -> None:
    """Limit the answers to a session's requests; later ones raise a timeout of urllib3.

    Args:
        session: of requests, with its default adapters.
    """
    for adapter in session.adapters.values():
        _limit(adapter.poolmanager)
        adapter.proxy_manager = _ProxyManagers()


def _limit(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}


class _ProxyManagers(dict[str, PoolManager]):
    """Proxy -> its manager, which requests adds with the first request by that proxy.

    One of SOCKS has connections of its own, which are not limited.
    """

    def __setitem__(self, proxy: str, manager: PoolManager) -> None:
        if type(manager) is ProxyManager:
            _limit(manager)
        super().__setitem__(proxy, manager)


class _LimitedSocket(io.RawIOBase):
    """The bytes of one answer."""

    def __init__(self, raw: io.RawIOBase, timeout: float | None) -> None:
        self._raw = raw
        self._deadline = time.monotonic() + _TIMEOUTS * (timeout or float("inf"))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._deadline:
            raise TimeoutError("timed out")
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_LimitedSocket(self.fp.detach(), sock.gettimeout()))


class _Connection(HTTPConnection):
    response_class = _LimitedResponse


class _TLSConnection(HTTPSConnection):
    response_class = _LimitedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection
