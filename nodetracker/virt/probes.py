"""Run probes: bound, time and count each, and log a change of its outcome once.

A driver runs each query of its source through a `ProbeRunner` and gets a fact
back, fresh or failed. A probe that hangs is not run again until it returns;
after a few hung calls their source is not queried until one of them returns.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nodetracker.model.errors import DriverUnavailableError, HostDataError, describe_error
from nodetracker.model.fact import Fact, ProbeOutcome, ProbeStatistics, failed, fresh
from nodetracker.process.workers import Call, Executor

LOG = logging.getLogger(__name__)

MAX_STUCK_CALLS = 3
"""Number of hung calls after which a source is not queried until one of them returns."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProbeKey:
    """Identity of a probe: the source it queries, the node and the probe's name."""

    source: str
    nodename: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} of {self.nodename}" if self.nodename else self.name


@dataclass(frozen=True, slots=True)
class Pending(Generic[T]):
    """A probe that runs, or was refused; `fact` waits for the outcome."""

    runner: "ProbeRunner"
    key: ProbeKey
    call: Call[T]

    def fact(self) -> Fact[T]:
        """Return the fact, within the probe's timeout."""
        return self.runner.finish(self.key, self.call)


class ProbeRunner:
    """Runs the probes of all drivers concurrently.

    Args:
        max_threads: limit of probes that run concurrently; hung ones do not count.
    """

    def __init__(self, timeout_seconds: float, max_threads: int = 16) -> None:
        self._timeout = timeout_seconds
        self._executor = Executor("probe", max_threads, MAX_STUCK_CALLS, on_end=self._end)
        self._returned: list[Call[Any]] = []
        self._lock = threading.Lock()
        self._last_error: dict[ProbeKey, str] = {}
        self._statistics: dict[str, ProbeStatistics] = {}

    def start(
        self, key: ProbeKey, read: Callable[[], T], timeout_seconds: float | None = None
    ) -> Pending[T]:
        """Start a probe, unless an earlier call of it, or its whole source, still hangs."""
        self._log_returned()
        seconds = timeout_seconds or self._timeout
        return Pending(self, key, self._executor.start(key.source, read, seconds, key))

    def run(self, key: ProbeKey, read: Callable[[], T]) -> Fact[T]:
        """Run a probe in a thread of its own and return its fact, within its timeout."""
        return self.start(key, read).fact()

    def run_here(self, key: ProbeKey, read: Callable[[], T]) -> Fact[T]:
        """Run a probe that waits for nothing in this thread, without a timeout; else as `run`.

        That is for what an earlier probe has read already: the way to another thread and back
        costs several times as much as such a probe. One that queries its source may hang.
        """
        self._log_returned()
        call = self._executor.make_here(key.source, read, self._timeout, key)
        return self.finish(key, call)

    def finish(self, key: ProbeKey, call: Call[T]) -> Fact[T]:
        """Wait for a probe, count it, and log it if its outcome has changed.

        One that was refused is only counted: its hung call is logged when it hangs and returns.
        """
        timeout = f"no answer within {call.limit_seconds:g} s"
        if call.is_refused:
            with self._lock:
                self._count(key, ProbeOutcome.SKIPPED)
            return failed(
                key.source, timeout if call.repeats else "not queried while other calls of it hang"
            )
        if not call.wait():
            return self._fail(key, timeout, ProbeOutcome.TIMED_OUT, call.limit_seconds)
        if call.error is not None:
            return self._fail(key, _describe(key, call.error), ProbeOutcome.FAILED, call.seconds)
        value = call.result()
        with self._lock:
            self._count(key, ProbeOutcome.SUCCEEDED, call.seconds)
            was_failing = self._last_error.pop(key, None) is not None
        if was_failing:
            LOG.info("Probe %s (%s) answers again", key, key.source)
        return fresh(key.source, value)

    def change_timeout(self, seconds: float) -> None:
        self._timeout = seconds

    def statistics(self) -> dict[str, ProbeStatistics]:
        """Return a copy of the counters, by probe name."""
        with self._lock:
            return {
                name: ProbeStatistics(dict(counted.calls), counted.seconds)
                for name, counted in self._statistics.items()
            }

    @property
    def timeout_seconds(self) -> float:
        return self._timeout

    @property
    def stuck_count(self) -> int:
        return self._executor.hung_count

    def _log_returned(self) -> None:
        with self._lock:
            returned, self._returned = self._returned, []
        for call in returned:
            LOG.info("A hung call of probe %s (%s) has returned", call.name, call.source)

    def _end(self, call: Call[Any]) -> None:
        if call.is_hung:
            with self._lock:
                self._returned.append(call)

    def _count(self, key: ProbeKey, outcome: ProbeOutcome, seconds: float = 0.0) -> None:
        counted = self._statistics.get(key.name)
        if counted is None:
            counted = self._statistics[key.name] = ProbeStatistics()
        counted.calls[outcome] += 1
        counted.seconds += seconds

    def _fail(self, key: ProbeKey, error: str, outcome: ProbeOutcome, seconds: float) -> Fact[T]:
        with self._lock:
            self._count(key, outcome, seconds)
            is_news = self._last_error.get(key) != error
            self._last_error[key] = error
        if is_news:
            LOG.warning("Probe %s failed: %s: %s", key, key.source, error)
        return failed(key.source, error)


def _describe(key: ProbeKey, error: BaseException) -> str:
    if isinstance(error, (HostDataError, DriverUnavailableError)):
        return error.reason if error.source == key.source else str(error)
    # A fault in a probe fails its fact, never the audit.
    LOG.debug("Probe %s failed unexpectedly", key, exc_info=error)
    return describe_error(error)
