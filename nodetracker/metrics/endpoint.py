"""Serve ``/metrics`` and ``/health`` in background threads; failures never affect the agent."""

import errno
import gzip
import json
import logging
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import waitress
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from waitress import wasyncore
from waitress.channel import HTTPChannel

from nodetracker.model.health import Health, HealthState

_METHODS = ("GET", "HEAD")


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    headers: list[tuple[str, str]]


def make_application(
    registry: CollectorRegistry, evaluate: Callable[[], Health]
) -> WSGIApplication:
    """Build the application.

    ``/metrics`` is in the format that the client requests, compressed if the
    client accepts it. ``/health`` is JSON with status 200 when the agent works
    (``pass`` or ``warn``) and 503 when it does not (``fail``).
    """
    pages: dict[str, Callable[[WSGIEnvironment], _Answer]] = {
        "/metrics": lambda environ: _render_metrics(registry, environ),
        "/health": lambda environ: _render_health(evaluate()),
    }

    def answer(environ: WSGIEnvironment) -> _Answer:
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            return _refuse(HTTPStatus.NOT_FOUND, f"available pages are {' and '.join(pages)}")
        if environ["REQUEST_METHOD"] not in _METHODS:
            allowed = ", ".join(_METHODS)
            return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}", ("Allow", allowed))
        return page(environ)

    def application(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        status, body, headers = answer(environ)
        length = ("Content-Length", str(len(body)))
        start(f"{status.value} {status.phrase}", [*headers, length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return application


def _render_metrics(registry: CollectorRegistry, environ: WSGIEnvironment) -> _Answer:
    encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
    body = encode(registry)
    headers = [("Content-Type", content_type), ("Vary", "Accept, Accept-Encoding")]
    if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
        body = gzip.compress(body, compresslevel=1)
        headers.append(("Content-Encoding", "gzip"))
    return _Answer(HTTPStatus.OK, body, headers)


def _render_health(health: Health) -> _Answer:
    is_failing = health.state is HealthState.FAIL
    status = HTTPStatus.SERVICE_UNAVAILABLE if is_failing else HTTPStatus.OK
    body = json.dumps(health.as_json(), indent=2) + "\n"
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    return _Answer(status, body.encode(), headers)


def _refuse(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> _Answer:
    body = f"{status.phrase}: {text}\n".encode()
    return _Answer(status, body, [("Content-Type", "text/plain; charset=utf-8"), *headers])


LOG = logging.getLogger(__name__)
# waitress warns whenever two requests arrive at the same time.
logging.getLogger("waitress").setLevel(logging.ERROR)
THREADS = 2
"""Requests processed in parallel; idle connections do not use a thread."""

RETRY_SECONDS = 30.0
MAX_CONNECTIONS = 500
IDLE_SECONDS = 30.0
"""Without a request, or until a client has read its answer, after which a connection is closed."""

REQUEST_SECONDS = 10.0
"""From the first byte of a request to its end."""

CHECK_SECONDS = 1.0
"""Between checks of connections, while there are any."""

LOOP_SECONDS = 10.0
PAUSE_SECONDS = 0.5
_STOP_SECONDS = 5.0
_MAX_BODY_BYTES = 65536
_OWN_SOCKETS = 2  # the listener, and one that wakes the loop


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that knows since when it has waited for its client.

    waitress itself only knows when the last byte arrived or was sent.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = time.monotonic()

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn: to send a request, or to read an answer."""
        return not self.requests or self.total_outbufs_len > 0

    def received(self, data: bytes) -> bool:
        """Process what arrives; the rest of a request does not extend its time."""
        request = self.request
        result: bool = super().received(data)
        if request is None or self.request is not request:
            self.since = time.monotonic()
        return result

    def service(self) -> None:
        self.since = time.monotonic()
        super().service()
        self.since = time.monotonic()


class _Listener(socket.socket):
    """A listening socket that pauses when no file descriptor is left for a connection.

    It stays readable in that state, so the server's loop would spin without the pause.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(PAUSE_SECONDS)
            raise


def _bind(listen: str, port: int) -> socket.socket:
    """Bind an address; waitress itself would leak threads if the address is in use.

    Raises:
        OSError: the address is in use, does not exist or cannot be resolved.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        listen, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = _Listener(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _render_address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Endpoint:
    """Serves an application on one address, with its own threads.

    If the address is in use or does not exist, binding is retried until it
    succeeds; the first failure and the success are logged.

    Args:
        listen: address or name of this machine; a name's first address is used.
        max_connections: None = by the process's limit of file descriptors.
    """

    def __init__(
        self,
        application: WSGIApplication,
        listen: str,
        port: int,
        retry_seconds: float = RETRY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        max_connections: int | None = None,
    ) -> None:
        self._application = application
        self._listen = listen
        self._port = port
        self._retry_seconds = retry_seconds
        self._idle_seconds = idle_seconds
        self._request_seconds = request_seconds
        self._max_connections = max_connections or min(
            MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        )
        self._sockets: dict[int, wasyncore.dispatcher] = {}
        self._server: waitress.server.BaseWSGIServer | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        server = self._server
        if server is not None:
            server.pull_trigger()
        self._thread.join(_STOP_SECONDS)
        server = self._server
        if server is not None and not self._thread.is_alive():
            server.task_dispatcher.shutdown()
            wasyncore.close_all(self._sockets)

    def _run(self) -> None:
        listener = self._await_listener()
        if listener is None:
            return
        server = self._server = waitress.create_server(
            self._application,
            map=self._sockets,
            sockets=[listener],
            threads=THREADS,
            ident=None,
            connection_limit=self._max_connections + _OWN_SOCKETS,
            max_request_body_size=_MAX_BODY_BYTES,
            log_socket_errors=False,
        )
        LOG.info("Metrics and health: serving on http://%s", _render_address(listener))
        server.channel_class = _Channel
        channels: dict[int, _Channel] = server.active_channels
        while not self._stopping.is_set():
            seconds = CHECK_SECONDS if channels else LOOP_SECONDS
            wasyncore.loop(timeout=seconds, use_poll=True, map=self._sockets, count=1)
            self._end_late(channels)

    def _end_late(self, channels: Mapping[int, "_Channel"]) -> None:
        """Close connections that have waited too long for their clients, or are too many."""
        waiting = sorted(
            (channel for channel in channels.values() if channel.is_waiting),
            key=lambda channel: channel.since,
        )
        surplus = len(channels) - self._max_connections + 1
        now = time.monotonic()
        for number, channel in enumerate(waiting):
            is_started = channel.request is not None
            seconds = self._request_seconds if is_started else self._idle_seconds
            if number < surplus or now - channel.since > seconds:
                channel.handle_close()

    def _await_listener(self) -> socket.socket | None:
        """Bind the socket, retrying until it succeeds; return None if stopped before."""
        has_failed = False
        while not self._stopping.is_set():
            try:
                return _bind(self._listen, self._port)
            except OSError as error:
                reason = error.strerror or str(error)
            LOG.log(
                logging.DEBUG if has_failed else logging.ERROR,
                "Metrics and health: cannot serve on %s port %d: %s; retrying every %g s",
                self._listen,
                self._port,
                reason,
                self._retry_seconds,
            )
            has_failed = True
            self._stopping.wait(self._retry_seconds)
        return None
