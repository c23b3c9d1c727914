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

_LOOK_SECONDS = 0.05
"""How often events are looked for while a slow node is waited for."""

_DOES_NOT_ANSWER = "does not answer"


def _ignore() -> None:
    """Tell nobody."""


class NodeReader:
    """Asks a driver for its nodes, and remembers which of them hang.

    Args:
        probe_timeout: seconds that a driver's probe gets.
        at_once: nodes that are read side by side.

    Attributes:
        progress: is called at each step of a reading; every step is bounded.
        take_urgent: gives nodes that events concern, to be read while slow
            ones are waited for.
    """

    def __init__(self, driver: Driver, probe_timeout: float, at_once: int) -> None:
        self.probe_timeout = probe_timeout
        self.progress: Callable[[], None] = _ignore
        self.take_urgent: Callable[[], Collection[str]] = tuple
        self._driver = driver
        self._readers = WorkerPool("audit", at_once)
        self._hung: dict[str, Task[HostSnapshot]] = {}
        self._told_failures: dict[str, str] = {}

    def read(
        self, nodenames: Sequence[str], is_known: Callable[[str], bool]
    ) -> Iterator[list[HostSnapshot]]:
        """Read nodes; give those that are quick first, then the others.

        A node that cannot be read is given with every fact failed.

        Args:
            is_known: whether a node that an event names meanwhile may be read, too.
        """
        tasks: dict[str, Task[HostSnapshot]] = {}
        first: list[HostSnapshot] = []
        for name in nodenames:
            hung = self._hung.get(name)
            if hung is not None and not hung.is_done:
                first.append(self._failed(name, "driver", _DOES_NOT_ANSWER))
                continue
            self._hung.pop(name, None)
            tasks[name] = self._readers.submit(partial(self._read_one, name))
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
        for name, task in slow.items():
            self.progress()
            for others in self._read_meanwhile(
                task, lambda other: is_known(other) and other not in slow
            ):
                yield [others]
            rest.append(self._await(name, task))
        if rest:
            yield rest

    def _read_meanwhile(
        self, task: Task[HostSnapshot], is_wanted: Callable[[str], bool]
    ) -> Iterator[HostSnapshot]:
        """Give nodes whose events are due while a slow one is waited for, within its budget."""
        over_at = time.monotonic() + self.probe_timeout
        while not task.is_done and time.monotonic() < over_at:
            for name in self.take_urgent():
                if is_wanted(name) and name not in self._hung:
                    other = self._readers.submit(partial(self._read_one, name))
                    if other.wait_until(time.monotonic() + SETTLE_SECONDS):
                        yield self._outcome(name, other)
            task.wait_until(time.monotonic() + _LOOK_SECONDS)

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
