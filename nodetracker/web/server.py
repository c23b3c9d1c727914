"""Serve a WSGI application over HTTP or HTTPS: uvicorn in a thread."""

import asyncio
import logging
import resource
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import Any
from wsgiref.types import WSGIApplication

import uvicorn

from nodetracker.model.errors import (
    ConfigError,
    ExhaustedError,
    exhaustion_explained,
    find_exhaustion,
)
from nodetracker.model.settings import ServerSettings
from nodetracker.web.admission import Application
from nodetracker.web.bodies import (
    BodyReader,
    ExhaustionGuard,
    OnExhausted,
    RenderRefusal,
    render_refusal,
)
from nodetracker.web.connections import (
    DEADLINES,
    Connection,
    Deadlines,
    Listener,
    find_max_connections,
)
from nodetracker.web.listeners import BACKLOG, bind, render_address
from nodetracker.web.wsgi import WsgiThreads

LOG = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 1.0

_EXHAUSTED_LOG_SECONDS = 60.0
_STOP_MARGIN_SECONDS = 5.0

_TLS_REASONS = {
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
    "NO_START_LINE": "certificate or key is missing, or not in PEM",
    "PEM_LIB": "certificate or key is missing, or not in PEM",
    "PEM lib": "certificate or key is missing, or not in PEM",
}
"""OpenSSL's reasons in words."""

# Of uvicorn 0.54: who cuts an answer off has logged why, and what a client sends is its own fault.
_UNWANTED = (
    "ASGI callable returned without completing response.",
    "Invalid HTTP request received.",
    "No supported WebSocket library detected.",
    "Unsupported upgrade request.",
)


class Server:
    """Serves one application on one address.

    Args:
        settings: with the address, TLS, threads and limits.
        gate: wraps the ASGI application; requests wait there before their bodies are read.
        max_connections: None = by the process's limit of file descriptors.
        lanes: name -> number of threads that only requests of this `LANE` have.
        render_refusal: answers requests whose bodies are not read.
        on_exhausted: called when the process is at a limit of its resources (503).

    Raises:
        ConfigError: the certificate or its key cannot be used.
    """

    def __init__(
        self,
        application: WSGIApplication,
        settings: ServerSettings,
        gate: Callable[[Application], Application] = lambda application: application,
        deadlines: Deadlines = DEADLINES,
        max_connections: int | None = None,
        lanes: Mapping[str, int] | None = None,
        render_refusal: RenderRefusal = render_refusal,
        on_exhausted: OnExhausted = lambda error: None,
    ) -> None:
        self._threads = WsgiThreads(application, settings.threads, lanes)
        limits = settings.max_body_bytes, deadlines.body, deadlines.send
        self._application = ExhaustionGuard(
            gate(BodyReader(self._threads, *limits, render_refusal)), render_refusal, on_exhausted
        )
        self._settings = settings
        self._deadlines = deadlines
        self._max_connections = max_connections
        self._tls = (
            load_tls(settings.option_group, settings.cert_file, settings.key_file)
            if settings.cert_file
            else None
        )
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Bind the address and serve in the background.

        Raises:
            RefusedError: the address is in use, or does not exist.
            ExhaustedError: the process can have no more threads.
        """
        settings, deadlines = self._settings, self._deadlines
        listener = bind(settings.listen, settings.port, Listener)
        listener.is_plain = self._tls is None
        listener.max_connections = self._max_connections or find_max_connections(
            resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        )
        protocol: Any = partial(Connection, listener, deadlines)
        config = uvicorn.Config(
            self._application,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # oslo.middleware reads them if it is configured to
            server_header=False,
            timeout_keep_alive=ceil(deadlines.idle),
            timeout_graceful_shutdown=settings.graceful_shutdown_timeout,
            backlog=BACKLOG,
        )
        config.load()
        config.ssl = self._tls
        logging.getLogger("uvicorn.error").addFilter(_is_wanted)
        self._server = uvicorn.Server(config)
        thread = threading.Thread(
            target=_run, args=(self._server, listener, deadlines), name="api", daemon=True
        )
        try:
            self._threads.start()
            with exhaustion_explained():
                thread.start()
        except ExhaustedError:
            listener.close()
            raise
        self._thread = thread
        scheme = "http" if self._tls is None else "https"
        LOG.info("Serving on %s://%s", scheme, render_address(*listener.getsockname()[:2]))

    @property
    def url(self) -> str:
        """The URL of the address that is configured."""
        settings = self._settings
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{render_address(settings.listen, settings.port)}"

    @property
    def is_alive(self) -> bool:
        """Whether it serves."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more connections; return whether all running requests ended in time."""
        if self._server is None or self._thread is None:
            return True
        started_at = time.monotonic()
        self._server.config.timeout_graceful_shutdown = max(1, int(timeout_seconds))
        self._server.should_exit = True
        self._thread.join(max(1.0, timeout_seconds) + _STOP_MARGIN_SECONDS)
        return time.monotonic() - started_at < max(1.0, timeout_seconds)

    def reload_certificate(self) -> None:
        """Use the files of certificate and key as they are now, for new connections.

        Raises:
            ConfigError: they cannot be used; the ones from before are kept.
        """
        settings = self._settings
        if self._tls is not None and settings.cert_file:
            files = settings.option_group, settings.cert_file, settings.key_file
            load_tls(*files)  # a context that fails keeps half of it
            _load_certificate(self._tls, *files)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether to log what uvicorn logs."""
    return not record.getMessage().startswith(_UNWANTED)


def _run(server: uvicorn.Server, listener: Listener, deadlines: Deadlines) -> None:
    with asyncio.Runner(loop_factory=partial(_Loop, deadlines.handshake)) as runner:
        runner.run(server.serve(sockets=[listener]))


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that waits less long for clients at both ends of a TLS connection.

    Otherwise a client that never reads again would delay the end by half a minute.
    """

    def __init__(self, handshake_seconds: float) -> None:
        super().__init__()
        self._handshake_seconds = handshake_seconds
        self._exhausted_logged_at = float("-inf")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error; that the process is at a limit of files or memory, once a minute.

        CPython 3.11 to 3.13 report that as often as connections may wait, each second.
        """
        error = context.get("exception")
        exhaustion = None if error is None else find_exhaustion(error)
        if exhaustion is None:
            super().default_exception_handler(context)
        elif self.time() - self._exhausted_logged_at >= _EXHAUSTED_LOG_SECONDS:
            self._exhausted_logged_at = self.time()
            if "socket" in context:
                LOG.error("No connection can be accepted: %s; retrying every second", exhaustion)
            else:
                LOG.error("A connection failed: %s", exhaustion)

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """Create a server as any event loop, but with limits of its own."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake_seconds
            options["ssl_shutdown_timeout"] = SHUTDOWN_SECONDS
        return await super().create_server(*arguments, **options)


def check_tls(group: str, cert_file: str | None, key_file: str | None) -> None:
    """Check the options of a server's certificate, and that it could be used now.

    Raises:
        ConfigError: as `load_tls`, or there is a key without a certificate.
    """
    if cert_file:
        load_tls(group, cert_file, key_file)
    elif key_file:
        raise ConfigError(f"[{group}] key_file: {key_file}, but cert_file is not set")


def load_tls(group: str, cert_file: str, key_file: str | None) -> ssl.SSLContext:
    """Return the context of TLS with certificate and key.

    Args:
        group: of the options, for messages.

    Raises:
        ConfigError: they cannot be used; the message names the options.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, group, cert_file, key_file)
    return context


def _load_certificate(
    context: ssl.SSLContext, group: str, cert_file: str, key_file: str | None
) -> None:
    """Load certificate and key.

    Raises:
        ConfigError: files cannot be read, or the key is not the certificate's.
    """
    unreadable = []
    for option, path in (("cert_file", cert_file), ("key_file", key_file)):
        try:
            if path:
                with open(path, "rb"):  # noqa: PTH123 - only whether it can be read
                    pass
        except OSError as error:
            unreadable.append(f"[{group}] {option}: {path}: {error.strerror}")
    if unreadable:
        raise ConfigError(*unreadable)
    try:
        context.load_cert_chain(cert_file, key_file or None, password=_refuse_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        where = f"{cert_file} and key_file {key_file}" if key_file else cert_file
        raise ConfigError(
            f"[{group}] cert_file: {where} cannot be used: {_TLS_REASONS.get(reason, reason)}"
        ) from error


def _refuse_password() -> str:
    """Fail instead of asking for a password on the terminal."""
    raise ValueError("the key is encrypted")
