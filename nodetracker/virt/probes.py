"""The one wrapper round every probe: a budget, a clock, a count, one log line, and on.

A driver hands each question it asks of its source to a `ProbeRunner` and gets
a fact back, fresh or failed. What hangs is not asked again until it returns;
after a few hung calls the whole source is left alone until one of them does.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nodetracker.errors import DriverUnavailableError, HostDataError
from nodetracker.model.fact import Fact, failed, fresh
from nodetracker.model.probe import ProbeOutcome, ProbeStatistics
from nodetracker.workers import Task, WorkerPool

LOG = logging.getLogger(__name__)

MAX_STUCK_CALLS = 3
"""Hung calls after which a source is not entered again until one returns."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProbeKey:
    """What is asked: of which source, about which node, what."""

    source: str
    nodename: str
    name: str

    def __str__(self) -> str:
        """Name the probe as log lines do."""
        return f"{self.name} of {self.nodename}" if self.nodename else self.name


class Pending(Generic[T]):
    """A probe under way, or one that was not begun; `fact` waits for the outcome."""

    def __init__(
        self, runner: "ProbeRunner", key: ProbeKey, task: Task[T] | None, refusal: str = ""
    ) -> None:
        self._runner = runner
        self._key = key
        self._task = task
        self._refusal = refusal

    @property
    def is_done(self) -> bool:
        """Whether `fact` answers at once."""
        return self._task is None or self._task.is_done

    def fact(self) -> Fact[T]:
        """Return the fact, within the probe's budget."""
        if self._task is None:
            return self._runner.skip(self._key, self._refusal)
        return self._runner.finish(self._key, self._task)


class ProbeRunner:
    """Runs the probes of all drivers side by side.

    Args:
        timeout_seconds: the budget of one probe.
        max_threads: probes that run at once; hung ones do not count.
    """

    def __init__(self, timeout_seconds: float, max_threads: int = 16) -> None:
        self._timeout = timeout_seconds
        self._pool = WorkerPool("probe", max_threads)
        self._lock = threading.Lock()
        self._stuck: dict[ProbeKey, Task[Any]] = {}
        self._closed_sources: set[str] = set()
        self._last_error: dict[ProbeKey, str] = {}
        self._statistics: dict[str, ProbeStatistics] = {}

    def start(self, key: ProbeKey, read: Callable[[], T]) -> Pending[T]:
        """Begin a probe, unless an earlier call of it, or its whole source, still hangs."""
        with self._lock:
            self._forget_returned()
            if key in self._stuck:
                return Pending(self, key, None, self._timeout_text)
            if key.source in self._closed_sources:
                return Pending(self, key, None, "not asked while other calls of it hang")
        return Pending(self, key, self._pool.submit(read))

    def ask(self, key: ProbeKey, read: Callable[[], T]) -> Fact[T]:
        """Run one probe and wait for its fact."""
        return self.start(key, read).fact()

    def skip(self, key: ProbeKey, refusal: str) -> Fact[T]:
        """Count a probe that was not begun; what hangs has been logged, and is logged as over."""
        with self._lock:
            self._count(key, ProbeOutcome.SKIPPED)
        return failed(key.source, refusal)

    def finish(self, key: ProbeKey, task: Task[T]) -> Fact[T]:
        """Wait for a probe, count it, and log it if its outcome is another than last time."""
        if not task.wait(self._timeout):
            with self._lock:
                if self._pool.abandon(task):
                    self._stuck[key] = task
                    self._close_source(key.source)
            return self._fail(key, self._timeout_text, ProbeOutcome.TIMED_OUT, self._timeout)
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
        """Give probes another budget from now on."""
        self._timeout = seconds

    def statistics(self) -> dict[str, ProbeStatistics]:
        """Return a copy of what was counted, by probe name."""
        with self._lock:
            return {
                name: ProbeStatistics(dict(counted.calls), counted.seconds)
                for name, counted in self._statistics.items()
            }

    @property
    def timeout_seconds(self) -> float:
        """The budget of one probe."""
        return self._timeout

    @property
    def stuck_count(self) -> int:
        """How many calls hang now."""
        with self._lock:
            self._forget_returned()
            return len(self._stuck)

    @property
    def thread_count(self) -> int:
        """How many threads the probes have, hung ones included."""
        return self._pool.thread_count

    @property
    def _timeout_text(self) -> str:
        return f"no answer within {self._timeout:g} s"

    def _forget_returned(self) -> None:
        for key in [key for key, task in self._stuck.items() if task.is_done]:
            del self._stuck[key]
            LOG.info("A hung call of probe %s (%s) has returned", key, key.source)
            if self._hung_of(key.source) < MAX_STUCK_CALLS:
                self._closed_sources.discard(key.source)

    def _close_source(self, source: str) -> None:
        if source not in self._closed_sources and self._hung_of(source) >= MAX_STUCK_CALLS:
            self._closed_sources.add(source)
            LOG.warning("%s is not asked again until one of its hung calls returns", source)

    def _hung_of(self, source: str) -> int:
        return sum(1 for key in self._stuck if key.source == source)

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


def _describe(key: ProbeKey, error: BaseException) -> str:
    if isinstance(error, (HostDataError, DriverUnavailableError)):
        return error.reason if error.source == key.source else str(error)
    # A fault in a probe costs its fact, never the audit.
    LOG.debug("Probe %s failed in a way it should not", key, exc_info=error)
    return f"{type(error).__name__}: {error}"
