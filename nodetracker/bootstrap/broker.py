"""One process's way to the message broker, by its configuration."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.settings import read_value
from nodetracker.clock import DatabaseClock
from nodetracker.errors import ConfigError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.ports import AgentDirectory, HostAgent

if TYPE_CHECKING:  # imported late: not every program speaks to others
    from nodetracker.rpc.caller import RpcCaller
    from nodetracker.rpc.notify import NotificationSender
    from nodetracker.rpc.server import RpcServer
    from nodetracker.rpc.transport import Transport

_DELETE_SECONDS = 10.0
_AGENT_CALLS = 4
"""Calls that an agent answers side by side."""


class Broker:
    """The process's way to the message broker; the library is imported when it is first used."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._caller: RpcCaller | None = None

    @property
    def is_configured(self) -> bool:
        """Whether there is a broker at all.

        Raises:
            ConfigError: ``transport_url`` cannot be read.
        """
        return bool(read_value(self._conf, "DEFAULT", "transport_url"))

    def connect(self) -> "Transport":
        """Return the transport.

        Raises:
            ConfigError: ``transport_url`` is unset, or it or that of notifications
                cannot be used.
        """
        from nodetracker.rpc.transport import Transport

        with self._lock:
            if self._transport is None:
                if not self.is_configured:
                    raise ConfigError("[DEFAULT] transport_url: is unset, and this needs a broker")
                self._transport = Transport(self._conf, self._conf.transport_url)
            return self._transport

    @property
    def caller(self) -> "RpcCaller":
        """What makes this process's calls.

        Raises:
            ConfigError: as `connect`.
        """
        from nodetracker.rpc.caller import RpcCaller

        transport = self.connect()
        with self._lock:
            self._caller = self._caller or RpcCaller(lambda: transport, DatabaseClock())
            return self._caller

    def find_agents(self) -> AgentDirectory:
        """Return the client of the agents.

        Raises:
            ConfigError: as `connect`.
        """
        from nodetracker.rpc.client import RpcAgentDirectory

        return RpcAgentDirectory(self.caller)

    def delete_service_queues(self, host: str, binary: str) -> None:
        """Delete the queues in which calls of a service that is gone would wait for it.

        Without a broker there are none.

        Raises:
            RpcError: the broker did not do it.
            ConfigError: as `connect`.
        """
        if not self.is_configured:
            return
        from nodetracker.conductor.interface import CONDUCTOR
        from nodetracker.conductor.ping import PING
        from nodetracker.rpc.client import COMPUTE

        interfaces = {COMPUTE_BINARY: (COMPUTE,), CONDUCTOR_BINARY: (CONDUCTOR, PING)}
        for interface in interfaces.get(binary, ()):
            self.caller.delete_queue(interface, host, _DELETE_SECONDS)

    def make_notifier(self, publisher: str) -> "NotificationSender | None":
        """Return what sends notifications, None without a broker.

        Whether the configuration wants any is found out at the first.
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
        """Return the server of an agent; it is not started."""
        from nodetracker.rpc.client import COMPUTE
        from nodetracker.rpc.server import RpcServer

        return RpcServer(self.connect, COMPUTE, host, agent, clock, _AGENT_CALLS, read_time)


def list_messaging_options() -> list[tuple[str | None, Sequence[cfg.Opt]]]:
    """Return (group, options) of the messaging library; nothing where it is not installed."""
    from nodetracker.rpc.transport import list_options

    try:
        return list_options()
    except ImportError:
        return []
