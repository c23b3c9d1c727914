"""Build a process's connection to the message broker from its configuration."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.values import read_value
from nodetracker.model.errors import ConfigError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.ports import AgentDirectory, HostAgent
from nodetracker.process.clock import DatabaseClock

if TYPE_CHECKING:  # imported late: not every program uses the broker
    from nodetracker.rpc.caller import RpcCaller
    from nodetracker.rpc.notify import NotificationSender
    from nodetracker.rpc.server import RpcServer
    from nodetracker.rpc.transport import Transport

_DELETE_SECONDS = 10.0
_AGENT_CALLS = 4
"""Calls that an agent answers concurrently."""


class Broker:
    """The process's connection to the message broker; the library is imported at its first use."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._caller: RpcCaller | None = None

    @property
    def is_configured(self) -> bool:
        """Whether a broker is configured.

        Raises:
            ConfigError: ``transport_url`` is invalid.
        """
        return bool(read_value(self._conf, "DEFAULT", "transport_url"))

    def connect(self) -> "Transport":
        """Return the transport.

        Raises:
            ConfigError: ``transport_url`` is unset, or it or the one of notifications
                is invalid.
        """
        from nodetracker.rpc.transport import Transport

        with self._lock:
            if self._transport is None:
                if not self.is_configured:
                    raise ConfigError("[DEFAULT] transport_url: not set, but this needs a broker")
                self._transport = Transport(self._conf, self._conf.transport_url)
            return self._transport

    @property
    def caller(self) -> "RpcCaller":
        """The caller of this process.

        Raises:
            ConfigError: as `connect`.
        """
        from nodetracker.rpc.caller import RpcCaller

        transport = self.connect()
        with self._lock:
            self._caller = self._caller or RpcCaller(lambda: transport, DatabaseClock())
            return self._caller

    @property
    def call_error(self) -> str | None:
        """Why the last call of this process did not reach the broker, None if it did."""
        return None if self._caller is None else self._caller.broker_error

    def find_agents(self) -> AgentDirectory:
        """Return the client of the agents.

        Raises:
            ConfigError: as `connect`.
        """
        from nodetracker.rpc.caller import RpcAgentDirectory

        return RpcAgentDirectory(self.caller)

    def delete_service_queues(self, host: str, binary: str) -> None:
        """Delete the queues in which calls for a deleted service would wait.

        Do nothing without a broker.

        Raises:
            RpcError: they may exist still.
            ConfigError: as `connect`.
        """
        if not self.is_configured:
            return
        from nodetracker.conductor.client import CONDUCTOR
        from nodetracker.conductor.service import PING
        from nodetracker.rpc.caller import COMPUTE

        interfaces = {COMPUTE_BINARY: (COMPUTE,), CONDUCTOR_BINARY: (CONDUCTOR, PING)}
        for interface in interfaces.get(binary, ()):
            self.caller.delete_queue(interface, host, _DELETE_SECONDS)

    def make_notifier(self, publisher: str) -> "NotificationSender | None":
        """Return the sender of notifications, None without a broker.

        The first notification finds out whether any are configured.
        """
        if not self.is_configured:
            return None
        from nodetracker.rpc.notify import NotificationSender
        from nodetracker.rpc.transport import LibraryNotifier

        def make_send() -> LibraryNotifier | None:
            transport = self.connect()
            is_wanted = transport.notifications is not None
            return LibraryNotifier(transport, publisher) if is_wanted else None

        return NotificationSender(make_send)

    def serve_agent(
        self,
        host: str,
        agent: HostAgent,
        clock: DatabaseClock,
        read_time: Callable[[], datetime],
    ) -> "RpcServer":
        """Return the server of an agent, not started."""
        from nodetracker.rpc.caller import COMPUTE
        from nodetracker.rpc.server import RpcServer

        return RpcServer(self.connect, COMPUTE, host, agent, clock, _AGENT_CALLS, read_time)


def list_messaging_options() -> list[tuple[str | None, Sequence[cfg.Opt]]]:
    """Return (group, options) of the messaging library; empty if it is not installed."""
    from nodetracker.rpc.transport import list_options

    try:
        return list_options()
    except ImportError:
        return []
