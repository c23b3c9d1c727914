"""Read nodes concurrently; a node whose reading hangs is not read again until that returns."""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from nodetracker.compute.audit_queue import AuditQueue, NodeReading
from nodetracker.model.errors import DriverUnavailableError
from nodetracker.model.node import failed_snapshot
from nodetracker.ports import Driver
from nodetracker.process.workers import HangGuard, Task

LOG = logging.getLogger(__name__)

_DOES_NOT_ANSWER = "does not answer"


@dataclass(slots=True)
class _Call:
    """A reading that has not been accepted yet.

    Attributes:
        reading: its value, with a failed snapshot until it ends.
        started_at: moment of the timer, None while it waits for a thread.
    """

    reading: NodeReading
    task: Task[None] | None = None
    started_at: float | None = None


@dataclass(slots=True)
class _Group:
    """Threads that make calls in their order, and the calls that were not accepted yet.

    Attributes:
        calls: by their numbers, in their order; so the first one started first.
    """

    guard: HangGuard[str]
    calls: dict[int, _Call] = field(default_factory=dict)

    @property
    def oldest(self) -> _Call | None:
        return next(iter(self.calls.values()), None)

    def oldest_started_at(self, now: float) -> float:
        """Return when the first call started; now if it has not, or there is none."""
        started_at = None if self.oldest is None else self.oldest.started_at
        return now if started_at is None else started_at


class NodeReader:
    """Queries a driver for its nodes in threads that put the readings on a queue.

    Readings that events request have threads of their own, so that they do not
    wait for nodes that hang.

    Args:
        probe_timeout: timeout of a driver's probe in seconds.
        max_concurrent: limit of nodes that are read concurrently, and of those
            that events request; hung readings do not count.
    """

    def __init__(
        self, driver: Driver, queue: AuditQueue, probe_timeout: float, max_concurrent: int
    ) -> None:
        self._driver = driver
        self._queue = queue
        self._probe_timeout = probe_timeout
        self._groups = [_Group(HangGuard(name, max_concurrent)) for name in ("audit", "event")]
        self._numbers = itertools.count()
        self._first_number = 0
        self._requested: dict[str, _Call] = {}  # by this audit, not by events
        self._logged_failures: dict[str, str] = {}

    def change_timeout(self, probe_timeout: float) -> None:
        """Use another timeout from now on."""
        self._probe_timeout = probe_timeout

    def discard_earlier(self) -> None:
        """Accept no reading that was started before: its audit was interrupted."""
        self._first_number = next(self._numbers)
        self._requested.clear()

    def start(
        self,
        nodename: str,
        deleted_before: Mapping[str, float] = MappingProxyType({}),
        is_urgent: bool = False,
    ) -> None:
        """Start to read a node.

        The queue gets one reading of it: a failed one immediately if the last still hangs.
        One that hangs now is returned by `accept` instead.
        """
        number = next(self._numbers)
        unread = failed_snapshot(nodename, "driver", _DOES_NOT_ANSWER)
        call = _Call(NodeReading(unread, number, deleted_before, is_urgent))
        group = self._groups[is_urgent]
        group.calls[number] = call
        if not is_urgent:
            self._requested[nodename] = call
        if not any(other.guard.is_blocked(nodename) for other in self._groups):
            call.task = group.guard.start(nodename, partial(self._run, call))
        if call.task is None:
            self._queue.put_reading(self._fail(call.reading, "driver", _DOES_NOT_ANSWER))
        self._fail_unstarted((call,))

    def accept(self, readings: Sequence[NodeReading]) -> list[NodeReading]:
        """Return those readings that are awaited, and failed ones of nodes that hang."""
        known = [
            reading
            for reading in readings
            if self._groups[reading.is_urgent].calls.pop(reading.number, None) is not None
        ]
        for group in self._groups:
            known += self._give_up_hung(group)
        return [reading for reading in known if reading.number >= self._first_number]

    def is_waiting(self, nodename: str) -> bool:
        """Return whether the audit's reading of a node waits for a thread."""
        call = self._requested.get(nodename)
        return call is not None and call.task is not None and call.started_at is None

    @property
    def next_timeout(self) -> float:
        """Moment of the timer at which `accept` is to be called even without a reading."""
        now = self._queue.timer.now()
        return min(group.oldest_started_at(now) for group in self._groups) + self._budget

    @property
    def _budget(self) -> float:
        # A driver's probes have timeouts of their own; this is for drivers that run none.
        return self._probe_timeout * 2

    def _give_up_hung(self, group: _Group) -> list[NodeReading]:
        """Leave the calls behind that exceed their budget; return failed readings of them."""
        hung = []
        now = self._queue.timer.now()
        while (call := group.oldest) is not None:
            if call.started_at is None or now < call.started_at + self._budget:
                break
            if call.task is None or not group.guard.abandon(call.reading.nodename, call.task):
                break  # it has just ended, and its reading is queued
            del group.calls[call.reading.number]
            hung.append(self._fail(call.reading, "driver", _DOES_NOT_ANSWER))
        if hung:
            self._fail_unstarted(group.calls.values())
        return hung

    def _fail_unstarted(self, calls: Iterable[_Call]) -> None:
        """Queue failed readings of calls that no thread could be started for."""
        for call in calls:
            error = None if call.task is None else call.task.error
            if error is not None:
                reason = f"{type(error).__name__}: {error}"
                self._queue.put_reading(self._fail(call.reading, "driver", reason))

    def _run(self, call: _Call) -> None:
        call.started_at = self._queue.timer.now()
        self._queue.put_reading(self._read(call.reading))

    def _read(self, reading: NodeReading) -> NodeReading:
        try:
            snapshot = self._driver.get_available_resource(reading.nodename)
        except DriverUnavailableError as error:
            source, reason = error.source, error.reason
        except BaseException as error:  # a fault of the driver affects only its node
            LOG.debug("Reading node %s failed", reading.nodename, exc_info=True)
            source, reason = "driver", f"{type(error).__name__}: {error}"
        else:
            self._logged_failures.pop(reading.nodename, None)
            return replace(reading, snapshot=snapshot)
        return self._fail(reading, source, reason)

    def _fail(self, reading: NodeReading, source: str, reason: str) -> NodeReading:
        """Return a failed reading; log its reason once."""
        nodename = reading.nodename
        if self._logged_failures.get(nodename) != reason:
            self._logged_failures[nodename] = reason
            LOG.warning("Node %s cannot be read: %s: %s", nodename, source, reason)
        return replace(reading, snapshot=failed_snapshot(nodename, source, reason))
