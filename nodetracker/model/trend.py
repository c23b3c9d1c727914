"""Trends: what the fleet and its nodes had, allocated and used, by the hour and by the day."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nodetracker.model.amounts import DISK, MEMORY, VCPU

TREND_RESOURCES = (VCPU, MEMORY, DISK)

Values = Sequence[int | None]
"""One sample: 1, and total, limit, allocated and measured of each of `TREND_RESOURCES`.

Sums of these have the number of nodes in the place of the 1.
"""


class Step(enum.StrEnum):
    """The length of the time that a sample is for."""

    HOUR = "hour"
    DAY = "day"

    @property
    def seconds(self) -> int:
        """That length."""
        return _SECONDS[self]

    @property
    def kept(self) -> timedelta:
        """How long samples are kept."""
        return _KEPT[self]

    def start_of(self, at: datetime) -> datetime:
        """Return the start of the hour or day of a time, in UTC.

        >>> Step.DAY.start_of(datetime(2026, 3, 1, 23, 59, tzinfo=UTC)).isoformat()
        '2026-03-01T00:00:00+00:00'
        """
        hour = 0 if self is Step.DAY else at.astimezone(UTC).hour
        return at.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)


_SECONDS = {Step.HOUR: 3600, Step.DAY: 86400}
_KEPT = {Step.HOUR: timedelta(days=14), Step.DAY: timedelta(days=730)}


@dataclass(frozen=True, slots=True)
class TrendAmounts:
    """Amounts of one resource class, in parts: thousandths of a CPU, MiB.

    Attributes:
        total: the physical amount.
        limit: what may be allocated, reserved amounts included.
        allocated: what is reserved or used by claims and guests.
        measured: what the machines use, None = unknown. Of the fleet, the sum over the
            nodes of which it is known.
    """

    total: int
    limit: int
    allocated: int
    measured: int | None


@dataclass(frozen=True, slots=True)
class TrendSample:
    """What was read in one hour, or the means of a day's hours.

    Attributes:
        at: the start of the hour or day, UTC.
        nodes: how many there were.
        amounts: resource class -> its amounts, of each of `TREND_RESOURCES`.
    """

    at: datetime
    nodes: int
    amounts: Mapping[str, TrendAmounts]

    @classmethod
    def of(cls, at: datetime, values: Values) -> "TrendSample":
        """Return the sample of an hour or day."""
        parts: list[Any] = list(values)
        amounts = {
            name: TrendAmounts(*parts[4 * place + 1 : 4 * place + 5])
            for place, name in enumerate(TREND_RESOURCES)
        }
        return cls(at, parts[0], amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendQuery:
    """Selects samples of the fleet or of one node, oldest first.

    Attributes:
        node_id: None = the fleet.
        since, until: earliest and latest start of an hour or day, both included.
        limit: only the newest so many, None = all.
    """

    step: Step
    node_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
