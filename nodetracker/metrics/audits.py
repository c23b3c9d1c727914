"""Count the audits: outcomes, durations, changes and database errors."""

import bisect
import enum
import itertools
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from nodetracker.errors import ConflictError, SchemaError, StoreError, StoreUnavailableError
from nodetracker.metrics.families import PREFIX, counters
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: an audit without changes takes milliseconds, a hung probe 20 s."""


class AuditResult(enum.StrEnum):
    """The outcome of one audit."""

    COMPLETE = "complete"  # every node was read completely and stored
    INCOMPLETE = "incomplete"  # stored, but reading some node or source failed
    NOT_STORED = "not_stored"  # writing to the database failed


class StoreErrorKind(enum.StrEnum):
    """Why writing an audit to the database failed."""

    UNAVAILABLE = "unavailable"
    SCHEMA = "schema"
    CONFLICT = "conflict"
    REFUSED = "refused"


class AuditCounter:
    """Counts audits since the start. Not thread-safe."""

    def __init__(self) -> None:
        self._outcomes: Counter[AuditResult] = Counter()
        self._errors: Counter[StoreErrorKind] = Counter()
        self._changes: Counter[ChangeKind] = Counter()
        self._durations = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def add(self, report: AuditReport) -> None:
        """Count one audit."""
        self._outcomes[_outcome_of(report)] += 1
        self._changes.update(change.kind for change in report.changes)
        self._durations[bisect.bisect_left(BUCKETS, report.duration_seconds)] += 1
        self._seconds += report.duration_seconds
        if report.store_error is not None:
            self._errors[_kind_of(report.store_error)] += 1

    def render(self) -> Iterator[Metric]:
        """Yield the families."""
        yield counters(
            "audits",
            "Audits by outcome.",
            ("outcome",),
            [((outcome.value,), self._outcomes[outcome]) for outcome in AuditResult],
        )
        durations = HistogramMetricFamily(
            f"{PREFIX}audit_duration_seconds", "Duration of audits, stored or not."
        )
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        cumulated = itertools.accumulate(self._durations)
        durations.add_metric((), list(zip(bounds, cumulated, strict=True)), self._seconds)
        yield durations
        yield counters(
            "node_changes",
            "Changes of node rows written by audits.",
            ("kind",),
            [((kind.value,), self._changes[kind]) for kind in ChangeKind],
        )
        yield counters(
            "database_errors",
            "Audits that could not be written to the database.",
            ("kind",),
            [((kind.value,), self._errors[kind]) for kind in StoreErrorKind],
        )


def _outcome_of(report: AuditReport) -> AuditResult:
    if report.store_error is not None:
        return AuditResult.NOT_STORED
    return AuditResult.COMPLETE if report.is_good else AuditResult.INCOMPLETE


def _kind_of(error: StoreError) -> StoreErrorKind:
    if isinstance(error, StoreUnavailableError):
        return StoreErrorKind.UNAVAILABLE
    if isinstance(error, SchemaError):
        return StoreErrorKind.SCHEMA
    if isinstance(error, ConflictError):
        return StoreErrorKind.CONFLICT
    return StoreErrorKind.REFUSED
