"""Facts: the result of one probe, or the reason of its failure; and the probes' statistics."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.text import sanitize_text

T = TypeVar("T")
U = TypeVar("U")


class FactState(enum.StrEnum):
    """The reliability of a fact's value."""

    FRESH = "fresh"  # read in this audit
    HELD = "held"  # the last good value is kept while the probe fails
    UNKNOWN = "unknown"  # never read, or held for longer than held_fact_expiry


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """The outcome of one probe in one audit: a value, or an error.

    A failed fact has no value, so the row keeps its last one. A fact that was
    read partially has both: its value is used, and the missing parts are held.
    `nodetracker.accounting.audit.view` decides from the row whether a fact
    is held or unknown.
    """

    source: str
    value: T | None
    error: str | None = None

    @property
    def is_fresh(self) -> bool:
        """True when the probe returned a complete value."""
        return self.error is None

    def map(self, derive: Callable[[T], U]) -> "Fact[U]":
        """Return a fact derived from the value; failed if there is none, or it is unusable."""
        if self.value is None:
            return failed(self.source, self.error or "")
        try:
            return Fact(self.source, derive(self.value), self.error)
        except HostDataError as error:
            return failed(self.source, str(error))


def fresh(source: str, value: T) -> Fact[T]:
    """Build the fact of a probe that returned `value`."""
    return Fact(source, value)


def failed(source: str, error: str) -> Fact[Any]:
    """Build the fact of a failed probe; `error` must be constant while the failure lasts."""
    return Fact(source, None, error)


@dataclass(frozen=True, slots=True)
class FactEntry:
    """A fact as stored in the row: state, source, start of the state, and last error.

    Attributes:
        unseen_kinds: only of guests that are not fresh: their kinds whose source
            does not list any, in a fixed order, and all of them while a guest was never
            read. No claims of these are admitted.
    """

    state: FactState
    source: str
    since: datetime
    error: str | None = None
    unseen_kinds: tuple[WorkloadKind, ...] = ()


class ProbeOutcome(enum.StrEnum):
    """The outcome of one call of a probe."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"


@dataclass(slots=True)
class ProbeStatistics:
    """Statistics of one probe's calls since the start, over all nodes.

    Attributes:
        calls: outcome -> number of calls.
        seconds: total duration of the calls.
    """

    calls: dict[ProbeOutcome, int] = field(default_factory=lambda: dict.fromkeys(ProbeOutcome, 0))
    seconds: float = 0.0


def sanitize_json(value: Any, length: int | None = None) -> Any:
    """Return plain data, or facts, without characters that cannot be stored.

    Args:
        length: at which texts are cut, None = they are not.
    """
    if isinstance(value, str):
        return sanitize_text(value, len(value) if length is None else length)
    if isinstance(value, FactEntry):
        error = None if value.error is None else sanitize_json(value.error, length)
        return replace(value, source=sanitize_json(value.source, length), error=error)
    if isinstance(value, Mapping):
        return {
            sanitize_json(key, length): sanitize_json(item, length) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(sanitize_json(item, length) for item in value)
    return value
