"""Receive the wake-ups of an agent over the broker, in threads of the library.

The start waits for the broker for as long as that takes, so it is done in a
thread; the caller continues immediately, with or without a broker.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from nodetracker.model.errors import ConfigError, RefusedError
from nodetracker.model.serializer import encode_error
from nodetracker.process.workers import run_within, start_thread
from nodetracker.rpc.transport import Transport
from nodetracker.rpc.waker import COMPUTE

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
CONNECT_SECONDS = 5.0
"""A broker that is not reached by then is logged once."""
LIBRARY_SECONDS = 3.0
"""Time for the library to disconnect."""


class WakeServer:
    """Wakes an agent for each message that it gets.

    Args:
        host: of the agent.

    Raises:
        ConfigError: the name is longer than a broker allows.
    """

    def __init__(
        self, get_transport: Callable[[], Transport], host: str, wake: Callable[[], None]
    ) -> None:
        if not COMPUTE.is_name(host):
            raise ConfigError(f"host: {host!r} is too long for the name of a queue")
        self._get_transport = get_transport
        self._host = host
        self._wake = wake
        self._server: Any = None
        self._is_serving = threading.Event()
        self._error: str | None = None
        self._stopping = threading.Event()

    @property
    def is_serving(self) -> bool:
        """True once it listens."""
        return self._is_serving.is_set()

    @property
    def error(self) -> str | None:
        """Why it does not serve yet, None once it does."""
        if self.is_serving:
            return None
        return self._error or "the message broker has not been reached yet"

    def start(self) -> None:
        """Start in the background."""
        start_thread("rpc", self._run)
        start_thread("rpc-timeout", self._warn_if_unreachable)

    def stop(self, timeout_seconds: float) -> bool:
        """Disconnect, as far as there is time; return True, as nobody waits for an answer."""
        self._stopping.set()
        if self.is_serving:  # a start that hangs is left behind
            run_within(max(0.0, min(LIBRARY_SECONDS, timeout_seconds)), "rpc-stop", self._end)
        return True

    def _end(self) -> None:
        try:
            self._server.stop()
            self._server.wait()
        except Exception:  # the broker is not used any more
            LOG.debug("The RPC server did not stop cleanly", exc_info=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            problem = self._try_to_listen()
            if problem is None:
                self._is_serving.set()
                LOG.info("RPC is served on topic %s as %s", COMPUTE.topic, self._host)
                return
            if problem != self._error:
                LOG.error("RPC is not served; retrying every %g s: %s", RETRY_SECONDS, problem)
                self._error = problem
            self._stopping.wait(RETRY_SECONDS)

    def _try_to_listen(self) -> str | None:
        """Listen; return why that failed, None if it did not."""
        try:
            self._listen()
        except Exception as error:  # also of a broker with another type of queues
            return f"{type(error).__name__}: {error}"
        return None

    def _listen(self) -> None:
        transport = self._get_transport()
        library = transport.library
        target = library.Target(topic=COMPUTE.topic, server=self._host, version=COMPUTE.version)
        endpoints = [_make_endpoint(library, self._wake), _make_former(library, self._wake)]
        server = library.get_rpc_server(transport.rpc, target, endpoints)
        server.start(override_pool_size=1)
        self._server = server

    def _warn_if_unreachable(self) -> None:
        deadline = time.monotonic() + CONNECT_SECONDS
        while not self._is_serving.is_set() and not self._stopping.is_set():
            if self._error is not None:
                return  # it has been logged
            if time.monotonic() >= deadline:
                LOG.warning("The message broker cannot be reached yet; continuing without it")
                return
            self._is_serving.wait(0.1)


def _make_endpoint(library: Any, wake: Callable[[], None]) -> Any:
    """Return the endpoint for the library: an object with the methods of `COMPUTE`."""

    def handle(self: Any, context: Any, **arguments: Any) -> None:
        wake()

    methods: dict[str, Any] = dict.fromkeys(COMPUTE.methods, handle)
    return type("Endpoint", (), methods | {"target": library.Target(version=COMPUTE.version)})()


_FORMER_VERSION = "1.1"
_FORMER_METHODS = ("update_available_resource", "host_power_action", "get_host_uptime")
"""What programs of the release before call; they announce changes of the ledger, too."""


def _make_former(library: Any, wake: Callable[[], None]) -> Any:
    """Return the endpoint for programs of the release before, whose calls are refused."""
    text = (
        "this agent takes calls from the database and none over the broker: replace the calling "
        "nodetracker-api or nodetracker-manage by that of this agent's release"
    )

    def refuse(self: Any, context: Any, **arguments: Any) -> dict[str, Any]:
        return {"error": encode_error(RefusedError(text))}

    def announce(self: Any, context: Any, **arguments: Any) -> None:
        wake()

    methods: dict[str, Any] = dict.fromkeys(_FORMER_METHODS, refuse)
    methods |= {"ledger_moved": announce, "target": library.Target(version=_FORMER_VERSION)}
    return type("Former", (), methods)()
