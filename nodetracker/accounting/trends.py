"""Take samples of amounts, sum and average them, and forecast when a resource is full."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nodetracker.accounting.ledger.admission import list_capacities
from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.fleet import MEASURED_METRICS, AmountColumns
from nodetracker.model.trend import TREND_RESOURCES, TrendSample, Values
from nodetracker.model.units import MILLI

MIN_DAYS = 3
HORIZON = 3
"""A forecast reaches at most as many times as far ahead as its samples reach back."""

_Z = 1.645  # 90% of a normal distribution lies within


def measure_node(row: AmountColumns) -> dict[str, int | None]:
    """Return what is in use on a node's machine of each resource, in parts; None = unknown."""
    cpus = (row.vcpus + row.pcpus) * MILLI
    percent, memory_mb, disk_mb = map(row.metrics.get, MEASURED_METRICS)
    used = None if percent is None else cpus * percent // 100
    return {VCPU: used, MEMORY: memory_mb, DISK: disk_mb}


def sample_node(row: AmountColumns) -> Values:
    """Return the sample of a node's row."""
    capacities, measured = list_capacities(row), measure_node(row)
    values: list[int | None] = [1]
    for name in TREND_RESOURCES:
        found = capacities[name]
        values += (found.total, found.own_limit, found.used, measured[name])
    return values


def sum_samples(samples: Iterable[Values]) -> Values:
    """Return the fleet's sample; what is unknown of some nodes is the sum over the others.

    >>> sum_samples([[1, 2, None], [1, None, None]])
    [2, 2, None]
    """
    return _combine(samples, sum)


def average_samples(samples: Iterable[Values]) -> Values:
    """Return the means of samples as whole parts, without those that are unknown.

    >>> average_samples([[1, 2, None], [2, None, None]])
    [2, 2, None]
    """
    return _combine(samples, lambda known: round(sum(known) / len(known)))


def _combine(samples: Iterable[Values], combine: Callable[[Sequence[int]], int]) -> Values:
    columns: Iterable[Any] = zip(*samples, strict=True)
    return [_combine_known(column, combine) for column in columns]


def _combine_known(column: Any, combine: Callable[[Sequence[int]], int]) -> int | None:
    try:
        return combine(column)
    except TypeError:  # some values are unknown
        known = [value for value in column if value is not None]
    return combine(known) if known else None


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a resource is full if it grows as it did, in days from the last sample.

    Attributes:
        earliest, latest: the range of the growth that the samples allow with 90%
            confidence; latest None = it may be beyond what they can show.
    """

    days: float
    earliest: float
    latest: float | None


def forecast_full(days: Sequence[TrendSample], resource: str) -> Forecast | None:
    """Forecast when all that may be allocated of a resource is, from the samples of days.

    The growth is the median of the slopes between all pairs of days (Theil and Sen), so that
    single days, such as that of a large claim that was released again, do not change it. Its
    range is that of Kendall's rank test.

    Args:
        days: oldest first; days may be missing.

    Returns:
        None if there are fewer than three days, if it is full already, if it may as well not
        grow, or if it is full later than the samples can show.
    """
    points = [(day.at.timestamp() / 86400, day.amounts[resource].allocated) for day in days]
    if len(points) < MIN_DAYS:
        return None
    left = days[-1].amounts[resource].limit - days[-1].amounts[resource].allocated
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, later in enumerate(points)
        for earlier in points[:place]
    )
    low, slope, high = _range_of(slopes, len(points))
    if left <= 0 or low <= 0:
        return None
    horizon = HORIZON * (points[-1][0] - points[0][0] + 1)
    if left / slope > horizon:
        return None
    latest = left / low
    return Forecast(left / slope, left / high, latest if latest <= horizon else None)


def _range_of(slopes: Sequence[float], count: int) -> tuple[float, float, float]:
    """Return the low end, the median and the high end of the growth.

    Args:
        slopes: of all pairs, in order.
        count: of days.

    Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, 1968.
    """
    spread = _Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    below = max(0, math.floor((len(slopes) - spread) / 2))
    return slopes[below], statistics.median(slopes), slopes[-1 - below]
