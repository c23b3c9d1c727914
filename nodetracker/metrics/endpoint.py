"""Serve a WSGI application in background threads; failures here never affect the agent."""

import errno
import logging
import socket
import threading
import time
from typing import Any
from wsgiref.types import WSGIApplication

import waitress
from waitress import wasyncore

LOG = logging.getLogger(__name__)

# waitress warns whenever two requests arrive at the same time.
logging.getLogger("waitress").setLevel(logging.ERROR)

THREADS = 2
"""Requests processed in parallel; idle connections do not use a thread."""

RETRY_SECONDS = 30.0

MAX_CONNECTIONS = 500

IDLE_TIMEOUT = 30
"""Seconds without traffic after which a connection is closed."""

LOOP_SECONDS = 10
"""Seconds between checks for idle connections."""

PAUSE_SECONDS = 0.5

_STOP_SECONDS = 5.0
_MAX_BODY_BYTES = 65536


class Endpoint:
    """Serves an application on one address, with its own threads.

    If the address is in use or does not exist, binding is retried until it
    succeeds; the first failure and the success are logged.

    Args:
        listen: address or name of this machine; a name's first address is used.
    """

    def __init__(
        self,
        application: WSGIApplication,
        listen: str,
        port: int,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._application = application
        self._listen = listen
        self._port = port
        self._retry_seconds = retry_seconds
        self._sockets: dict[int, wasyncore.dispatcher] = {}
        self._server: waitress.server.BaseWSGIServer | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Start in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Close the address and all connections."""
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
        self._server = waitress.create_server(
            self._application,
            map=self._sockets,
            sockets=[listener],
            threads=THREADS,
            ident=None,
            connection_limit=MAX_CONNECTIONS,
            channel_timeout=IDLE_TIMEOUT,
            cleanup_interval=LOOP_SECONDS,
            max_request_body_size=_MAX_BODY_BYTES,
            log_socket_errors=False,
        )
        LOG.info("Metrics and health: serving on http://%s", _render_address(listener))
        while not self._stopping.is_set():
            wasyncore.loop(timeout=LOOP_SECONDS, use_poll=True, map=self._sockets, count=1)

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


class _Listener(socket.socket):
    """A listening socket that pauses when no file descriptor is left for a connection.

    It stays readable in that state, so the server's loop would spin without the pause.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OSError: as for any socket.
        """
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
