"""Read the hypervisors of ``connection_uris``: one connection and one node each."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from nodetracker.model.audit import NodeEvent
from nodetracker.model.errors import ConfigError, DriverFeatureError, DriverUnavailableError
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.ports import DriverCapability
from nodetracker.virt.libvirt.connection import ConnectionTimes, HypervisorConnection
from nodetracker.virt.libvirt.hypervisor import HypervisorReader, LocalFacts
from nodetracker.virt.libvirt.types import HypervisorEndpoint, LibvirtSettings
from nodetracker.virt.machine import read_uptime
from nodetracker.virt.plugin import DriverEnvironment

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

FIRST_LISTING_SECONDS = 5.0
"""How long the first listing waits for hypervisors to answer; later listings never wait."""


def _ignore(event: NodeEvent) -> None:
    """Drop events until a callback is registered."""


class LibvirtDriver:
    """Facts and guests of one or many hypervisors, read over libvirt."""

    def __init__(
        self,
        endpoints: Sequence[HypervisorEndpoint],
        environment: DriverEnvironment,
        settings: LibvirtSettings,
        times: ConnectionTimes,
        open_: "Callable[[HypervisorEndpoint], LibvirtClient]",
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._callback: Callable[[NodeEvent], None] = _ignore
        self._connections = [
            HypervisorConnection(endpoint, times, self._notify, open_) for endpoint in endpoints
        ]
        self._readers: dict[HypervisorConnection, HypervisorReader] = {}
        self._lock = threading.Lock()
        self._has_listed = False
        is_local = all(endpoint.is_local for endpoint in endpoints)
        self.capabilities = frozenset(
            {DriverCapability.EVENTS, DriverCapability.INSTANCES}
            | ({DriverCapability.UPTIME} if is_local else {DriverCapability.REMOTE_NODES})
        )

    def init_host(self) -> None:
        """Start connecting; a hypervisor that is down now may answer later."""
        for connection in self._connections:
            connection.start()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        self._callback = callback

    def get_available_nodes(self) -> NodeListing:
        """Return the nodes whose names are known, and the hypervisors that do not answer.

        A local node whose name is known exists even while no hypervisor answers.
        Only the first listing waits for answers, `FIRST_LISTING_SECONDS` at most.

        Raises:
            DriverUnavailableError: none answers, and none of a known name is local.
        """
        if not self._has_listed:
            deadline = time.monotonic() + FIRST_LISTING_SECONDS
            for connection in self._connections:
                connection.wait_for_first_attempt(deadline - time.monotonic())
            self._has_listed = True
        problems = [connection.problem for connection in self._connections]
        unreachable = tuple(problem for problem in problems if problem is not None)
        nodes = self._by_nodename()
        is_ready = len(unreachable) < len(self._connections)
        if not is_ready and not any(node.endpoint.is_local for node in nodes.values()):
            source, _, reason = unreachable[0].partition(": ")
            if len(unreachable) > 1:
                source, reason = "libvirt", "; ".join(unreachable)
            raise DriverUnavailableError(source, reason)
        return NodeListing(tuple(nodes), unreachable, is_ready)

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read one node over its connection; without it, only what are this machine's files.

        Raises:
            DriverUnavailableError: a remote hypervisor does not answer.
        """
        connection = self._connection(nodename)
        with self._lock:
            reader = self._readers.get(connection)
        try:
            session = connection.session()
        except DriverUnavailableError as error:
            if not connection.endpoint.is_local:
                raise
            local = LocalFacts(self._environment, self._settings)
            disks = None if reader is None else reader.disks
            return local.read_without_hypervisor(nodename, error, disks)
        with self._lock:
            reader = self._readers.get(connection)
            if reader is None or reader.session is not session:
                reader = HypervisorReader(
                    connection,
                    session,
                    self._environment,
                    self._settings,
                    None if reader is None else reader.features,
                )
                self._readers[connection] = reader
        return reader.read(nodename)

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return the time since this machine booted; libvirt does not report that of others."""
        if not self._connection(nodename).endpoint.is_local:
            raise DriverFeatureError("libvirt does not report the uptime of a remote machine")
        return read_uptime(self._environment.roots)

    def host_power_action(self, action: str) -> None:
        raise DriverFeatureError(f"the libvirt driver does not support the power action {action}")

    def _by_nodename(self) -> dict[str, HypervisorConnection]:
        """Return the connections whose node's name is known."""
        found: dict[str, HypervisorConnection] = {}
        for connection in self._connections:
            name = connection.nodename
            if name is None:
                continue
            if name in found:
                sources = f"{found[name].endpoint.source} and {connection.endpoint.source}"
                raise ConfigError(
                    f"[libvirt] connection_uris: duplicate node name {name} from {sources}; "
                    "use name=URI to give them different names"
                )
            found[name] = connection
        return found

    def _connection(self, nodename: str) -> HypervisorConnection:
        connection = self._by_nodename().get(nodename)
        if connection is None:
            raise DriverUnavailableError("libvirt", f"no such node: {nodename}")
        return connection

    def _notify(self, event: NodeEvent) -> None:
        self._callback(event)
