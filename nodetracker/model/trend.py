"""Trends: what the fleet and its nodes had, allocated and used, by the hour and by the day."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nodetracker.model.amounts import DISK, MEMORY, VCPU

TREND_RESOURCES = (VCPU, MEMORY, DISK)

Values = Sequence[int | None]
"""The amounts of one sample: total, limit, allocated, measured of each of `TREND_RESOURCES`."""


class Resolution(enum.StrEnum):
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

        >>> Resolution.DAY.start_of(datetime(2026, 3, 1, 23, 59, tzinfo=UTC)).isoformat()
        '2026-03-01T00:00:00+00:00'
        """
        hour = 0 if self is Resolution.DAY else at.astimezone(UTC).hour
        return at.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)


_SECONDS = {Resolution.HOUR: 3600, Resolution.DAY: 86400}
_KEPT = {Resolution.HOUR: timedelta(days=14), Resolution.DAY: timedelta(days=730)}


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


def amounts_of(values: Values) -> dict[str, TrendAmounts]:
    """Return the amounts of a sample by resource class."""
    parts: list[Any] = list(values)
    return {
        name: TrendAmounts(*parts[4 * place : 4 * place + 4])
        for place, name in enumerate(TREND_RESOURCES)
    }


@dataclass(frozen=True, slots=True)
class TrendSample:
    """What was read in one hour, or the means of a day's hours.

    Attributes:
        at: the start of the hour or day, UTC.
        amounts: resource class -> its amounts, of each of `TREND_RESOURCES`.
    """

    at: datetime
    amounts: Mapping[str, TrendAmounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendQuery:
    """Selects samples of the fleet or of one node, oldest first.

    Attributes:
        node_id: None = the fleet.
        since, until: earliest and latest start of an hour or day, both included.
        limit: only the newest so many, None = all.
    """

    resolution: Resolution
    node_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
