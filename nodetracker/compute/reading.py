"""Values of the readings of nodes, and the batches in which audits write them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.model.node import HostSnapshot
from nodetracker.process.clock import Timer

LINGER_SECONDS = 1.0
"""How long a batch waits for the next reading, so that many quick nodes are one batch."""

URGENT_LINGER_SECONDS = 0.1
"""How long a reading that an event requested waits for others."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A reading of a node that ended.

    Attributes:
        number: of the reading; later ones have higher numbers, those not read have 0.
        deleted_before: guests that were undefined or destroyed before the reading
            started, with the moment; its listing decides on no others.
        is_urgent: whether an event requested it.
    """

    snapshot: HostSnapshot
    number: int = 0
    deleted_before: Mapping[str, float] = field(default_factory=dict)
    is_urgent: bool = False

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
