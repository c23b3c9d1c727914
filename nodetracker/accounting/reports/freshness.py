"""Classify how recent the last good reading of a node is."""

import enum

LATE_INTERVALS = 3
"""Audit intervals without a good reading after which a node is late."""


class Freshness(enum.StrEnum):
    """How recent the last good reading of a node is: a class, as ages change all the time."""

    FRESH = "fresh"
    LATE = "late"  # not read for three audit intervals
    STALE = "stale"  # its host is down or unreachable, or it was not read for too long
    NEVER = "never"  # never read completely


def freshness_of(
    state: str, age_seconds: float | None, audit_interval: float | None, held_fact_expiry: float
) -> Freshness:
    """Return how recent a node's last good reading is.

    Args:
        state: of its host's service.
        age_seconds: since the reading, None = never.
        audit_interval: seconds between audits, None = only on demand, or unknown.
        held_fact_expiry: seconds after which an unread node is stale. Where audits
            are less frequent, it becomes so after three of their intervals.

    >>> [freshness_of("up", age, 60, 600).value for age in (180, 181, 601)]
    ['fresh', 'late', 'stale']
    """
    if age_seconds is None:
        return Freshness.NEVER
    allowed = LATE_INTERVALS * audit_interval if audit_interval is not None else 0.0
    if state != "up" or age_seconds > max(held_fact_expiry, allowed):
        return Freshness.STALE
    is_late = audit_interval is not None and age_seconds > allowed
    return Freshness.LATE if is_late else Freshness.FRESH
