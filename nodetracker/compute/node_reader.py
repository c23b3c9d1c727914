"""Reads nodes side by side: quick ones at once, slow ones within a bound, hung ones not again."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from nodetracker.errors import DriverUnavailableError
from nodetracker.model.node import HostSnapshot, failed_snapshot
from nodetracker.ports import Driver
from nodetracker.workers import Task, WorkerPool

LOG = logging.getLogger(__name__)

SETTLE_SECONDS = 1.0
"""Nodes that are read by then are written at once and do not wait for slow ones."""

_POLL_INTERVAL = 0.05
"""How often events are looked for while a slow node is waited for."""

_DOES_NOT_ANSWER = "does not answer"

TakeUrgent = Callable[[Callable[[str], bool]], Collection[str]]
"""Gives the nodes that events concern, of those for which the function it is given is true."""


def _ignore(*_: object) -> None:
    """Tell nobody."""


def _take_none(_is_wanted: Callable[[str], bool]) -> Collection[str]:
    return ()


class NodeReader:
    """Asks a driver for its nodes, and remembers which of them hang.

    Args:
        probe_timeout: seconds that a driver's probe gets.
        at_once: nodes that are read side by side.

    Attributes:
        progress: is called at each step of a reading; every step is bounded.
        begins: is told of each node before it is read.
        take_urgent: gives nodes that events concern, to be read while slow
            ones are waited for; every one that it gives is read and written.
    """

    def __init__(self, driver: Driver, probe_timeout: float, at_once: int) -> None:
        self.probe_timeout = probe_timeout
        self.progress: Callable[[], None] = _ignore
        self.begins: Callable[[str], None] = _ignore
        self.take_urgent: TakeUrgent = _take_none
        self._driver = driver
        self._readers = WorkerPool("audit", at_once)
        self._hung: dict[str, Task[HostSnapshot]] = {}
        self._told_failures: dict[str, str] = {}

    def read(
        self, nodenames: Sequence[str], is_known: Callable[[str], bool]
    ) -> Iterator[list[HostSnapshot]]:
        """Read nodes; give those that are quick first, then the others.

        A node that cannot be read is given with every fact failed. One that an
        event names meanwhile is read once more, unless it is itself waited
        for, or hangs: its event waits for the next audit then.

        Args:
            is_known: whether a node that an event names meanwhile may be read, too.
        """
        tasks: dict[str, Task[HostSnapshot]] = {}
        first: list[HostSnapshot] = []
        for name in nodenames:
            if self._is_hung(name):
                first.append(self._failed(name, "driver", _DOES_NOT_ANSWER))
            else:
                tasks[name] = self._begin(name)
        settle_at = time.monotonic() + SETTLE_SECONDS
        slow: dict[str, Task[HostSnapshot]] = {}
        for name, task in tasks.items():
            if task.wait_until(settle_at):
                first.append(self._outcome(name, task))
            else:
                slow[name] = task
        if first or not slow:
            yield first
        rest: list[HostSnapshot] = []
        late: dict[str, Task[HostSnapshot]] = {}

        def is_wanted(other: str) -> bool:
            is_waited_for = other in slow or other in late
            return is_known(other) and not is_waited_for and not self._is_hung(other)

        for name, task in slow.items():
            self.progress()
            yield from self._read_meanwhile(task, is_wanted, late)
            rest.append(self._await(name, task))
        # No event is taken while these are waited for: a storm keeps no audit from ending.
        for name, task in late.items():
            self.progress()
            rest.append(self._await(name, task))
        if rest:
            yield rest

    def _read_meanwhile(
        self,
        task: Task[HostSnapshot],
        is_wanted: Callable[[str], bool],
        late: dict[str, Task[HostSnapshot]],
    ) -> Iterator[list[HostSnapshot]]:
        """Give nodes whose events are due while a slow one is waited for, within its budget.

        Args:
            late: takes those that turn out to be slow as well.
        """
        over_at = time.monotonic() + self.probe_timeout
        while not task.is_done and time.monotonic() < over_at:
            urgent = {name: self._begin(name) for name in self.take_urgent(is_wanted)}
            settle_at = time.monotonic() + SETTLE_SECONDS
            quick = []
            for name, other in urgent.items():
                if other.wait_until(settle_at):
                    quick.append(self._outcome(name, other))
                else:
                    late[name] = other
            if quick:
                yield quick
            task.wait_until(time.monotonic() + _POLL_INTERVAL)

    def _is_hung(self, nodename: str) -> bool:
        """Tell whether the reading of a node that hung has not returned yet."""
        task = self._hung.get(nodename)
        if task is not None and task.is_done:
            del self._hung[nodename]
        return nodename in self._hung

    def _begin(self, nodename: str) -> Task[HostSnapshot]:
        self.begins(nodename)
        return self._readers.submit(partial(self._read_one, nodename))

    def _read_one(self, nodename: str) -> HostSnapshot:
        failure: tuple[str, str] | None = None
        try:
            snapshot = self._driver.get_available_resource(nodename)
        except DriverUnavailableError as error:
            failure = error.source, error.reason
        except Exception as error:  # a driver's fault costs its node this audit, no more
            LOG.debug("Reading node %s failed", nodename, exc_info=True)
            failure = "driver", f"{type(error).__name__}: {error}"
        if failure is not None:
            return self._failed(nodename, *failure)
        self._told_failures.pop(nodename, None)
        return snapshot

    def _await(self, nodename: str, task: Task[HostSnapshot]) -> HostSnapshot:
        # Every probe is bounded, so this bound is for drivers that run none.
        if task.wait(self.probe_timeout * 2):
            return self._outcome(nodename, task)
        if self._readers.abandon(task):
            self._hung[nodename] = task
        return self._failed(nodename, "driver", _DOES_NOT_ANSWER)

    def _outcome(self, nodename: str, task: Task[HostSnapshot]) -> HostSnapshot:
        error = task.error  # as where no thread can be had to read the node
        if error is not None:
            return self._failed(nodename, "driver", f"{type(error).__name__}: {error}")
        return task.result()

    def _failed(self, nodename: str, source: str, reason: str) -> HostSnapshot:
        """Build the snapshot of a node that its driver could not read; say so once."""
        if self._told_failures.get(nodename) != reason:
            self._told_failures[nodename] = reason
            LOG.warning("Node %s cannot be read: %s: %s", nodename, source, reason)
        return failed_snapshot(nodename, source, reason)
