"""Several drivers on one host as one driver of one node."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from nodetracker.accounting.audit.merge import DriverReading, merge_readings
from nodetracker.errors import ConfigError, DriverUnavailableError
from nodetracker.model.event import NodeEvent
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import HostSnapshot, NodeListing, failed_snapshot
from nodetracker.ports import Driver, DriverCapability
from nodetracker.virt.probes import ProbeRunner
from nodetracker.workers import Task, WorkerPool

_KINDS = {
    DriverCapability.INSTANCES: WorkloadKind.INSTANCE,
    DriverCapability.CONTAINERS: WorkloadKind.CONTAINER,
}
_BUDGETS = 1.5
"""Probes' budgets that a driver gets for one reading; its probes are bounded themselves."""


class CompositeDriver:
    """Drivers of one machine: the first names the node and gives its facts, all give guests.

    Args:
        drivers: name and driver, at least two.
        probes: tells the budget of a probe.
    """

    def __init__(self, drivers: Sequence[tuple[str, Driver]], probes: ProbeRunner) -> None:
        self._drivers = tuple(drivers)
        self._first_name, self._first = self._drivers[0]
        self._probes = probes
        self._readers = WorkerPool("driver", len(self._drivers))
        self._hung: dict[str, Task[HostSnapshot]] = {}
        self._nodenames: dict[str, str] = {}  # by driver, as it was listed last
        self._kinds: dict[str, frozenset[WorkloadKind]] = {}  # by driver, likewise
        self._disks: dict[str, int | None] = {}  # by driver, likewise

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """What the first can do, and events when any driver tells them."""
        own = self._first.capabilities - _KINDS.keys()
        return own | (self._all_capabilities() & {DriverCapability.EVENTS})

    def init_host(self) -> None:
        """Get all drivers ready.

        Raises:
            ConfigError: the first one's node is not this machine.
        """
        for _, driver in self._drivers:
            driver.init_host()
        if DriverCapability.REMOTE_NODES in self._first.capabilities:
            raise ConfigError(
                f"[compute] compute_driver: {self._first_name} cannot be the first of several, "
                "as its nodes are not this machine"
            )

    def close(self) -> None:
        """Let go of all."""
        for _, driver in self._drivers:
            driver.close()

    def get_available_nodes(self) -> NodeListing:
        """Return the first driver's node, also while that driver does not answer, and who does not.

        Raises:
            DriverUnavailableError: the first does not answer and never did.
            ConfigError: a driver has not exactly one node.
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
                self._note_node(name, listing)
        known = self._nodenames.get(self._first_name)
        return NodeListing(() if known is None else (known,), tuple(unreachable))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read all drivers side by side and merge what they say."""
        tasks = [
            (name, driver, self._start(name, driver, nodename)) for name, driver in self._drivers
        ]
        return merge_readings(
            [
                self._evaluate(name, driver, self._await(name, nodename, task))
                for name, driver, task in tasks
            ]
        )

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Listen to all that tell events; each concerns the one node."""

        def tell(event: NodeEvent) -> None:
            callback(replace(event, nodename=self._nodenames.get(self._first_name, "")))

        for _, driver in self._drivers:
            if DriverCapability.EVENTS in driver.capabilities:
                driver.events(tell)

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return what the first says."""
        return self._first.get_host_uptime(nodename)

    def host_power_action(self, action: str) -> None:
        """Let the first do it."""
        self._first.host_power_action(action)

    def _evaluate(self, name: str, driver: Driver, snapshot: HostSnapshot) -> DriverReading:
        """Add the kinds that a driver's guests may be of: declared, else listed last, else any.

        And where their disks were when that was read last, as who does not
        answer has not moved them.
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

    def _note_node(self, name: str, listing: NodeListing) -> None:
        if len(listing.nodenames) != 1:
            raise ConfigError(
                f"[compute] compute_driver: {name} has {len(listing.nodenames)} nodes, and each "
                "of several drivers must have one, this machine"
            )
        self._nodenames[name] = listing.nodenames[0]

    def _start(self, name: str, driver: Driver, nodename: str) -> Task[HostSnapshot]:
        """Begin a reading, or go on waiting for one that hangs."""
        hung = self._hung.get(name)
        if hung is not None and not hung.is_done:
            return hung
        self._hung.pop(name, None)
        return self._readers.submit(partial(self._read, name, driver, nodename))

    def _read(self, name: str, driver: Driver, nodename: str) -> HostSnapshot:
        if driver is self._first:
            return driver.get_available_resource(nodename)
        if name not in self._nodenames:
            self._note_node(name, driver.get_available_nodes())
        return driver.get_available_resource(self._nodenames[name])

    def _await(self, name: str, nodename: str, task: Task[HostSnapshot]) -> HostSnapshot:
        is_known_to_hang = self._hung.get(name) is task
        budget = 0.0 if is_known_to_hang else _BUDGETS * self._probes.timeout_seconds
        if not task.wait(budget):
            if not is_known_to_hang and self._readers.abandon(task):
                self._hung[name] = task
            return failed_snapshot(nodename, name, "does not answer")
        error = task.error
        if isinstance(error, DriverUnavailableError):
            return failed_snapshot(nodename, error.source, error.reason)
        if error is not None:  # a driver's fault costs its own part, no more
            return failed_snapshot(nodename, name, f"{type(error).__name__}: {error}")
        return task.result()
