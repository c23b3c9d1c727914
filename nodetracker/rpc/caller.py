"""Call the agents of hosts, with a timeout that holds.

The library's timeout does not limit a call: while a broker is away or frozen,
the library connects and waits for as long as that takes. So each call runs in
its own thread, which is left behind when its time is over.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from nodetracker.model.errors import RpcError, RpcUnavailableError, RpcVersionError
from nodetracker.model.text import count_noun
from nodetracker.ports import HostAgent
from nodetracker.ports.methods import delegates
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.workers import Executor
from nodetracker.rpc.audit_socket import AUDIT_SECONDS
from nodetracker.rpc.interface import Interface, Method, describe_mismatch
from nodetracker.rpc.transport import Transport

LOG = logging.getLogger(__name__)

MAX_STUCK = 8
"""Number of hung calls while which no further call is started."""

SLACK_SECONDS = 1.0
"""Time for the library beyond its own timeout, as its errors say more than ours."""

IDLE_TIMEOUT = 10
"""Seconds after which a server that sends no sign of life has died during the call."""

FIRST_VERSION = "1.0"
"""The version of every interface in the releases whose servers do not name theirs."""

COMPUTE = Interface(HostAgent, topic="compute", version="1.1")

_THREADS = 64

_DELIVERED = ("MessageUndeliverable", "MessagingTimeout", "RemoteError", "UnsupportedVersion")
"""Errors of the library of which the broker is not the cause."""

_BROKER = "broker"
"""Source of all calls: they share one broker, which lets them hang."""


class _UnnamedVersionError(RpcVersionError):
    """The server supports another version and does not name it."""


class RpcCaller:
    """Makes the calls of one process.

    Args:
        clock: the database's time; set by each answer that has it.
        get_transport: called for the first call.
        interface: of the servers.
    """

    def __init__(
        self,
        get_transport: Callable[[], Transport],
        clock: DatabaseClock,
        interface: Interface = COMPUTE,
    ) -> None:
        self._get_transport = get_transport
        self.clock = clock
        self._interface = interface
        self._executor = Executor("rpc-call", _THREADS, MAX_STUCK, counts_queue=True)
        self._client: Any = None
        self._broker_error: str | None = None

    @property
    def broker_error(self) -> str | None:
        """Why the last call did not reach the broker, None if it did, or without any call."""
        return self._broker_error

    def call(
        self, server: str, method: Method, arguments: dict[str, Any], timeout_seconds: float
    ) -> Any:
        """Make one call and return its result.

        Raises:
            RpcUnavailableError: no answer arrived in time.
            RpcVersionError: the server has another version, or its answer cannot be read.
            NodetrackerError: the error that the server raised.
        """
        name, client = self._check_server(server), self._find_client()
        context = self._make_context(timeout_seconds)

        # Signs of life are requested only for calls that are longer than the wait for them.
        idle_timeout = IDLE_TIMEOUT if timeout_seconds > IDLE_TIMEOUT else None

        def send() -> Any:
            prepared = client.prepare(
                server=server, timeout=timeout_seconds, call_monitor_timeout=idle_timeout
            )
            return prepared.call(context, method.name, **arguments)

        try:
            answer = self._bound(send, name, method.name, timeout_seconds)
        except _UnnamedVersionError:
            text = describe_mismatch(name, FIRST_VERSION, self._interface.version)
            raise RpcVersionError(text) from None
        if isinstance(answer, dict) and answer.get("now"):
            self.clock.set(datetime.fromisoformat(answer["now"]))
        return method.read_answer(answer, name)

    def cast(
        self, server: str, method: Method, arguments: dict[str, Any], timeout_seconds: float
    ) -> None:
        """Send one call that is not answered; return when the broker has it.

        It does not expire, so it must do no harm late: it waits for a server that is not running.

        Raises:
            RpcUnavailableError: the broker does not accept it, or no such server listens.
        """
        name, client = self._check_server(server), self._find_client()

        def send() -> None:
            client.prepare(server=server).cast({}, method.name, **arguments)

        self._bound(send, name, method.name, timeout_seconds)

    def delete_queue(self, server: str, timeout_seconds: float) -> None:
        """Delete the queue of a server that no longer exists, unless a server listens to it.

        Raises:
            RpcUnavailableError: it may exist still.
        """
        transport, queue = self._get_transport(), self._interface.queue_of(server)
        self._bound(
            lambda: transport.delete_queue(queue), f"queue {queue}", "deletion", timeout_seconds
        )

    def _bound(
        self, send: Callable[[], Any], name: str, method: str, timeout_seconds: float
    ) -> Any:
        """Run a call that may hang in a thread that is left behind when its time is over.

        Raises:
            RpcError: it failed, or did not end in time.
        """
        call = self._executor.start(_BROKER, send, timeout_seconds + SLACK_SECONDS)
        if call.is_refused:
            stuck = count_noun(self._executor.hung_count, "hung call")
            raise RpcUnavailableError(f"the message broker does not answer ({stuck})")
        if not call.wait():
            self._broker_error = "the message broker cannot be reached or hangs"
            raise RpcUnavailableError(
                f"{name} did not answer within {timeout_seconds:g} s (call {method!r}): "
                f"{self._broker_error}"
            )
        error = call.error
        if error is None:
            self._broker_error = None
            return call.value
        is_delivered = type(error).__name__ in _DELIVERED
        self._broker_error = None if is_delivered else f"{type(error).__name__}: {error}"
        raise _translate(error, name, method, timeout_seconds, time.monotonic() - call.counted_from)

    def _check_server(self, server: str) -> str:
        """Return how messages name a server.

        Raises:
            RpcUnavailableError: its name is too long.
        """
        name = self._interface.describe(server)
        if not self._interface.is_name(server):
            raise RpcUnavailableError(f"{name} cannot be called: the name is too long")
        return name

    def _find_client(self) -> Any:
        if self._client is None:
            transport = self._get_transport()
            library = transport.library
            self._client = library.get_rpc_client(
                transport.rpc,
                library.Target(topic=self._interface.topic, version=self._interface.version),
                transport_options=library.TransportOptions(at_least_once=True),
            )
        return self._client

    def _make_context(self, timeout_seconds: float) -> dict[str, Any]:
        now = self.clock.read()
        if now is None:
            return {}
        return {"expires_at": (now + timedelta(seconds=timeout_seconds)).isoformat()}


def _translate(
    error: BaseException, name: str, method: str, timeout_seconds: float, waited_seconds: float
) -> RpcError:
    """Translate an error of the library, or of those below it, into nodetracker's."""
    kind = type(error).__name__
    if kind == "MessageUndeliverable":
        return RpcUnavailableError(
            f"no server listens as {name}: it does not run, or has no transport_url"
        )
    if kind == "MessagingTimeout":
        if waited_seconds < timeout_seconds - SLACK_SECONDS:
            return RpcUnavailableError(
                f"{name} did not answer and sent no sign of life for {IDLE_TIMEOUT} s "
                f"(call {method!r}): it does not run, or hangs"
            )
        return RpcUnavailableError(
            f"{name} did not answer within {timeout_seconds:g} s (call {method!r})"
        )
    remote = str(getattr(error, "exc_type", "")) if kind == "RemoteError" else ""
    if "UnsupportedVersion" in (kind, remote):
        return _UnnamedVersionError(name)
    if remote:
        text = f"{name} failed (call {method!r}): {remote}: {getattr(error, 'value', '')}"
        return RpcVersionError(text) if remote == "NoSuchMethod" else RpcError(text)
    LOG.debug("A call failed", exc_info=error)
    return RpcUnavailableError(f"{name} cannot be called (call {method!r}): {kind}: {error}")


CALL_SECONDS = 30.0
CAST_SECONDS = 5.0


class AgentCaller(Protocol):
    """Calls agents, as `RpcCaller` and `nodetracker.rpc.host_calls.HostCaller` do."""

    def call(
        self, server: str, method: Method, arguments: dict[str, Any], timeout_seconds: float
    ) -> Any:
        """Make one call and return its result."""

    def cast(
        self, server: str, method: Method, arguments: dict[str, Any], timeout_seconds: float
    ) -> None:
        """Send one call that is not answered."""


class RpcAgentDirectory:
    """`nodetracker.ports.AgentDirectory` of what a caller reaches."""

    def __init__(self, caller: AgentCaller, timeout_seconds: float = CALL_SECONDS) -> None:
        self._caller = caller
        self._timeout = timeout_seconds

    def agent_of(self, host: str) -> HostAgent:
        return cast("HostAgent", RpcAgent(self._caller, host, self._timeout))


@delegates(HostAgent)
class RpcAgent:
    """`nodetracker.ports.HostAgent` of one host, by calls."""

    def __init__(self, caller: AgentCaller, host: str, timeout_seconds: float) -> None:
        self._caller = caller
        self._host = host
        self._timeout = timeout_seconds

    def ledger_moved(self, nodename: str | None = None) -> None:
        """Return when the message is sent.

        Raises:
            NodetrackerError: it was not sent, or no such agent listens.
        """
        method = COMPUTE.methods["ledger_moved"]
        arguments = method.encode_arguments(nodename)
        self._caller.cast(self._host, method, arguments, CAST_SECONDS)

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        method = COMPUTE.methods[name]
        arguments = method.encode_arguments(*positional, **named)
        is_audit = name == "update_available_resource"
        timeout = max(AUDIT_SECONDS, self._timeout) if is_audit else self._timeout
        return self._caller.call(self._host, method, arguments, timeout)
