"""Keep what waits to be reported, one slot a node, and decide which node is next."""

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from nodetracker.accounting.placement.consumers import list_joint_nodes
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import AdminState
from nodetracker.model.warning import HostWarning
from nodetracker.placement.state import NodeState

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0


class Task(enum.Enum):
    """What a thread is to do, other than to report nodes."""

    REFRESH = "refresh"
    STOP = "stop"


@dataclass(slots=True)
class Slot:
    """One node: what was audited last, and how far placement has it.

    Attributes:
        state: what is known of it in placement; only the thread that works on it uses it.
        waiting_since: when the oldest change came that placement does not have;
            None = placement has all.
        warnings: result of the last report; None before the first one.
        leaks: consumer that the ledger does not know -> when it was first seen.
        losses: consumer of which somebody else removed something -> when, and its warning.
    """

    record: NodeRecord
    admin: AdminState
    state: NodeState = field(default_factory=NodeState)
    waiting_since: float | None = None
    due_at: float = float("-inf")
    is_busy: bool = False
    warnings: tuple[HostWarning, ...] | None = None
    leaks: dict[str, float] = field(default_factory=dict)
    losses: dict[str, tuple[float, HostWarning]] = field(default_factory=dict)

    @property
    def is_unread(self) -> bool:
        """True while nothing is known of it in placement."""
        return self.state.placed is None


class Slots:
    """The nodes of one host; safe for several threads, and never gives one node to two.

    During an outage one node is tried at a time, later and later.

    Args:
        refresh_interval: seconds between refreshes; 0 = never.
        splay: from 0 to 1, the part of the interval before the first refresh.
    """

    def __init__(
        self,
        refresh_interval: float,
        splay: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = refresh_interval
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._slots: dict[str, Slot] = {}
        self._busy = 0
        self._tries = 0
        self._retry_at = float("-inf")
        self._refresh_at = self._next_refresh(splay)
        self._is_refreshing = False
        self._is_stopping = False

    def update(self, records: Mapping[str, NodeRecord], admin: AdminState) -> None:
        """Replace the nodes; those that changed wait, the newest state of each counts."""
        now = self._monotonic()
        with self._changed:
            for name in self._slots.keys() - records.keys():
                self._slots.pop(name).state.is_dropped = True
            for name, record in records.items():
                slot = self._slots.get(name)
                if slot is not None and slot.record.uuid != record.uuid:
                    slot.state.is_dropped, slot = True, None
                if slot is None:
                    self._slots[name] = Slot(record, admin, waiting_since=now)
                elif _version(slot.record) != _version(record) or slot.admin != admin:
                    slot.record, slot.admin = record, admin
                    self._let_wait(slot, now)
                    slot.due_at = float("-inf")
                else:
                    slot.record = record
            self._changed.notify_all()

    def take(self) -> tuple[Slot, ...] | Task:
        """Wait for the slot that is next, a refresh, or the end of the process.

        Returns:
            The slot first, then those that wait too of nodes with which it has moves.
        """
        with self._changed:
            while not self._is_stopping:
                now = self._monotonic()
                wakes_at = float("inf")
                if not self._tries or (not self._busy and now >= self._retry_at):
                    if now >= self._refresh_at and not self._is_refreshing and self._slots:
                        self._is_refreshing = True
                        self._busy += 1
                        return Task.REFRESH
                    slot, wakes_at = self._find_due(now)
                    if slot is not None:
                        taken = (slot, *self._list_joint(slot))
                        for one in taken:
                            one.is_busy = True
                        self._busy += len(taken)
                        return taken
                    wakes_at = min(wakes_at, self._refresh_at)
                elif not self._busy:
                    wakes_at = self._retry_at
                wait = min(wakes_at - now, threading.TIMEOUT_MAX)
                self._changed.wait(max(0.0, wait))
        return Task.STOP

    def end(
        self, slot: Slot, record: NodeRecord, admin: AdminState, retry_at: float | None
    ) -> None:
        """Give a slot back.

        Args:
            retry_at: when to try again; None = placement has it.
        """
        with self._changed:
            slot.is_busy = False
            self._busy -= 1
            if retry_at is not None:
                slot.due_at = max(slot.due_at, retry_at)
            elif slot.record is record and slot.admin == admin:
                slot.waiting_since = None
            self._changed.notify_all()

    def end_refresh(self) -> None:
        with self._changed:
            self._busy -= 1
            self._is_refreshing = False
            self._refresh_at = self._next_refresh(1.0)
            self._changed.notify_all()

    def back_off(self) -> None:
        """Let everything wait after a request without a usable answer."""
        with self._changed:
            now = self._monotonic()
            if now >= self._retry_at:  # else another thread's request failed at the same time
                delay = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self._tries, 10))
                self._tries += 1
                self._retry_at = now + delay

    def end_outage(self) -> None:
        """Record that placement answers; a refresh follows an outage."""
        with self._changed:
            if self._tries:
                self._tries = 0
                self._refresh_at = self._monotonic()

    def review(self, is_outdated: Callable[[Slot], bool]) -> None:
        """Let idle nodes be read and reported again of which what is known is outdated."""
        with self._changed:
            for slot in self._list_idle():
                if is_outdated(slot):
                    slot.state.forget()
                    self._let_wait(slot, self._monotonic())
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no thread works on a node; return False if the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, seconds)

    def wait_reported(self, seconds: float) -> int:
        """Wait until placement has all nodes; return how many it lacks.

        Gives up when no further node was reported for some seconds.
        """
        with self._changed:
            left = self._count_waiting()
            while left and self._changed.wait_for(partial(self._is_below, left), seconds):
                left = self._count_waiting()
            return left

    def idle(self) -> list[Slot]:
        """Return the slots that no thread works on and that do not wait."""
        with self._changed:
            return self._list_idle()

    def count_unread(self) -> int:
        """Return the number of nodes of which nothing is known in placement."""
        with self._changed:
            return sum(slot.is_unread for slot in self._slots.values())

    def __iter__(self) -> Iterator[Slot]:
        with self._changed:
            return iter(list(self._slots.values()))

    def _count_waiting(self) -> int:
        return sum(slot.waiting_since is not None for slot in self._slots.values())

    def _is_below(self, count: int) -> bool:
        return self._count_waiting() < count

    def _list_idle(self) -> list[Slot]:
        return [s for s in self._slots.values() if not s.is_busy and s.waiting_since is None]

    def _find_due(self, now: float) -> tuple[Slot | None, float]:
        """Return the slot that has waited longest, or when the next one is due."""
        waiting = [s for s in self._slots.values() if s.waiting_since is not None and not s.is_busy]
        due = [slot for slot in waiting if slot.due_at <= now]
        if due:
            return min(due, key=lambda slot: slot.waiting_since or 0.0), now
        return None, min((slot.due_at for slot in waiting), default=float("inf"))

    def _list_joint(self, slot: Slot) -> list[Slot]:
        found = [self._slots.get(name) for name in sorted(list_joint_nodes(slot.record))]
        return [s for s in found if s and not s.is_busy and s.waiting_since is not None]

    def _next_refresh(self, fraction: float) -> float:
        return self._monotonic() + self._interval * fraction if self._interval else float("inf")

    @staticmethod
    def _let_wait(slot: Slot, now: float) -> None:
        if slot.waiting_since is None:
            slot.waiting_since = now


def _version(record: NodeRecord) -> tuple[object, ...]:
    return (record.uuid, record.id, record.generation, record.nodename)
