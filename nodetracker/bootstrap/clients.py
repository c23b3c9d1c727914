"""Build a process's clients, of the message broker and of placement; most processes need none."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.values import build_from_options, read_host_name, read_value
from nodetracker.model.errors import ConfigError
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import PlacementSettings
from nodetracker.ports import AgentDirectory, CallStore, Store, StoreObserver

if TYPE_CHECKING:
    from nodetracker.placement.client import PlacementClient
    from nodetracker.placement.removal import UnservedRemovals
    from nodetracker.placement.reporter import PlacementReporter
    from nodetracker.rpc.notify import NotificationSender
    from nodetracker.rpc.server import WakeServer
    from nodetracker.rpc.transport import Transport
    from nodetracker.rpc.waker import Waker
    from nodetracker.usecases.healing import PlacementHealer


class Broker:
    """The process's connection to the message broker; the library is imported at its first use."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._waker: Waker | None = None

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
    def waker(self) -> "Waker":
        """What wakes agents; it connects for the first one."""
        from nodetracker.rpc.waker import Waker

        with self._lock:
            self._waker = self._waker or Waker(self.connect)
            return self._waker

    @property
    def wake_error(self) -> str | None:
        """Why the broker did not accept this process's last wake-up, None if it did."""
        return None if self._waker is None else self._waker.error

    def delete_service_queues(self, host: str, binary: str) -> None:
        """Delete the queues in which wake-ups for a deleted service would wait.

        Do nothing without a broker.

        Raises:
            RpcError: they may exist still.
            ConfigError: as `connect`.
        """
        if binary == COMPUTE_BINARY and self.is_configured:
            from nodetracker.rpc.waker import COMPUTE, delete_queue

            delete_queue(self.connect(), COMPUTE.queue_of(host))

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
        self, notifier: "NotificationSender | None", wakes_agents: bool = False
    ) -> "list[StoreObserver]":
        """Return who learns what the process's store commits; nobody without a broker.

        Args:
            wakes_agents: agents learn of their nodes' changes, too.
        """
        if notifier is None:
            return []
        from nodetracker.rpc.notify import StoreNotifier

        observers: list[StoreObserver] = [StoreNotifier(notifier)]
        return [*observers, self.waker] if wakes_agents else observers

    def serve_wakes(self, host: str, wake: Callable[[], None]) -> "WakeServer":
        """Return what wakes an agent for messages, not started."""
        from nodetracker.rpc.server import WakeServer

        return WakeServer(self.connect, host, wake)


def build_agents(
    conf: cfg.ConfigOpts, store: CallStore, program: str, broker: Broker
) -> AgentDirectory:
    """Return the client of the agents.

    Args:
        program: part of this process's name.
        broker: wakes agents of other machines, if it is configured.
    """
    from nodetracker.rpc.host_calls import HostCaller
    from nodetracker.rpc.wake_socket import SOCKET_FILE, wake_by_socket

    own, path = read_host_name(conf), Path(conf.state_path) / SOCKET_FILE

    def wake(host: str) -> None:
        if host == own and wake_by_socket(path):
            return
        if broker.is_configured:
            broker.waker.wake(host)

    return HostCaller(store, f"{program}:{own}", wake, conf.service_down_time)


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
