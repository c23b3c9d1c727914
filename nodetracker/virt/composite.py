"""Combine several drivers of one host into one driver of one node."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from nodetracker.accounting.audit.merge import DriverReading, merge_readings
from nodetracker.errors import ConfigError, DriverUnavailableError
from nodetracker.model.event import ALL_NODES, NodeEvent
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import HostSnapshot, NodeListing, failed_snapshot
from nodetracker.ports import Driver, DriverCapability
from nodetracker.virt.probes import ProbeRunner
from nodetracker.workers import HangGuard, Task

_KINDS = {
    DriverCapability.INSTANCES: WorkloadKind.INSTANCE,
    DriverCapability.CONTAINERS: WorkloadKind.CONTAINER,
}
_TIMEOUT_FACTOR = 1.5
"""Budget of one driver's reading in probe timeouts; its probes are bounded themselves."""

_DOES_NOT_ANSWER = "does not answer"


class CompositeDriver:
    """Drivers of one machine: the first provides the node's name and facts, all provide guests.

    Args:
        drivers: name and driver, at least two.
        probes: knows the timeout of a probe.
    """

    def __init__(self, drivers: Sequence[tuple[str, Driver]], probes: ProbeRunner) -> None:
        self._drivers = tuple(drivers)
        self._first_name, self._first = self._drivers[0]
        self._probes = probes
        self._readers: HangGuard[str] = HangGuard("driver", len(self._drivers))
        self._nodenames: dict[str, str] = {}  # by driver, from its last listing
        self._kinds: dict[str, frozenset[WorkloadKind]] = {}  # by driver, likewise
        self._disks: dict[str, int | None] = {}  # by driver, likewise

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """The first driver's capabilities, and events if any driver sends them."""
        own = self._first.capabilities - _KINDS.keys()
        return own | (self._all_capabilities() & {DriverCapability.EVENTS})

    def init_host(self) -> None:
        """Initialize all drivers.

        Raises:
            ConfigError: the first driver's node is not this machine.
        """
        for _, driver in self._drivers:
            driver.init_host()
        if DriverCapability.REMOTE_NODES in self._first.capabilities:
            raise ConfigError(
                f"[compute] compute_driver: {self._first_name} cannot be the first of several, "
                "as its nodes are not this machine"
            )

    def close(self) -> None:
        """Close all drivers."""
        for _, driver in self._drivers:
            driver.close()

    def get_available_nodes(self) -> NodeListing:
        """Return the first driver's node and the sources that do not answer.

        The node is listed even while the first driver does not answer.

        Raises:
            DriverUnavailableError: the first does not answer and never did.
            ConfigError: a driver does not have exactly one node.
        """
        unreachable: list[str] = []
        for name, driver in self._drivers:
            try:
                listing = driver.get_available_nodes()
            except DriverUnavailableError as error:
                if driver is self._first and name not in self._nodenames:
                    raise
                unreachable.append(str(error))
                continue
            unreachable += listing.unreachable
            if listing.nodenames or not listing.unreachable:
                self._record_node(name, listing)
        known = self._nodenames.get(self._first_name)
        return NodeListing(() if known is None else (known,), tuple(unreachable))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read all drivers concurrently and merge their readings."""
        tasks = [
            (name, driver, self._readers.start(name, partial(self._read, name, driver, nodename)))
            for name, driver in self._drivers
        ]
        return merge_readings(
            [
                self._evaluate(name, driver, self._await(name, nodename, task))
                for name, driver, task in tasks
            ]
        )

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Listen to all drivers that send events; each concerns the one node."""

        def notify(event: NodeEvent) -> None:
            callback(replace(event, nodename=self._nodenames.get(self._first_name, ALL_NODES)))

        for _, driver in self._drivers:
            if DriverCapability.EVENTS in driver.capabilities:
                driver.events(notify)

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return the uptime that the first driver reports."""
        return self._first.get_host_uptime(nodename)

    def host_power_action(self, action: str) -> None:
        """Pass the action to the first driver."""
        self._first.host_power_action(action)

    def _evaluate(self, name: str, driver: Driver, snapshot: HostSnapshot) -> DriverReading:
        """Add the kinds that a driver's guests may be of: declared, else listed last, else any.

        Also add the device of their disks from the last reading, which a driver
        that does not answer cannot have changed.
        """
        if snapshot.guests.value is not None:
            self._kinds[name] = frozenset(guest.kind for guest in snapshot.guests.value.guests)
        declared = frozenset(kind for word, kind in _KINDS.items() if word in driver.capabilities)
        kinds = declared or self._kinds.get(name) or frozenset(WorkloadKind)
        reading = DriverReading(name, kinds, snapshot, self._disks.get(name))
        self._disks[name] = reading.disk
        return reading

    def _all_capabilities(self) -> frozenset[DriverCapability]:
        return frozenset().union(*(driver.capabilities for _, driver in self._drivers))

    def _record_node(self, name: str, listing: NodeListing) -> None:
        if len(listing.nodenames) != 1:
            raise ConfigError(
                f"[compute] compute_driver: {name} has {len(listing.nodenames)} nodes; each "
                "of several drivers must have exactly one, this machine"
            )
        self._nodenames[name] = listing.nodenames[0]

    def _read(self, name: str, driver: Driver, nodename: str) -> HostSnapshot:
        if driver is self._first:
            return driver.get_available_resource(nodename)
        if name not in self._nodenames:
            self._record_node(name, driver.get_available_nodes())
        return driver.get_available_resource(self._nodenames[name])

    def _await(self, name: str, nodename: str, task: Task[HostSnapshot] | None) -> HostSnapshot:
        if task is None:  # an earlier reading hangs
            return failed_snapshot(nodename, name, _DOES_NOT_ANSWER)
        if not task.wait(_TIMEOUT_FACTOR * self._probes.timeout_seconds):
            self._readers.abandon(name, task)
            return failed_snapshot(nodename, name, _DOES_NOT_ANSWER)
        error = task.error
        if isinstance(error, DriverUnavailableError):
            return failed_snapshot(nodename, error.source, error.reason)
        if error is not None:  # a fault of one driver fails only that driver's part
            return failed_snapshot(nodename, name, f"{type(error).__name__}: {error}")
        return task.result()
