"""Keep events until their nodes are read, and the guests that they report as deleted.

A storm of events causes one reading. A node is read `QUIET_SECONDS` after an
event, and `STOP_SECONDS` after one that may be half of a reboot, so that its
other half comes first. Further events postpone the reading for at most
`LONGEST_SECONDS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodetracker.model.event import ALL_NODES, AllNodes, EventKind, NodeEvent

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
    """Guests by node that were undefined or destroyed, until they are defined again.

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
        """Return uuid -> moment of the last deletion."""
        return dict(self._nodes.get(nodename, {}))

    def forget(self, nodename: str, moments: Mapping[str, float]) -> None:
        """Remove guests unless they were deleted again since."""
        left = dict(self.of_node(nodename).items() - moments.items())
        self._nodes.pop(nodename, None)
        if left:
            self._nodes[nodename] = left
