"""Collect the metrics of one REST service: its requests, logins, claims and database errors."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.metrics.families import (
    Durations,
    ProcessMetrics,
    StoreErrorKind,
    family,
    render_claims,
    render_store_errors,
)
from nodetracker.model.errors import SchemaError, StoreError, StoreUnavailableError

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds: a node takes milliseconds, 1,000 hypervisors a second."""

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))
"""Counted by name; a client may invent any number of others."""


class RequestCounter:
    """Counts requests by family, method and class of the answer; thread-safe."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._running = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._durations = Durations(BUCKETS)

    def start(self) -> float:
        """Count one that starts; return its time for `end`."""
        with self._lock:
            self._running += 1
        return self._seconds()

    def end(self, started_at: float, family: str, method: str, status: int) -> None:
        """Count one that ends."""
        name = method if method in METHODS else "other"
        with self._lock:
            self._running -= 1
            self._counts[family, name, f"{status // 100}xx"] += 1
            self._durations.add(self._seconds() - started_at)

    def render(self) -> Iterator[Metric]:
        with self._lock:
            running, counts = self._running, dict(sorted(self._counts.items()))
            durations = self._durations.render(
                "api_request_duration_seconds", "Time of requests, from their body to their answer."
            )
        yield family(
            "api_requests_total{family,method,code}",
            "Requests by family of resources, method and class of the answer.",
            counts,
        )
        yield durations
        yield family("api_requests_running", "Requests that are being processed.", running)


class StoreErrorCounter:
    """Counts requests that failed because of the database, and knows the last such error.

    Thread-safe.

    Args:
        lifetime: seconds for which an error counts unless the database answers, as
            no request may follow it.
    """

    def __init__(
        self, lifetime: float = 60.0, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._lifetime = lifetime
        self._seconds = seconds
        self._lock = threading.Lock()
        self._counts: Counter[StoreErrorKind] = Counter()
        self._last: tuple[str, float] | None = None

    def add(self, error: StoreError) -> None:
        with self._lock:
            self._counts[StoreErrorKind.of(error)] += 1
            if isinstance(error, StoreUnavailableError | SchemaError):
                self._last = str(error), self._seconds()

    def clear(self) -> None:
        """Forget the last error: the database has answered."""
        self._last = None

    @property
    def error(self) -> str | None:
        """Why the database could not be used last, None if it has answered since."""
        last = self._last
        if last is None or self._seconds() - last[1] > self._lifetime:
            return None
        return last[0]

    def render(self) -> Metric:
        with self._lock:
            return render_store_errors(
                "api_database_errors", "Requests that failed because of the database.", self._counts
            )


@dataclass(frozen=True, slots=True)
class ApiCounters:
    """What a REST service counts while it processes requests."""

    requests: RequestCounter
    claims: ClaimCounter
    store_errors: StoreErrorCounter


class LoginFailures(Protocol):
    """Counts requests with wrong credentials."""

    @property
    def count(self) -> int:
        """Requests since the start."""


class ApiMetrics(ProcessMetrics):
    """Collects the metrics of a REST service.

    Args:
        is_database_up: returns whether the database can be used, without using it.
    """

    def __init__(
        self,
        version: str,
        counted: ApiCounters,
        login_failures: LoginFailures,
        is_database_up: Callable[[], bool],
    ) -> None:
        super().__init__(version)
        self._counted = counted
        self._login_failures = login_failures
        self._is_database_up = is_database_up

    def render_page(self) -> bytes:
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        yield from super().collect()
        found = self._counted
        yield from found.requests.render()
        failures = self._login_failures.count
        yield family("api_login_failures_total", "Requests with wrong credentials.", failures)
        yield from render_claims(found.claims.read(), "api_")
        yield found.store_errors.render()
        yield family(
            "api_database_up", "1 while the database is available.", self._is_database_up()
        )
