"""Run probes: bound, time and count each, and log a change of its outcome once.

A driver runs each query of its source through a `ProbeRunner` and gets a fact
back, fresh or failed. A probe that hangs is not run again until it returns;
after a few hung calls their source is not queried until one of them returns.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.model.fact import Fact, ProbeOutcome, ProbeStatistics, failed, fresh
from nodetracker.process.workers import HangGuard, Task

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


class Pending(Generic[T]):
    """A probe that runs, or one that was not started; `fact` waits for the outcome."""

    def __init__(
        self, runner: "ProbeRunner", key: ProbeKey, task: Task[T] | None, refusal: str | None = None
    ) -> None:
        self._runner = runner
        self._key = key
        self._task = task
        self._refusal = refusal

    @property
    def is_done(self) -> bool:
        """Whether `fact` returns immediately."""
        return self._task is None or self._task.is_done

    @property
    def is_skipped(self) -> bool:
        """Whether it was not started, as an earlier call of it or of its source hangs."""
        return self._task is None

    @property
    def is_hung(self) -> bool:
        """Whether its call hangs, or an earlier one does, once `fact` has returned."""
        return self._task is None or not self._task.is_done

    def fact(self, timeout_seconds: float | None = None) -> Fact[T]:
        """Return the fact, within the probe's timeout."""
        seconds = timeout_seconds or self._runner.timeout_seconds
        if self._task is None:
            return self._runner.skip(self._key, self._refusal or _describe_timeout(seconds))
        return self._runner.finish(self._key, self._task, seconds)


class ProbeRunner:
    """Runs the probes of all drivers concurrently.

    Args:
        max_threads: limit of probes that run concurrently; hung ones do not count.
    """

    def __init__(self, timeout_seconds: float, max_threads: int = 16) -> None:
        self._timeout = timeout_seconds
        self._guard: HangGuard[ProbeKey] = HangGuard("probe", max_threads, on_return=_log_returned)
        self._lock = threading.Lock()
        self._last_error: dict[ProbeKey, str] = {}
        self._statistics: dict[str, ProbeStatistics] = {}

    def start(self, key: ProbeKey, read: Callable[[], T]) -> Pending[T]:
        """Start a probe, unless an earlier call of it, or its whole source, still hangs."""
        is_source_hung = self._count_hung(key.source) >= MAX_STUCK_CALLS
        if is_source_hung and not self._guard.is_blocked(key):
            return Pending(self, key, None, "not queried while other calls of it hang")
        return Pending(self, key, self._guard.start(key, read))

    def run(self, key: ProbeKey, read: Callable[[], T]) -> Fact[T]:
        return self.start(key, read).fact()

    def skip(self, key: ProbeKey, refusal: str) -> Fact[T]:
        """Count a probe that was not started; its hung call is logged when it hangs and returns."""
        with self._lock:
            self._count(key, ProbeOutcome.SKIPPED)
        return failed(key.source, refusal)

    def finish(self, key: ProbeKey, task: Task[T], seconds: float) -> Fact[T]:
        """Wait for a probe, count it, and log it if its outcome has changed."""
        if not task.wait(seconds):
            self._abandon(key, task)
            return self._fail(key, _describe_timeout(seconds), ProbeOutcome.TIMED_OUT, seconds)
        error = task.error
        if error is not None:
            return self._fail(key, _describe(key, error), ProbeOutcome.FAILED, task.seconds)
        value = task.result()
        with self._lock:
            self._count(key, ProbeOutcome.SUCCEEDED, task.seconds)
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
        return len(self._guard.hung_keys())

    @property
    def thread_count(self) -> int:
        """Number of the probes' threads, hung ones included."""
        return self._guard.thread_count

    def _abandon(self, key: ProbeKey, task: Task[T]) -> None:
        with self._lock:
            hangs = self._guard.abandon(key, task)
            is_source_hung = hangs and self._count_hung(key.source) == MAX_STUCK_CALLS
        if is_source_hung:
            LOG.debug("%s is not queried until one of its hung calls returns", key.source)

    def _count_hung(self, source: str) -> int:
        return sum(1 for key in self._guard.hung_keys() if key.source == source)

    def _count(self, key: ProbeKey, outcome: ProbeOutcome, seconds: float = 0.0) -> None:
        counted = self._statistics.setdefault(key.name, ProbeStatistics())
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


def _describe_timeout(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


def _log_returned(key: ProbeKey) -> None:
    LOG.info("A hung call of probe %s (%s) has returned", key, key.source)


def _describe(key: ProbeKey, error: BaseException) -> str:
    if isinstance(error, (HostDataError, DriverUnavailableError)):
        return error.reason if error.source == key.source else str(error)
    # A fault in a probe fails its fact, never the audit.
    LOG.debug("Probe %s failed unexpectedly", key, exc_info=error)
    return f"{type(error).__name__}: {error}"
