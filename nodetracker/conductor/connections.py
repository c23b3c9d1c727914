"""Exchange requests with conductors over HTTP.

One that answers is kept, with its idle connections; the others are tried in order.
"""

import contextlib
import gzip
import http.client
import json
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nodetracker.conductor.interface import COMPRESSED_FROM_BYTES
from nodetracker.model.errors import (
    AuthenticationError,
    ConfigError,
    NodetrackerError,
    RpcUnavailableError,
)
from nodetracker.model.serializer import decode_error
from nodetracker.model.text import omit_tls_codes
from nodetracker.web.listeners import is_loopback, render_address

DEFAULT_PORT = 8775
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ConductorUrl:
    """Where a conductor listens."""

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        scheme = "https" if self.is_tls else "http"
        return f"{scheme}://{render_address(self.host, self.port)}"


def parse_url(text: str, allows_http: bool = False) -> ConductorUrl:
    """Parse the URL of a conductor.

    Args:
        allows_http: accept HTTP to other machines, which shows credentials to the network.

    Raises:
        ConfigError: it is not such a URL.
    """
    expected = f"[conductor] endpoint: {text!r}: expected a URL such as https://control:8775"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(expected) from None
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise ConfigError(expected)
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(expected)
    is_tls = parts.scheme == "https"
    if not is_tls and not allows_http and not is_loopback(host):
        raise ConfigError(
            f"[conductor] endpoint: {text!r}: HTTP shows this host's credential to the network; "
            "use https, or set [conductor] allow_http = true"
        )
    return ConductorUrl(host, port or DEFAULT_PORT, is_tls)


class ConductorAnswer(NamedTuple):
    """The answer of a conductor.

    Attributes:
        value: of the call, None if it failed.
        error: that the conductor raised.
        is_due: the caller's credential is to be renewed.
        now: the database's time, None if the conductor does not know it.
    """

    value: Any
    error: NodetrackerError | None
    is_due: bool
    now: datetime | None


class ConductorConnections:
    """The connections of one process; any thread may use them.

    Args:
        host: of the process, by whose name the first conductor is chosen.
        tls: of HTTPS connections.
    """

    def __init__(
        self,
        urls: Sequence[ConductorUrl],
        host: str,
        tls: ssl.SSLContext | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._urls = urls
        self._tls = tls
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._current = sum(host.encode()) % len(urls)
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []

    def find_problems(self, timeout_seconds: float) -> dict[str, str | None]:
        """Ask every conductor something without a credential.

        Args:
            timeout_seconds: for each of them.

        Returns:
            URL -> why it does not answer as a conductor does, None if it does.
        """
        return {
            str(url): self._find_problem(index, self._monotonic() + timeout_seconds)
            for index, url in enumerate(self._urls)
        }

    def _find_problem(self, index: int, deadline: float) -> str | None:
        connection = self._open(self._urls[index], deadline)
        try:
            connection.connect()
            answer = self._send(index, connection, "/store/now", b"{}", {}, deadline)
        except OSError as error:
            return _explain(error)
        except RpcUnavailableError as error:
            return str(error)
        is_fine = answer.error is None or isinstance(answer.error, AuthenticationError)
        return None if is_fine else str(answer.error)  # a stranger gets that error

    def exchange(
        self, path: str, body: Mapping[str, Any], secret: str | None, deadline: float
    ) -> ConductorAnswer:
        """Send a request to a conductor that can be reached, and return its answer.

        Args:
            secret: the credential, None = without.
            deadline: monotonic time.

        Raises:
            RpcUnavailableError: there was none, or not a conductor's.
        """
        data = json.dumps(body, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        if len(data) >= COMPRESSED_FROM_BYTES:
            data = gzip.compress(data, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        index, connection = self._connect(deadline)
        return self._send(index, connection, path, data, headers, deadline)

    def _send(
        self,
        index: int,
        connection: http.client.HTTPConnection,
        path: str,
        data: bytes,
        headers: Mapping[str, str],
        deadline: float,
    ) -> ConductorAnswer:
        try:
            self._limit(connection, deadline)
            # One that refuses a call before its body has arrived may have closed the connection.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", path, data, dict(headers))
            response = connection.getresponse()
            self._limit(connection, deadline)
            received = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._leave(index)
            text = f"{self._urls[index]}: {_explain(error)}"
            raise RpcUnavailableError(f"no answer from a conductor: {text}") from None
        if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            self._leave(index)  # it is ending, or has no database
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((index, connection))
        return _read_answer(response, received, self._urls[index])

    def _connect(self, deadline: float) -> tuple[int, http.client.HTTPConnection]:
        """Return a connection to the current conductor, or to the next one that can be reached."""
        problems = []
        for _ in self._urls:
            index = self._current
            connection = self._take_idle(index)
            if connection is not None:
                return index, connection
            connection = self._open(self._urls[index], deadline)
            try:
                connection.connect()
            except OSError as error:
                problems.append(f"{self._urls[index]}: {_explain(error)}")
                self._leave(index)
                continue
            return index, connection
        raise RpcUnavailableError(f"no conductor can be reached: {'; '.join(problems)}")

    def _take_idle(self, index: int) -> http.client.HTTPConnection | None:
        """Return an open connection to a conductor; close those to others and ended ones."""
        with self._lock:
            while self._idle:
                of, connection = self._idle.pop()
                if of == index and not _has_ended(connection):
                    return connection
                connection.close()
        return None

    def _open(self, url: ConductorUrl, deadline: float) -> http.client.HTTPConnection:
        seconds = max(0.1, min(CONNECT_SECONDS, deadline - self._monotonic()))
        if url.is_tls:
            return http.client.HTTPSConnection(
                url.host, url.port, timeout=seconds, context=self._tls
            )
        return http.client.HTTPConnection(url.host, url.port, timeout=seconds)

    def _limit(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        sock: socket.socket | None = connection.sock
        if sock is not None:
            sock.settimeout(max(0.1, deadline - self._monotonic()))

    def _leave(self, index: int) -> None:
        """Go on to the next conductor, unless another call has done so."""
        with self._lock:
            if self._current == index:
                self._current = (index + 1) % len(self._urls)


def _read_answer(
    response: http.client.HTTPResponse, data: bytes, url: ConductorUrl
) -> ConductorAnswer:
    """Read an answer.

    Raises:
        RpcUnavailableError: it is not a conductor's.
    """
    try:
        if response.getheader("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        answer = json.loads(data)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not answer.keys() & {"value", "error"}:
        raise RpcUnavailableError(
            f"{url} answered {response.status} {response.reason}, which is not a conductor's answer"
        )
    return ConductorAnswer(
        answer.get("value"),
        decode_error(answer["error"]) if "error" in answer else None,
        bool(answer.get("renew")),
        datetime.fromisoformat(answer["now"]) if answer.get("now") else None,
    )


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Return whether the other side has closed an idle connection."""
    if connection.sock is None:
        return True
    readable, _, _ = select.select([connection.sock], [], [], 0)
    return bool(readable)


def _explain(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "it closed the TLS connection"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {omit_tls_codes(str(error.strerror or error))}"
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
