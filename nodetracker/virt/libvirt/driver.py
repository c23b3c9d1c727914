"""Read the hypervisors of ``connection_uris``: one connection and one node each."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nodetracker.model.audit import NodeEvent
from nodetracker.model.errors import ConfigError, DriverFeatureError, DriverUnavailableError
from nodetracker.model.node import HostSnapshot, KnownNode, NodeListing
from nodetracker.ports import DriverCapability
from nodetracker.virt.libvirt.capabilities import parse_capabilities
from nodetracker.virt.libvirt.connection import ConnectionTimes, HypervisorConnection
from nodetracker.virt.libvirt.hypervisor import HypervisorReader, LocalFacts
from nodetracker.virt.libvirt.node_facts import derive_node_uuid
from nodetracker.virt.libvirt.types import HypervisorEndpoint, LibvirtSettings
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeKey

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

FIRST_LISTING_SECONDS = 5.0
"""How long the first listing waits for hypervisors to answer; later listings never wait."""


def _shorten(hostname: str) -> str:
    """Return a hostname in lower case and without its domain."""
    return hostname.lower().partition(".")[0]


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
            | (set() if is_local else {DriverCapability.REMOTE_NODES})
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

    def keep_names(self, known: Sequence[KnownNode]) -> None:
        """Recognize hypervisors whose hostname has changed, as after a name service did.

        A row is of a hypervisor if it has the uuid that follows from the hypervisor's host uuid
        and type and the row's own name, and if either the names differ only by case or domain,
        or the URI is the row's. Boards are shipped with equal host uuids.
        """
        free = {node.nodename: node for node in known}
        for name, connection in self._by_nodename().items():
            if connection.endpoint.name is None and name not in free:
                found = self._find_known(name, connection, free.values())
                if found is not None:
                    del free[found]
                    connection.keep_name(found)

    def _find_known(
        self, name: str, connection: HypervisorConnection, known: Iterable[KnownNode]
    ) -> str | None:
        try:
            session = connection.session()
        except DriverUnavailableError:
            return None
        source = connection.endpoint.source
        key = ProbeKey(source, name, "identity")
        document = self._environment.probes.run(key, session.client.get_capabilities)
        root = document.map(parse_capabilities).value
        if root is None:
            return None
        for node in known:
            identity = replace(session.identity, hostname=node.nodename)
            is_alike = _shorten(node.nodename) == _shorten(name) or node.source == source
            if is_alike and derive_node_uuid(root, identity) == node.uuid:
                return node.nodename
        return None

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

    def refresh(self) -> None:
        with self._lock:
            for reader in self._readers.values():
                reader.refresh()

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
