"""Show trends: samples as columns, and forecasts in words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nodetracker.accounting.trends import Forecast, forecast_full
from nodetracker.model.amounts import DISK, MEMORY, PARTS, VCPU
from nodetracker.model.text import count_noun, render_time
from nodetracker.model.trend import TREND_RESOURCES, Step, TrendQuery, TrendSample
from nodetracker.model.units import whole_units

AMOUNTS = ("total", "limit", "allocated", "measured")
NAMES = {VCPU: "cpu", MEMORY: "memory", DISK: "disk"}
_KEYS = {
    "physical": "total",
    "capacity": "limit",
    "promised": "allocated",
    "measured": "measured",
}
_NOUNS = {VCPU: "vcpus", MEMORY: "memory_mb", DISK: "disk_gb"}
ROW_COLUMNS = (
    "at",
    *(f"{_NOUNS[resource]}_{name}" for resource in TREND_RESOURCES for name in AMOUNTS),
)
WEEK_HOURS = 7 * 24
DAY_HOURS = 24
_FORECAST_DAYS = 90
_SUBJECTS = {VCPU: "CPU is", MEMORY: "Memory is", DISK: "Disk is"}


@dataclass(frozen=True, slots=True)
class ForecastLine:
    """When all that may be allocated of a resource is.

    Attributes:
        days, earliest, latest: see `Forecast`.
        text: the same in words.
    """

    resource: str
    days: float
    earliest: float
    latest: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Trend:
    """How full the fleet was in its last week, and when it is full.

    Attributes:
        hours: samples, oldest first.
    """

    hours: tuple[TrendSample, ...] = ()
    forecasts: tuple[ForecastLine, ...] = ()


def list_shares(
    hours: Sequence[TrendSample], resource: str, length: int, count: int
) -> list[float | None]:
    """Return what was allocated of what may be, in equal parts of the time to the newest hour.

    Args:
        hours: samples, oldest first.
        length: of the time, in hours.
        count: of the parts; None = not known in one of them.
    """
    parts: list[list[float]] = [[] for _ in range(count)]
    for sample in hours:
        age = (hours[-1].at - sample.at) / timedelta(hours=1)
        amounts = sample.amounts[resource]
        if age < length and amounts.limit > 0:
            parts[-1 - int(age * count / length)].append(amounts.allocated / amounts.limit)
    return [sum(found) / len(found) if found else None for found in parts]


def forecast_query(node_id: int | None = None) -> TrendQuery:
    """Return the query of the days by which `list_forecasts` forecasts."""
    return TrendQuery(step=Step.DAY, node_id=node_id, limit=_FORECAST_DAYS)


def list_forecasts(days: Sequence[TrendSample]) -> list[ForecastLine]:
    """Return the forecasts of all resources that have one, the next one to be full first.

    Args:
        days: samples of days, oldest first.
    """
    lines = [
        ForecastLine(name, found.days, found.earliest, found.latest, _describe(name, found))
        for name in TREND_RESOURCES
        if (found := forecast_full(days, name)) is not None
    ]
    return sorted(lines, key=lambda line: line.days)


def _describe(resource: str, found: Forecast) -> str:
    """Return a forecast in words.

    >>> _describe("MEMORY_MB", Forecast(22.6, 17.9, 31.2))
    'Memory is full in about 23 days (17 to 32)'
    >>> _describe("DISK_GB", Forecast(22.6, 17.9, None))
    'Disk is full in about 23 days (17 or more)'
    >>> _describe("VCPU", Forecast(1.2, 1.2, 1.2)), _describe("VCPU", Forecast(0.3, 0.2, 0.4))
    ('CPU is full in about 1 day (1 to 2)', 'CPU is full within a day')
    """
    subject, days = _SUBJECTS[resource], round(found.days)
    if not days:
        return f"{subject} full within a day"
    latest = "or more" if found.latest is None else f"to {math.ceil(found.latest)}"
    about = f"{subject} full in about {count_noun(days, 'day')}"
    return f"{about} ({math.floor(found.earliest)} {latest})"


def render_sample(sample: TrendSample) -> dict[str, Any]:
    """Return a sample, in CPUs, MiB and GiB."""
    shown = {
        name: {
            key: _in_units(resource, getattr(sample.amounts[resource], amount))
            for key, amount in _KEYS.items()
        }
        for resource, name in NAMES.items()
    }
    return {"at": render_time(sample.at), "nodes": sample.nodes, **shown}


def render_forecasts(days: Sequence[TrendSample]) -> dict[str, Any]:
    """Return when all that may be allocated is, by resource: the next one to be full first.

    Args:
        days: samples of days, oldest first.
    """
    shown: dict[str, Any] = {
        NAMES[line.resource]: {
            "full_at": _render_end(days, line.days),
            "full_at_from": _render_end(days, line.earliest),
            "full_at_to": None if line.latest is None else _render_end(days, line.latest),
            "text": line.text,
        }
        for line in list_forecasts(days)
    }
    return shown | {name: None for name in NAMES.values() if name not in shown}


def _render_end(days: Sequence[TrendSample], after: float) -> str | None:
    """Return the time so many days after the last one of the samples."""
    return render_time(days[-1].at + timedelta(days=1 + after))


def render_days(
    hours_by_uuid: Mapping[str, Sequence[TrendSample]], resource: str
) -> Iterator[Mapping[str, Any]]:
    """Yield what nodes had allocated in the last day, in percent; not of nodes with one hour."""
    for uuid, hours in hours_by_uuid.items():
        shares = list_shares(hours, resource, DAY_HOURS, DAY_HOURS)
        percents = [None if share is None else round(100 * share) for share in shares]
        known = [percent for percent in percents if percent is not None]
        if len(known) > 1:
            text = render_range(min(known), max(known))
            yield {"uuid": uuid, "percents": percents, "text": text}


def render_range(least: int, most: int) -> str:
    """Return a range of percentages in words.

    >>> render_range(12, 40), render_range(7, 7)
    ('12 % to 40 %', '7 %')
    """
    return f"{most} %" if least == most else f"{least} % to {most} %"


def list_rows(samples: Sequence[TrendSample]) -> Iterator[Mapping[str, Any]]:
    """Yield a row with `ROW_COLUMNS` for each sample, in CPUs, MiB and GiB."""
    for sample in samples:
        values = (
            _in_units(resource, getattr(sample.amounts[resource], name))
            for resource in TREND_RESOURCES
            for name in AMOUNTS
        )
        yield dict(zip(ROW_COLUMNS, (render_time(sample.at), *values), strict=True))


def _in_units(resource: str, amount: int | None) -> float | None:
    return None if amount is None else whole_units(amount, PARTS[resource])
