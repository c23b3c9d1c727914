"""Events that wait for their audit: a storm is one audit, half a reboot is none.

A node is read `QUIET_SECONDS` after an event, and `STOP_SECONDS` after one that
may be half of a reboot, so that its other half comes first. Events that go on
and on put the audit off no longer than `LONGEST_SECONDS`.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodetracker.model.event import EventKind, NodeEvent

QUIET_SECONDS = 0.05
STOP_SECONDS = 0.6
LONGEST_SECONDS = 0.8

_ENDS = frozenset({EventKind.STOPPED, EventKind.GONE})


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Nodes that are to be read now.

    Attributes:
        nodenames: "" among them stands for all.
        gone: nodename -> uuids of guests that were undefined or destroyed and
            did not come back.
    """

    nodenames: frozenset[str] = frozenset()
    gone: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Waiting:
    """The events of one node that wait: by workload uuid when each is due, and who is gone."""

    first_at: float
    due: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    @property
    def due_at(self) -> float:
        return min(self.first_at + LONGEST_SECONDS, max(self.due.values()))


def _is_any(_nodename: str) -> bool:
    return True


class EventQueue:
    """Takes events from any thread and gives them out by node when they are due.

    Args:
        monotonic: seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._nodes: dict[str, _Waiting] = {}

    def add(self, event: NodeEvent) -> None:
        """Note an event; a later one of the same guest takes its place."""
        now = self._monotonic()
        with self._lock:
            node = self._nodes.setdefault(event.nodename, _Waiting(now))
            wait = STOP_SECONDS if event.kind in _ENDS else QUIET_SECONDS
            node.due[event.workload_uuid] = now + wait
            if event.kind is EventKind.GONE:
                node.gone.add(event.workload_uuid)
            elif event.kind is EventKind.CHANGED:
                node.gone.discard(event.workload_uuid)

    def delay(self) -> float | None:
        """Return in how many seconds a node is due, 0 when one is now, None when none waits."""
        with self._lock:
            if not self._nodes:
                return None
            due_at = min(node.due_at for node in self._nodes.values())
        return max(0.0, due_at - self._monotonic())

    def take(self, is_wanted: Callable[[str], bool] = _is_any) -> EventBatch:
        """Return the nodes that are due, and forget their events.

        Args:
            is_wanted: whether a node is read now; the events of others stay.
        """
        now = self._monotonic()
        with self._lock:
            due = [
                name for name, node in self._nodes.items() if node.due_at <= now and is_wanted(name)
            ]
            taken = {name: self._nodes.pop(name) for name in due}
        return EventBatch(
            frozenset(taken),
            {name: frozenset(node.gone) for name, node in taken.items() if node.gone},
        )
