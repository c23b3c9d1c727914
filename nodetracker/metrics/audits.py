"""Count the audits: outcomes, durations, changes and database errors."""

import enum
from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.durations import Durations
from nodetracker.metrics.families import counters
from nodetracker.metrics.store_errors import (
    StoreErrorKind,
    kind_of_store_error,
    render_store_errors,
)
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: an audit without changes takes milliseconds, a hung probe 20 s."""


class AuditResult(enum.StrEnum):
    """The outcome of one audit."""

    COMPLETE = "complete"  # every node was read completely and stored
    INCOMPLETE = "incomplete"  # stored, but reading some node or source failed
    NOT_STORED = "not_stored"  # writing to the database failed


class AuditCounter:
    """Counts audits since the start. Not thread-safe."""

    def __init__(self) -> None:
        self._outcomes: Counter[AuditResult] = Counter()
        self._errors: Counter[StoreErrorKind] = Counter()
        self._changes: Counter[ChangeKind] = Counter()
        self._durations = Durations(BUCKETS)

    def add(self, report: AuditReport) -> None:
        """Count one audit."""
        self._outcomes[_outcome_of(report)] += 1
        self._changes.update(change.kind for change in report.changes)
        self._durations.add(report.duration_seconds)
        if report.store_error is not None:
            self._errors[kind_of_store_error(report.store_error)] += 1

    def render(self) -> Iterator[Metric]:
        """Yield the families."""
        yield counters(
            "audits",
            "Audits by outcome.",
            ("outcome",),
            [((outcome.value,), self._outcomes[outcome]) for outcome in AuditResult],
        )
        yield self._durations.render("audit_duration_seconds", "Duration of audits, stored or not.")
        yield counters(
            "node_changes",
            "Changes of node rows written by audits.",
            ("kind",),
            [((kind.value,), self._changes[kind]) for kind in ChangeKind],
        )
        yield render_store_errors(
            "database_errors", "Audits that could not be written to the database.", self._errors
        )


def _outcome_of(report: AuditReport) -> AuditResult:
    if report.store_error is not None:
        return AuditResult.NOT_STORED
    return AuditResult.COMPLETE if report.is_good else AuditResult.INCOMPLETE
