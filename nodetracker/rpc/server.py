"""Serve an interface over the broker, in its own threads.

The start waits for the broker for as long as that takes, so it is done in a
thread; the caller continues immediately, with or without a broker.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from nodetracker.model.errors import (
    ConfigError,
    NodetrackerError,
    RpcEndingError,
    RpcUnavailableError,
    RpcVersionError,
)
from nodetracker.model.serializer import encode_error
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.workers import start_thread
from nodetracker.rpc.interface import Interface, Method, carry_out, describe_mismatch
from nodetracker.rpc.transport import Transport

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
PATIENCE_SECONDS = 5.0
"""A broker that is not reached by then is logged once."""
LIBRARY_SECONDS = 3.0
"""Time for the library to send the last answers and to disconnect."""


class RpcServer:
    """Answers the calls of one interface.

    Args:
        name: of this server among those of the interface.
        served: has the interface's methods.
        clock: the database's time; a call that has expired by it is refused.
        threads: number of calls that are answered concurrently.
        read_time: reads the database's time for a call with an expiry while the
            clock is not set: the call may have waited since long before this server
            started. None = late calls do no harm.

    Raises:
        ConfigError: the name is longer than a broker allows.
    """

    def __init__(
        self,
        get_transport: Callable[[], Transport],
        interface: Interface,
        name: str,
        served: Any,
        clock: DatabaseClock,
        threads: int,
        read_time: Callable[[], datetime] | None = None,
    ) -> None:
        if not interface.is_name(name):
            raise ConfigError(f"host: {name!r} is too long for the name of a queue")
        self._get_transport = get_transport
        self._interface = interface
        self._name = name
        self._served = served
        self._clock = clock
        self._threads = threads
        self._read_time = read_time
        self._server: Any = None
        self._running: set[int] = set()
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
        threading.Thread(target=self._run, name="rpc", daemon=True).start()
        threading.Thread(target=self._complain, name="rpc-patience", daemon=True).start()

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more calls; return whether all running ones ended in time."""
        deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        if not self._is_serving.is_set():
            return True  # a start that hangs is left behind
        done = threading.Event()

        def end() -> None:
            try:
                self._server.stop()
                self._server.wait()
                self._answer_late()
            except Exception:  # the broker is not used any more
                LOG.debug("The RPC server did not stop cleanly", exc_info=True)
            done.set()

        start_thread("rpc-stop", end)
        done.wait(max(0.0, min(LIBRARY_SECONDS, timeout_seconds)))
        # If no call is running, the broker hangs, and waiting for it is pointless.
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self._running

    def _answer_late(self) -> None:
        """Answer the calls that arrived while the library disconnected.

        It acknowledges them and drops them (seen with oslo.messaging 18.3), so that no
        other server gets them, and their callers would wait in vain.
        """
        for incoming in self._server.listener._poll_style_listener.incoming:
            self._server._process_incoming([incoming])

    def _run(self) -> None:
        while not self._stopping.is_set():
            problem = self._try_to_listen()
            if problem is None:
                self._is_serving.set()
                LOG.info("RPC is served on topic %s as %s", self._interface.topic, self._name)
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
        target = library.Target(
            topic=self._interface.topic, server=self._name, version=self._interface.version
        )
        endpoint = _make_endpoint(library, self._interface, self._answer)
        server = library.get_rpc_server(transport.rpc, target, [endpoint])
        server.dispatcher = _Dispatcher(server.dispatcher, library, self._interface, self._name)
        server.start(override_pool_size=self._threads)
        self._server = server

    def _complain(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_serving.is_set() and not self._stopping.is_set():
            if self._error is not None:
                return  # it has been logged
            if time.monotonic() >= deadline:
                LOG.warning("The message broker cannot be reached yet; continuing without it")
                return
            self._is_serving.wait(0.1)

    def _answer(self, method: Method, context: Any, plain: dict[str, Any]) -> dict[str, Any]:
        """Execute one call; nodetracker's errors travel as answers."""
        answer: dict[str, Any]
        self._running.add(threading.get_ident())
        try:
            if self._stopping.is_set():
                raise RpcEndingError(f"{self._name} is ending; nothing was done")
            self._refuse_expired(context, method)
            unknown = self._interface.list_unknown(context.get("version", self._interface.version))
            answer = carry_out(self._served, method, plain, self._name, unknown)
        except NodetrackerError as error:
            answer = {"error": encode_error(error)}
        finally:
            self._running.discard(threading.get_ident())
        now = self._clock.read()
        return answer if now is None else answer | {"now": now.isoformat()}

    def _refuse_expired(self, context: Any, method: Method) -> None:
        expires_at = context.get("expires_at") if isinstance(context, dict) else None
        if expires_at is None:
            return
        now = self._clock.read()
        if now is None:
            if self._read_time is None:
                return
            now = self._read_time()
            self._clock.set(now)
        late = (now - datetime.fromisoformat(expires_at)).total_seconds()
        if late > 0:
            LOG.warning("Call of %s arrived %.1f s too late and was refused", method.name, late)
            raise RpcUnavailableError(
                f"{method.name} arrived {late:.1f} s too late; nothing was done"
            )


class _Dispatcher:
    """The library's dispatcher; a call that it cannot dispatch is answered with both versions.

    The library alone answers with the caller's version only, and logs a traceback here.
    """

    def __init__(self, dispatcher: Any, library: Any, interface: Interface, name: str) -> None:
        self._dispatcher = dispatcher
        self._library = library
        self._interface = interface
        self._server = interface.describe(name)

    def dispatch(self, incoming: Any) -> Any:
        """Execute a call and return its answer."""
        incoming.ctxt = {**incoming.ctxt, "version": incoming.message.get("version", "1.0")}
        try:
            return self._dispatcher.dispatch(incoming)
        except self._library.UnsupportedVersion as error:
            text = describe_mismatch(self._server, self._interface.version, error.version)
        except self._library.NoSuchMethod as error:
            text = (
                f"{self._server}, version {self._interface.version}, has no method {error.method}"
            )
        return {"error": encode_error(RpcVersionError(text))}


Answer = Callable[[Method, Any, dict[str, Any]], dict[str, Any]]


def _make_endpoint(library: Any, interface: Interface, answer: Answer) -> Any:
    """Return the endpoint for the library: an object with each method of the interface."""

    def make(method: Method) -> Callable[..., dict[str, Any]]:
        def handle(self: Any, context: Any, **arguments: Any) -> dict[str, Any]:
            return answer(method, context, arguments)

        return handle

    methods: dict[str, Any] = {name: make(method) for name, method in interface.methods.items()}
    target = library.Target(version=interface.version)
    return type("Endpoint", (), methods | {"target": target})()
