"""Keep what is known of a node in placement, and the findings of one attempt to report it."""

import random
from collections import Counter
from dataclasses import dataclass, field

from nodetracker.accounting.placement.consumers import BATCH_SIZE, Findings
from nodetracker.accounting.placement.steps import ReadConsumer, Step, WriteConsumers
from nodetracker.accounting.placement.tree import PlacedTree
from nodetracker.model.errors import PlacementRefusedError

MAX_CONFLICTS = 4
_JITTER_SECONDS = 0.2
_PROVIDERS = ""  # as the subject of conflicts


@dataclass(slots=True)
class NodeState:
    """What is known of one node in placement; used by one thread at a time.

    Attributes:
        placed: as last read or written; None = to be read again.
        wanted_before: consumers that the node was to have since the start.
        refused: consumers that placement refused, and why.
        foreign: consumers of other types that represent no workload of the node.
        unknown: consumers of nodetracker's types that the ledger does not know.
        healed: those of them that are to be deleted.
        batch_size: limit of consumers in one request; halved when one is not
            answered in time, doubled after a report without that.
        is_dropped: the node exists no longer, so that nothing more is written.
    """

    placed: PlacedTree | None = None
    wanted_before: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    healed: frozenset[str] = frozenset()
    batch_size: int = BATCH_SIZE
    is_dropped: bool = False

    def forget(self) -> None:
        """Read everything again the next time."""
        self.placed = None


class Attempt:
    """What was found out while one node is reconciled."""

    def __init__(self) -> None:
        self._conflicts = Counter[str]()
        self._alone: set[str] = set()
        self._unread: set[str] = set()
        self._has_reread = False
        self._was_late = False

    @property
    def jitter_seconds(self) -> float:
        """How long to wait before the next try; longer after each conflict."""
        return random.uniform(0, _JITTER_SECONDS * 2 ** self._conflicts[_PROVIDERS])  # noqa: S311

    def findings(self, state: NodeState) -> Findings:
        return Findings(
            removable=frozenset(state.wanted_before) | state.healed,
            refused=frozenset(state.refused),
            alone=frozenset(self._alone),
            unread=frozenset(self._unread),
            batch_size=state.batch_size,
        )

    def record_refusal(
        self, state: NodeState, step: WriteConsumers, error: PlacementRefusedError
    ) -> None:
        """Record that placement refused consumers; of several, each is tried alone."""
        if len(step.writes) > 1:
            self._alone |= {write.uuid for write in step.writes}
        else:
            state.refused[step.writes[0].uuid] = error.reason

    def record_timeout(self, state: NodeState, step: Step) -> bool:
        """Record that a request was not answered in time; return whether smaller ones may be."""
        if not isinstance(step, WriteConsumers) or len(step.writes) == 1:
            return False
        self._was_late = True
        state.batch_size = min(state.batch_size, len(step.writes)) // 2 or 1
        if len(step.writes) == 2:
            self._alone |= {write.uuid for write in step.writes}
        return True

    def record_end(self, state: NodeState) -> None:
        """Record that placement has all; after a report without a timeout batches may grow."""
        if not self._was_late:
            state.batch_size = min(BATCH_SIZE, 2 * state.batch_size)

    def record_conflict(self, step: Step, error: Exception) -> bool:
        """Record a conflict; return whether the node is to be read again.

        A request may have been executed later than its answer was waited for,
        so after the first conflict of several consumers the node is read.
        After the next one each of them is tried alone, and then read first.

        Raises:
            PlacementConflictError: there were too many; so does any other error.
        """
        subject = _PROVIDERS
        if isinstance(step, WriteConsumers):
            names = {write.uuid for write in step.writes}
            if len(names) > 1:
                is_first, self._has_reread = not self._has_reread, True
                self._alone |= set() if is_first else names
                return is_first
            self._unread |= names
            [subject] = names
        self._conflicts[subject] += 1
        if self._conflicts[subject] > MAX_CONFLICTS:
            raise error
        return subject == _PROVIDERS

    def record_done(self, step: Step) -> None:
        if isinstance(step, ReadConsumer):
            self._unread.discard(step.uuid)
