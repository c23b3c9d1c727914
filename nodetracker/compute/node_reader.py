"""Read nodes concurrently; a node whose reading hangs is not read again until that returns."""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from nodetracker.compute.audit_queue import AuditQueue, NodeReading
from nodetracker.model.errors import DriverUnavailableError, describe_error
from nodetracker.model.node import HostSnapshot, failed_snapshot
from nodetracker.ports import Driver
from nodetracker.process.workers import Call, Executor

LOG = logging.getLogger(__name__)

_DOES_NOT_ANSWER = "does not answer"


@dataclass(frozen=True, slots=True)
class _Request:
    """A reading that was requested; see `NodeReading`."""

    nodename: str
    number: int
    deleted_before: Mapping[str, float]
    is_urgent: bool
    started_at: float

    def end(self, snapshot: HostSnapshot) -> NodeReading:
        return NodeReading(
            snapshot, self.number, self.deleted_before, self.is_urgent, self.started_at
        )


@dataclass(slots=True)
class _Group:
    """Threads that read nodes, and the readings that were not accepted yet.

    Attributes:
        requests: by their numbers, in their order; so the first one started first.
    """

    executor: Executor
    requests: dict[int, tuple[_Request, Call[None]]] = field(default_factory=dict)


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
        now = queue.timer.now
        audit = Executor("audit", max_concurrent, now=now)
        event = Executor("event", max_concurrent, now=now, beside=audit)
        self._groups = [_Group(audit), _Group(event)]
        self._numbers = itertools.count()
        self._first_number = 0
        self._requested: dict[str, Call[None]] = {}  # by this audit, not by events
        self._logged_failures: dict[str, str] = {}

    def prepare_events(self) -> None:
        """Start the thread that is kept for events; raises ExhaustedError."""
        self._groups[True].executor.prepare()

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
        now = self._queue.timer.now()
        request = _Request(nodename, next(self._numbers), deleted_before, is_urgent, now)
        group = self._groups[is_urgent]
        call = group.executor.start(nodename, partial(self._read, request), self._budget)
        group.requests[request.number] = request, call
        if not is_urgent:
            self._requested[nodename] = call
        self._fail_unmade(((request, call),))

    def accept(self, readings: Sequence[NodeReading]) -> list[NodeReading]:
        """Return those readings that are awaited, and failed ones of nodes that hang."""
        known = [
            reading
            for reading in readings
            if self._groups[reading.is_urgent].requests.pop(reading.number, None) is not None
        ]
        for group in self._groups:
            known += self._give_up_hung(group)
        return [reading for reading in known if reading.number >= self._first_number]

    def is_waiting(self, nodename: str) -> bool:
        """Return whether the audit's reading of a node waits for a thread."""
        call = self._requested.get(nodename)
        return call is not None and call.started_at is None and not call.is_done

    @property
    def next_timeout(self) -> float:
        """Moment of the timer at which `accept` is to be called even without a reading."""
        latest = self._queue.timer.now() + self._budget
        oldest = (next(iter(group.requests.values()), None) for group in self._groups)
        started = (call for _, call in filter(None, oldest) if call.started_at is not None)
        return min((call.deadline for call in started), default=latest)

    @property
    def _budget(self) -> float:
        # A driver's probes have timeouts of their own; this is for drivers that run none.
        return self._probe_timeout * 2

    def _give_up_hung(self, group: _Group) -> list[NodeReading]:
        """Leave the calls behind that exceed their budget; return failed readings of them."""
        hung = []
        for request, call in list(group.requests.values()):
            if not group.executor.expire(call):
                break  # a later one, or it has just ended, and its reading is queued
            del group.requests[request.number]
            hung.append(self._fail(request, "driver", _DOES_NOT_ANSWER))
        if hung:
            self._fail_unmade(group.requests.values())
        return hung

    def _fail_unmade(self, requests: Iterable[tuple[_Request, Call[None]]]) -> None:
        """Queue failed readings of nodes that hang, and where no thread could be started."""
        for request, call in requests:
            if call.is_done and call.started_at is None:
                error = call.error
                if error is None or call.is_hung:
                    reason = _DOES_NOT_ANSWER
                else:
                    reason = describe_error(error)
                self._queue.put_reading(self._fail(request, "driver", reason))

    def _read(self, request: _Request) -> None:
        self._queue.put_reading(self._read_node(request))

    def _read_node(self, request: _Request) -> NodeReading:
        nodename = request.nodename
        try:
            snapshot = self._driver.get_available_resource(nodename)
        except DriverUnavailableError as error:
            source, reason = error.source, error.reason
        except BaseException as error:  # a fault of the driver affects only its node
            LOG.debug("Reading node %s failed", nodename, exc_info=True)
            source, reason = "driver", describe_error(error)
        else:
            self._logged_failures.pop(nodename, None)
            return request.end(snapshot)
        return self._fail(request, source, reason)

    def _fail(self, request: _Request, source: str, reason: str) -> NodeReading:
        """Return a failed reading; log its reason once."""
        nodename = request.nodename
        if self._logged_failures.get(nodename) != reason:
            self._logged_failures[nodename] = reason
            LOG.warning("Node %s cannot be read: %s: %s", nodename, source, reason)
        return request.end(failed_snapshot(nodename, source, reason))
