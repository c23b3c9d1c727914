"""Build a process's clients, of the message broker and of placement; most processes need none."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.values import build_from_options, read_value
from nodetracker.model.errors import ConfigError
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import PlacementSettings
from nodetracker.ports import AgentDirectory, CallStore, HostAgent, Store, StoreObserver
from nodetracker.process.clock import DatabaseClock

if TYPE_CHECKING:
    from nodetracker.placement.client import PlacementClient
    from nodetracker.placement.removal import UnservedRemovals
    from nodetracker.placement.reporter import PlacementReporter
    from nodetracker.rpc.caller import AgentCaller, RpcCaller
    from nodetracker.rpc.notify import NotificationSender
    from nodetracker.rpc.server import RpcServer
    from nodetracker.rpc.transport import Transport
    from nodetracker.usecases.healing import PlacementHealer


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

    def check(self) -> None:
        """Connect if a broker is configured, so that an invalid value ends the start.

        Raises:
            ConfigError: as `connect`.
        """
        if self.is_configured:
            self.connect()

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
        """Return the client of the agents over the broker.

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
        if binary == COMPUTE_BINARY and self.is_configured:
            self.caller.delete_queue(host, _DELETE_SECONDS)

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

    def make_observers(
        self, notifier: "NotificationSender | None", agents: AgentDirectory | None = None
    ) -> "list[StoreObserver]":
        """Return who learns what the process's store commits; nobody without a broker.

        Args:
            agents: learn of their nodes' changes, too.
        """
        if notifier is None:
            return []
        from nodetracker.rpc.notify import LedgerAnnouncer, StoreNotifier

        observers: list[StoreObserver] = [StoreNotifier(notifier)]
        if agents is not None:
            observers.append(LedgerAnnouncer(agents))
        return observers

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


def build_agents(
    store: CallStore,
    sender: str,
    get_caller: Callable[[], "AgentCaller"],
    service_down_time: int,
) -> AgentDirectory:
    """Return the client of the agents, over the broker or by their heartbeats.

    Args:
        sender: name of this process.
        get_caller, service_down_time: see `HostCaller`.
    """
    from nodetracker.rpc.caller import RpcAgentDirectory
    from nodetracker.rpc.host_calls import HostCaller

    return RpcAgentDirectory(HostCaller(store, sender, get_caller, service_down_time))


def list_messaging_options() -> list[tuple[str | None, Sequence[cfg.Opt]]]:
    """Return (group, options) of the messaging library; empty if it is not installed."""
    from nodetracker.rpc.transport import list_options

    try:
        return list_options()
    except ImportError:
        return []


def build_placement_client(conf: cfg.ConfigOpts) -> "PlacementClient":
    """Return the client of the service that ``[placement]`` describes; nothing is connected.

    Raises:
        ConfigError: a value is missing or invalid, or keystoneauth is not installed.
    """
    try:
        from nodetracker.placement.session import build_session
    except ImportError as error:
        raise ConfigError(
            "[placement] enabled: needs the library keystoneauth1: "
            "pip install 'nodetracker[placement]'"
        ) from error
    from nodetracker.placement.client import PlacementClient

    return PlacementClient(build_session(conf))


def check_placement(conf: cfg.ConfigOpts) -> None:
    """Check the values of ``[placement]`` where it is enabled; raises as the client's builder."""
    if conf.placement.enabled:
        build_placement_client(conf)


def build_placement_healer(conf: cfg.ConfigOpts, store: Store) -> "PlacementHealer":
    """Return what compares the ledger with placement; nothing is connected.

    Raises: as `build_placement_client`.
    """
    client = build_placement_client(conf)
    from nodetracker.usecases.healing import PlacementHealer

    return PlacementHealer(client, store, conf.pci.report_in_placement)


def build_placement_settings(conf: cfg.ConfigOpts) -> PlacementSettings:
    """Return the settings of the reporter."""
    group = conf.placement
    return build_from_options(
        PlacementSettings,
        group,
        refresh_interval=group.resource_provider_association_refresh,
        heals_leaks=group.heal_leaks,
        reports_devices=conf.pci.report_in_placement,
    )


def build_placement_reporter(
    conf: cfg.ConfigOpts, host: str, store: Store
) -> "PlacementReporter | None":
    """Return the reporter of an agent's nodes, not started; None if placement is not enabled.

    Args:
        store: finds out what consumers in placement represent, and has removals of providers.

    Raises: as `build_placement_client`.
    """
    if not conf.placement.enabled:
        return None
    from nodetracker.placement.reconciler import is_in_ledger
    from nodetracker.placement.removal import HostRemovals, ProviderRemover
    from nodetracker.placement.reporter import EarlierWarnings, PlacementReporter

    client = build_placement_client(conf)
    return PlacementReporter(
        client,
        partial(is_in_ledger, store),
        build_placement_settings(conf),
        removals=HostRemovals(host, ProviderRemover(client, store), store),
        list_earlier=EarlierWarnings(host, store).list,
    )


def build_unserved_removals(conf: cfg.ConfigOpts, store: Store) -> "UnservedRemovals | None":
    """Return what removes the providers of deleted nodes of hosts without an agent.

    None if placement is not enabled.

    Raises: as `build_placement_client`.
    """
    if not conf.placement.enabled:
        return None
    from nodetracker.placement.removal import ProviderRemover, UnservedRemovals

    return UnservedRemovals(ProviderRemover(build_placement_client(conf), store), store)
