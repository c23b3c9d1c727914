"""Queue what the audits of a host work on: readings that ended, and nodes named by events.

A storm of events causes one reading. A node is read `QUIET_SECONDS` after an
event, and `STOP_SECONDS` after one that may be half of a reboot, so that its
other half comes first. Further events postpone the reading for at most
`LONGEST_SECONDS`.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nodetracker.model.audit import ALL_NODES, AllNodes, EventKind, NodeEvent
from nodetracker.model.node import HostSnapshot
from nodetracker.process.clock import Timer
from nodetracker.process.loops import Wakeup

QUIET_SECONDS = 0.05
STOP_SECONDS = 0.6
LONGEST_SECONDS = 0.8

_ENDS = frozenset({EventKind.STOPPED, EventKind.GONE})

NodeFilter = Callable[[str | AllNodes], bool]
"""Whether the events of a node are wanted now."""


def accept_any(_node: str | AllNodes) -> bool:
    """Accept every node."""
    return True


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Nodes that events make due.

    Attributes:
        nodenames: of the nodes to be read.
        has_all_nodes: whether all nodes of the host are to be read.
    """

    nodenames: frozenset[str] = frozenset()
    has_all_nodes: bool = False

    def __bool__(self) -> bool:
        """Whether any node is due."""
        return self.has_all_nodes or bool(self.nodenames)


@dataclass(slots=True)
class _Waiting:
    """Pending events of one node: when each workload's is due."""

    first_at: float
    due: dict[str, float] = field(default_factory=dict)

    @property
    def due_at(self) -> float:
        return min(self.first_at + LONGEST_SECONDS, max(self.due.values()))


class PendingEvents:
    """Events by node until they are due; not safe for several threads.

    All moments are seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        self._nodes: dict[str | AllNodes, _Waiting] = {}

    def add(self, event: NodeEvent, now: float) -> None:
        """Add an event; it replaces an earlier one of the same guest."""
        node = self._nodes.setdefault(event.nodename, _Waiting(now))
        wait = STOP_SECONDS if event.kind in _ENDS else QUIET_SECONDS
        node.due[event.workload_uuid] = now + wait

    def due_at(self, is_wanted: NodeFilter = accept_any) -> float | None:
        """Return when the first wanted node is due, None without one."""
        moments = (node.due_at for name, node in self._nodes.items() if is_wanted(name))
        return min(moments, default=None)

    def take(self, now: float, is_wanted: NodeFilter = accept_any) -> EventBatch:
        """Remove the events of the wanted nodes that are due, and return those nodes."""
        due = [name for name, node in self._nodes.items() if node.due_at <= now and is_wanted(name)]
        for name in due:
            del self._nodes[name]
        named = frozenset(name for name in due if isinstance(name, str))
        return EventBatch(named, has_all_nodes=ALL_NODES in due)


class DeletedGuests:
    """Guests by node that may be gone (`EventKind.GONE`), until they change again.

    Not safe for several threads.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, float]] = {}

    def add(self, event: NodeEvent, now: float) -> None:
        """Add the guest of an event, or remove it; a guest of an unknown node is left out."""
        if not isinstance(event.nodename, str):
            return
        if event.kind is EventKind.GONE:
            self._nodes.setdefault(event.nodename, {})[event.workload_uuid] = now
        elif event.kind is EventKind.CHANGED:
            self._nodes.get(event.nodename, {}).pop(event.workload_uuid, None)

    def of_node(self, nodename: str) -> dict[str, float]:
        """Return uuid -> moment of the last event."""
        return dict(self._nodes.get(nodename, {}))

    def forget(self, nodename: str, moments: Mapping[str, float]) -> None:
        """Remove guests unless a later event reports them."""
        left = dict(self.of_node(nodename).items() - moments.items())
        self._nodes.pop(nodename, None)
        if left:
            self._nodes[nodename] = left


ENDED_SECONDS = 600.0
"""How long the end of a guest is known: longer than the reading of a node takes."""

LINGER_SECONDS = 1.0
"""How long a batch waits for the next reading, so that many quick nodes are one batch."""

URGENT_LINGER_SECONDS = 0.1
"""How long a reading that an event requested waits for others."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A reading of a node that ended.

    Attributes:
        number: of the reading; later ones have higher numbers, those not read have 0.
        deleted_before: guests that events reported as gone before the reading
            started, with the moment; its listing decides on no others.
        is_urgent: whether an event requested it.
        started_at: moment of the timer.
    """

    snapshot: HostSnapshot
    number: int = 0
    deleted_before: Mapping[str, float] = field(default_factory=dict)
    is_urgent: bool = False
    started_at: float = float("inf")

    @property
    def nodename(self) -> str:
        """The node that was read."""
        return self.snapshot.nodename


class ReadingBatch:
    """Readings that wait to be written together, the newest of each node.

    Attributes:
        due_at: moment of the timer at which they wait no longer.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._readings: dict[str, NodeReading] = {}
        self._has_urgent = False
        self.due_at = float("inf")

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._readings)

    def add(self, reading: NodeReading) -> None:
        """Add a reading; the batch then waits for another one, unless it has an urgent one."""
        now = self._timer.now()
        self._readings[reading.nodename] = reading
        if reading.is_urgent:
            self._has_urgent = True
            self.due_at = min(self.due_at, now + URGENT_LINGER_SECONDS)
        elif not self._has_urgent:
            self.due_at = now + LINGER_SECONDS

    def is_due(self, is_reading: bool) -> bool:
        """Return whether to write now.

        Args:
            is_reading: whether any node is still being read.
        """
        return bool(self._readings) and (not is_reading or self._timer.now() >= self.due_at)

    def take(self) -> list[NodeReading]:
        """Remove and return the readings."""
        readings = list(self._readings.values())
        self._readings, self._has_urgent, self.due_at = {}, False, float("inf")
        return readings


@dataclass(frozen=True, slots=True)
class Work:
    """Readings and events that an audit takes from the queue; empty if none came in time."""

    readings: Sequence[NodeReading]
    events: EventBatch


class AuditQueue:
    """Collects readings and events from any thread; one audit at a time takes them.

    Args:
        timer: the time by which events are due.

    Attributes:
        arrivals: requested with each event.
    """

    def __init__(self, timer: Timer | None = None) -> None:
        self.timer = timer or Timer()
        self.arrivals = Wakeup()
        self._changed = threading.Condition()
        self._readings: list[NodeReading] = []
        self._events = PendingEvents()
        self._deleted = DeletedGuests()
        self._ended: dict[tuple[str, str], float] = {}  # node and guest -> moment of the timer
        self._is_closed = False

    def put_reading(self, reading: NodeReading) -> None:
        """Add a reading that ended."""
        with self._changed:
            self._readings.append(reading)
            self._changed.notify_all()

    def put_event(self, event: NodeEvent) -> None:
        """Add an event, and request that someone waits until it is due."""
        with self._changed:
            now = self.timer.now()
            self._events.add(event, now)
            self._deleted.add(event, now)
            self._changed.notify_all()
        self.arrivals.request()

    def take(self, until: float, is_wanted: NodeFilter) -> Work:
        """Wait for readings and due events, and remove them.

        Args:
            until: moment of the timer; what is queued is returned also after it.
            is_wanted: whether an event's node may be read now; the others' remain.
        """
        with self._changed:
            while True:
                now = self.timer.now()
                events = self._events.take(now, is_wanted)
                if events or self._readings or now >= until:
                    readings, self._readings = self._readings, []
                    return Work(readings, events)
                due_at = self._events.due_at(is_wanted)
                wake_at = until if due_at is None else min(until, due_at)
                self.timer.wait(self._changed, wake_at - now)

    def take_events(self) -> EventBatch:
        """Remove all events that are due."""
        with self._changed:
            return self._events.take(self.timer.now())

    def list_deleted(self, nodename: str) -> dict[str, float]:
        """Return the guests of a node that events report as gone: uuid -> moment."""
        with self._changed:
            return self._deleted.of_node(nodename)

    def forget_deleted(self, nodename: str, moments: Mapping[str, float]) -> None:
        """Remove guests that may be gone, unless a later event reports them."""
        with self._changed:
            self._deleted.forget(nodename, moments)

    def note_end(self, nodename: str, workload_uuid: str) -> None:
        """Note that a guest ends now: a reading of its node that has started may list it still."""
        with self._changed:
            now = self.timer.now()
            self._ended = {k: at for k, at in self._ended.items() if at > now - ENDED_SECONDS}
            self._ended[nodename, workload_uuid] = now

    @property
    def has_ends(self) -> bool:
        """Whether any guest has ended recently."""
        return bool(self._ended)

    def list_ended(self, nodename: str, since: float) -> frozenset[str]:
        """Return the guests of a node that have ended since a moment."""
        with self._changed:
            ended = self._ended.items()
            return frozenset(uuid for (node, uuid), at in ended if node == nodename and at >= since)

    def wait_for_event(self) -> bool:
        """Wait until an event is due; return False without any, or once `close` was called."""
        with self._changed:
            while not self._is_closed:
                due_at = self._events.due_at()
                if due_at is None:
                    return False
                delay = due_at - self.timer.now()
                if delay <= 0:
                    return True
                self.timer.wait(self._changed, delay)
        return False

    def close(self) -> None:
        """End `wait_for_event`; an audit that runs may still take readings."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
