"""Combine several drivers of one host into one driver of one node.

Each driver is read in its own thread, and none waits for another: until a
reading ends, the last one counts.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Generic, TypeVar

from nodetracker.accounting.audit.merge import DriverReading, merge_readings
from nodetracker.model.audit import ALL_NODES, EventKind, NodeEvent
from nodetracker.model.errors import ConfigError, DriverUnavailableError, describe_error
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import HostSnapshot, KnownNode, NodeListing, failed_snapshot
from nodetracker.ports import Driver, DriverCapability
from nodetracker.process.workers import Call, Executor
from nodetracker.virt.probes import ProbeRunner

T = TypeVar("T")

WAIT_SECONDS = 0.3
"""How long a reading of the host waits for one driver while the others' events are due."""

_TIMEOUT_FACTOR = 1.5
"""Budget of one driver's reading in probe timeouts; its probes are bounded themselves."""

_DOES_NOT_ANSWER = "does not answer"
_KINDS = {
    DriverCapability.INSTANCES: WorkloadKind.INSTANCE,
    DriverCapability.CONTAINERS: WorkloadKind.CONTAINER,
}


class CompositeDriver:
    """Drivers of one machine: the first provides the node's name and facts, all provide guests.

    Args:
        drivers: name and driver, at least two.
    """

    def __init__(self, drivers: Sequence[tuple[str, Driver]], probes: ProbeRunner) -> None:
        self._parts = [DriverPart(name, driver, probes) for name, driver in drivers]
        self._first = self._parts[0]

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """The first driver's capabilities, and events if any driver sends them."""
        own = self._first.driver.capabilities - {*_KINDS, DriverCapability.EVENTS}
        has_events = any(part.has_events for part in self._parts)
        return own | ({DriverCapability.EVENTS} if has_events else set())

    def init_host(self) -> None:
        """Initialize all drivers.

        Raises:
            ConfigError: the first driver's node is not this machine.
        """
        for part in self._parts:
            part.driver.init_host()
        if DriverCapability.REMOTE_NODES in self._first.driver.capabilities:
            raise ConfigError(
                f"[compute] compute_driver: {self._first.name} cannot be the first of several, "
                "as its nodes are not this machine"
            )

    def close(self) -> None:
        for part in self._parts:
            part.driver.close()

    def get_available_nodes(self) -> NodeListing:
        """Return the first driver's node and the sources that do not answer.

        The node is listed even while the first driver does not answer.

        Raises:
            DriverUnavailableError: the first does not answer and never did.
            ConfigError: a driver does not have exactly one node.
        """
        for part in self._parts:
            part.start_listing()
        unreachable: list[str] = []
        is_ready = False
        for part in self._parts:
            try:
                listing = part.listing()
                unreachable += listing.unreachable
                is_ready = is_ready or listing.is_ready
            except DriverUnavailableError as error:
                if part is self._first and part.nodename is None:
                    raise
                unreachable.append(str(error))
        known = self._first.nodename
        return NodeListing(() if known is None else (known,), tuple(unreachable), is_ready)

    def keep_names(self, known: Sequence[KnownNode]) -> None:
        """Let the first driver, after which the node is called, keep its name."""
        self._first.driver.keep_names(known)

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read all drivers concurrently and merge their readings."""
        for part in self._parts:
            part.start_reading()
        merged = merge_readings([part.reading(nodename) for part in self._parts])
        if merged.guests.value is not None and merged.guests.value.is_complete:
            for part in self._parts:
                part.forget_gone()
        return merged

    def refresh(self) -> None:
        for part in self._parts:
            part.driver.refresh()

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Listen to all drivers that send events; each concerns the one node."""

        def notify(event: NodeEvent) -> None:
            callback(replace(event, nodename=self._first.nodename or ALL_NODES))

        for part in self._parts:
            part.listen(notify)

    def host_power_action(self, action: str) -> None:
        self._first.driver.host_power_action(action)


class DriverPart:
    """One driver of several, read in its own thread.

    Once the driver's events are listened to, nobody waits for it longer than
    `WAIT_SECONDS`: until its reading ends, the last one counts, and its end
    is an event. The driver's own events are held back until the reading that
    runs has been used, since its listing may be older than they are.
    """

    def __init__(self, name: str, driver: Driver, probes: ProbeRunner) -> None:
        self.name = name
        self.driver = driver
        self.nodename: str | None = None  # from its last listing
        self._probes = probes
        self._listings = LatestCall(f"driver-{name}", driver.get_available_nodes)
        self._readings = LatestCall(f"driver-{name}", self._read, self._notify_of_reading)
        self._kinds: frozenset[WorkloadKind] | None = None
        self._disk: int | None = None
        self._listed: frozenset[str] = frozenset()
        self._gone: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._notify: Callable[[NodeEvent], None] | None = None
        self._held_back: list[NodeEvent] = []

    @property
    def has_events(self) -> bool:
        return DriverCapability.EVENTS in self.driver.capabilities

    def listen(self, notify: Callable[[NodeEvent], None]) -> None:
        """Report the driver's events, and the ends of readings that were not waited for."""
        self._notify = notify
        if self.has_events:
            self.driver.events(self._put_event)

    def start_listing(self) -> None:
        self._listings.start(self._budget)

    def listing(self) -> NodeListing:
        """Return the driver's last listing."""
        latest, _ = self._listings.latest(self._wait_seconds)
        if latest.is_hung:
            raise DriverUnavailableError(self.name, _DOES_NOT_ANSWER)
        listing = latest.result()
        if listing.nodenames or not listing.unreachable:
            self._record_node(listing)
        return listing

    def start_reading(self) -> None:
        """Start to read the driver, unless a reading is running or was not used yet."""
        if not self._readings.is_busy:
            self._readings.start(self._budget)

    def reading(self, nodename: str) -> DriverReading:
        """Return the driver's last reading, as one of a node of the given name."""
        latest, is_pending = self._readings.latest(self._wait_seconds)
        error, snapshot = latest.error, latest.value
        if latest.is_hung:
            snapshot = failed_snapshot(nodename, self.name, _DOES_NOT_ANSWER)
        elif isinstance(error, DriverUnavailableError):
            snapshot = failed_snapshot(nodename, error.source, error.reason)
        elif error is not None:  # a fault of one driver fails only that driver's part
            snapshot = failed_snapshot(nodename, self.name, describe_error(error))
        assert snapshot is not None
        if not is_pending:
            self._send_held_back()
        self._record_guests(snapshot)
        reading = DriverReading(
            self.name, self._find_kinds(snapshot), snapshot, self._disk, is_pending, self._gone
        )
        self._disk = reading.disk
        return reading

    def forget_gone(self) -> None:
        """Forget the guests that are gone, as the row got them by a listing of all drivers."""
        self._gone = frozenset()

    @property
    def _wait_seconds(self) -> float:
        return inf if self._notify is None else WAIT_SECONDS

    @property
    def _budget(self) -> float:
        return _TIMEOUT_FACTOR * self._probes.timeout_seconds

    def _read(self) -> HostSnapshot:
        if self.nodename is None:
            self._record_node(self.driver.get_available_nodes())
        assert self.nodename is not None
        return self.driver.get_available_resource(self.nodename)

    def _record_node(self, listing: NodeListing) -> None:
        if len(listing.nodenames) != 1:
            raise ConfigError(
                f"[compute] compute_driver: {self.name} has {len(listing.nodenames)} nodes; each "
                "of several drivers must have exactly one, this machine"
            )
        self.nodename = listing.nodenames[0]

    def _record_guests(self, snapshot: HostSnapshot) -> None:
        """Remember the listed guests, and those that a complete listing does not have any more."""
        listing = snapshot.guests.value
        if listing is not None and listing.is_complete:
            self._gone = (self._gone | self._listed) - listing.uuids
            self._listed = listing.uuids

    def _find_kinds(self, snapshot: HostSnapshot) -> frozenset[WorkloadKind]:
        """Return the kinds that the driver's guests may be of: declared, else listed last, or any.

        Also remember those listed now.
        """
        if snapshot.guests.value is not None:
            self._kinds = frozenset(guest.kind for guest in snapshot.guests.value.all_guests)
        capabilities = self.driver.capabilities
        declared = frozenset(kind for word, kind in _KINDS.items() if word in capabilities)
        return declared or self._kinds or frozenset(WorkloadKind)

    # Called in the driver's threads.

    def _put_event(self, event: NodeEvent) -> None:
        with self._lock:
            if self._readings.is_busy:
                self._held_back.append(event)
            else:
                self._send(event)

    def _send_held_back(self) -> None:
        with self._lock:
            events, self._held_back = self._held_back, []
            for event in events:
                self._send(event)

    def _notify_of_reading(self) -> None:
        self._send(NodeEvent(self.nodename or ALL_NODES, EventKind.LATE))

    def _send(self, event: NodeEvent) -> None:
        if self._notify is not None:
            self._notify(event)


class LatestCall(Generic[T]):
    """A call of which at most one runs; until it ends, the one before counts.

    Args:
        name: first part of its threads' names.
        on_late: called in the call's thread when a call ends that `latest` did not wait for.
    """

    def __init__(
        self, name: str, make: Callable[[], T], on_late: Callable[[], None] = lambda: None
    ) -> None:
        self._make = make
        self._on_late = on_late
        self._executor = Executor(name, 1, on_end=self._end)
        self._lock = threading.Lock()
        self._running: Call[T] | None = None
        self._last: Call[T] | None = None
        self._is_used = True
        self._is_late = False

    def start(self, budget_seconds: float) -> None:
        """Make the call in a thread, unless it is running."""
        with self._lock:
            if self._running is None:
                self._is_late = False
                self._running = self._executor.start("", self._make, budget_seconds)

    @property
    def is_busy(self) -> bool:
        """Whether a call is running, or has ended and was not used yet."""
        with self._lock:
            return self._running is not None or not self._is_used

    def latest(self, wait_seconds: float) -> tuple[Call[T], bool]:
        """Wait for a running call; return the last one that is over, and whether another runs.

        Args:
            wait_seconds: duration of a call after which the one before it is returned; the
                first one is waited for within its budget.
        """
        running = self._running
        if running is not None:
            running.wait(inf if self._last is None else running.counted_from + wait_seconds)
        with self._lock:
            if self._running is not None and (self._running.is_hung or self._running.is_done):
                self._keep(self._running)
            self._is_late = self._running is not None
            self._is_used = self._is_used or not self._is_late
            assert self._last is not None
            return self._last, self._is_late

    def _end(self, call: Call[T]) -> None:
        with self._lock:
            if call is not self._running:
                return  # it was given up
            self._keep(call)
            is_late = self._is_late
        if is_late:
            self._on_late()

    def _keep(self, call: Call[T]) -> None:
        self._running, self._last, self._is_used = None, call, False
