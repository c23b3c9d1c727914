"""Serve a WSGI application by waitress, which takes less memory than uvicorn.

For agents, which answer few requests: metrics and health.
"""

import errno
import logging
import resource
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any
from wsgiref.types import WSGIApplication

import waitress
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher

from nodetracker.model.errors import ExhaustedError, exhaustion_explained
from nodetracker.web.listeners import bind, render_address

LOG = logging.getLogger(__name__)
# waitress warns whenever two requests arrive at the same time.
logging.getLogger("waitress").setLevel(logging.ERROR)

THREADS = 2
"""Requests processed in parallel; idle connections do not use a thread."""

MAX_CONNECTIONS = 500
IDLE_SECONDS = 30.0
"""Without a request, or until a client has read its answer, after which a connection is closed."""

REQUEST_SECONDS = 10.0
"""From the first byte of a request to its end."""

CHECK_SECONDS = 1.0
"""Between checks of connections, while there are any."""

LOOP_SECONDS = 10.0
PAUSE_SECONDS = 0.5
_MAX_BODY_BYTES = 65536
_OWN_SOCKETS = 2  # the listener, and one that wakes the loop


class WaitressServer:
    """Serves an application on one address, with its own threads.

    Args:
        name: what it serves, for the log.
        listen: address or name of this machine; a name's first address is used.
        max_connections: None = by the process's limit of file descriptors.
    """

    def __init__(
        self,
        name: str,
        application: WSGIApplication,
        listen: str,
        port: int,
        idle_seconds: float = IDLE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        max_connections: int | None = None,
    ) -> None:
        self._name = name
        self._application = application
        self._listen = listen
        self._port = port
        self._idle_seconds = idle_seconds
        self._request_seconds = request_seconds
        self._max_connections = max_connections or min(
            MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        )
        self._sockets: dict[int, wasyncore.dispatcher] = {}
        self._server: Any = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Bind the address and serve in the background.

        Raises:
            RefusedError: the address is in use, or does not exist.
            ExhaustedError: the process can have no more threads.
        """
        # Bound here: waitress would leak threads if the address is in use.
        listener = bind(self._listen, self._port, _Listener)
        dispatcher = ThreadedTaskDispatcher()
        self._server = waitress.create_server(
            self._application,
            map=self._sockets,
            _dispatcher=dispatcher,
            sockets=[listener],
            ident=None,
            connection_limit=self._max_connections + _OWN_SOCKETS,
            max_request_body_size=_MAX_BODY_BYTES,
            log_socket_errors=False,
        )
        address = render_address(*listener.getsockname()[:2])
        self._server.channel_class = _Channel
        try:
            with exhaustion_explained():
                dispatcher.set_thread_count(THREADS)
                self._thread.start()
        except ExhaustedError:
            self._server = None
            dispatcher.set_thread_count(0)  # ends those that were started
            wasyncore.close_all(self._sockets)
            raise
        LOG.info("%s: serving on http://%s", self._name, address)

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more requests; return whether the threads ended in time."""
        server = self._server
        if server is None:
            return True
        self._stopping.set()
        server.pull_trigger()
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        server.task_dispatcher.shutdown()
        wasyncore.close_all(self._sockets)
        return True

    def _run(self) -> None:
        channels: dict[int, _Channel] = self._server.active_channels
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
