"""Read one of several drivers of a host, without making the others wait for it."""

import threading
from collections.abc import Callable
from math import inf

from nodetracker.accounting.audit.merge import DriverReading
from nodetracker.model.errors import ConfigError, DriverUnavailableError
from nodetracker.model.event import ALL_NODES, EventKind, NodeEvent
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import HostSnapshot, NodeListing, failed_snapshot
from nodetracker.ports import Driver, DriverCapability
from nodetracker.virt.probes import ProbeRunner
from nodetracker.virt.repeated_call import RepeatedCall

PATIENCE_SECONDS = 0.3
"""How long a reading of the host waits for one driver while the others' events are due."""

_TIMEOUT_FACTOR = 1.5
"""Budget of one driver's reading in probe timeouts; its probes are bounded themselves."""

_KINDS = {
    DriverCapability.INSTANCES: WorkloadKind.INSTANCE,
    DriverCapability.CONTAINERS: WorkloadKind.CONTAINER,
}


class DriverPart:
    """One driver of several, read in its own thread.

    Once the driver's events are listened to, nobody waits for it longer than
    `PATIENCE_SECONDS`: until its reading ends, the last one counts, and its end
    is an event. The driver's own events are held back until the reading that
    runs has been used, since its listing may be older than they are.
    """

    def __init__(self, name: str, driver: Driver, probes: ProbeRunner) -> None:
        self.name = name
        self.driver = driver
        self.nodename: str | None = None  # from its last listing
        self._probes = probes
        overdue = DriverUnavailableError(name, "does not answer")
        self._listings = RepeatedCall(
            f"driver-{name}", driver.get_available_nodes, overdue, _ignore
        )
        self._readings = RepeatedCall(
            f"driver-{name}", self._read, overdue, self._notify_of_reading
        )
        self._kinds: frozenset[WorkloadKind] | None = None
        self._disk: int | None = None
        self._lock = threading.Lock()
        self._notify: Callable[[NodeEvent], None] | None = None
        self._held_back: list[NodeEvent] = []

    @property
    def has_events(self) -> bool:
        """Whether the driver sends events."""
        return DriverCapability.EVENTS in self.driver.capabilities

    def listen(self, notify: Callable[[NodeEvent], None]) -> None:
        """Report the driver's events, and the ends of readings that were not waited for."""
        self._notify = notify
        if self.has_events:
            self.driver.events(self._put_event)

    def start_listing(self) -> None:
        """Start to list the driver's node."""
        self._listings.start()

    def listing(self) -> NodeListing:
        """Return the driver's last listing.

        Raises:
            DriverUnavailableError: the driver does not answer.
            ConfigError: it does not have exactly one node.
        """
        outcome = self._listings.latest(self._patience, self._budget).outcome
        if outcome.value is None:
            assert outcome.error is not None
            raise outcome.error
        listing = outcome.value
        if listing.nodenames or not listing.unreachable:
            self._record_node(listing)
        return listing

    def start_reading(self) -> None:
        """Start to read the driver, unless a reading is running or was not used yet."""
        if not self._readings.is_busy:
            self._readings.start()

    def reading(self, nodename: str) -> DriverReading:
        """Return the driver's last reading, as one of a node of the given name."""
        latest = self._readings.latest(self._patience, self._budget)
        error, snapshot = latest.outcome.error, latest.outcome.value
        if isinstance(error, DriverUnavailableError):
            snapshot = failed_snapshot(nodename, error.source, error.reason)
        elif snapshot is None:  # a fault of one driver fails only that driver's part
            snapshot = failed_snapshot(nodename, self.name, f"{type(error).__name__}: {error}")
        if not latest.is_pending:
            self._send_held_back()
        reading = DriverReading(
            self.name, self._find_kinds(snapshot), snapshot, self._disk, latest.is_pending
        )
        self._disk = reading.disk
        return reading

    @property
    def _patience(self) -> float:
        return inf if self._notify is None else PATIENCE_SECONDS

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


def _ignore() -> None:
    """Leave the end of a listing to the next one."""
