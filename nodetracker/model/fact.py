"""A fact: what one probe found out, or why it did not."""

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class FactState(enum.StrEnum):
    """How far a value may be trusted."""

    FRESH = "fresh"  # read in this audit
    HELD = "held"  # the last good value stands, the reading fails
    UNKNOWN = "unknown"  # never read, or held for longer than held_fact_expiry


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """The outcome of one probe in one audit: a value, or an error.

    A failed fact carries no value: the row keeps what it has. One that was
    read in part has both: its value is taken, and what it lacks is held.
    Whether that counts as held or unknown is decided against the row by
    `nodetracker.accounting.audit.facts`.
    """

    source: str
    value: T | None
    error: str | None = None

    @property
    def is_fresh(self) -> bool:
        """True when the probe gave a whole value."""
        return self.error is None


def fresh(source: str, value: T) -> Fact[T]:
    """Build the fact of a probe that gave `value`."""
    return Fact(source, value)


def failed(source: str, error: str) -> Fact[Any]:
    """Build the fact of a probe that failed; `error` must not change while the failure lasts."""
    return Fact(source, None, error)


@dataclass(frozen=True, slots=True)
class FactEntry:
    """What the row says of one fact: its state, source, since when, and the last error."""

    state: FactState
    source: str
    since: datetime
    error: str | None = None
