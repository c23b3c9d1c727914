"""Queue what the audits of a host work on: readings that ended, and nodes named by events."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodetracker.compute.events import DeletedGuests, EventBatch, NodeFilter, PendingEvents
from nodetracker.compute.reading import NodeReading
from nodetracker.model.event import NodeEvent
from nodetracker.process.clock import Timer
from nodetracker.process.loops import Wakeup


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
        """Return the guests of a node that events report as deleted: uuid -> moment."""
        with self._changed:
            return self._deleted.of_node(nodename)

    def forget_deleted(self, nodename: str, moments: Mapping[str, float]) -> None:
        """Remove deleted guests, unless they were deleted again since."""
        with self._changed:
            self._deleted.forget(nodename, moments)

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
