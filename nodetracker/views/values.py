"""Render single values for people: ages, times, speeds, shares, JSON, uptime."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodetracker.model.amount_text import NONE
from nodetracker.model.service import LoadAverage
from nodetracker.model.units import render_amount

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_AGES = (  # up to, unit and its length, the smaller unit and its length
    (2 * _MINUTE, ("s", 1), None),
    (_HOUR, ("min", _MINUTE), None),
    (10 * _HOUR, ("h", _HOUR), ("min", _MINUTE)),
    (_DAY, ("h", _HOUR), None),
    (10 * _DAY, ("d", _DAY), ("h", _HOUR)),
    (math.inf, ("d", _DAY), None),
)


def render_age(seconds: float | None, is_short: bool = False) -> str:
    """Return an age in its largest unit, and of few hours or days also in the next one.

    Args:
        is_short: in one unit, as cells of tables have it.

    >>> [render_age(age) for age in (12.3, 119, 120, 4860, 50000, 162000, 1e6, None)]
    ['12 s', '119 s', '2 min', '1 h 21 min', '13 h', '1 d 21 h', '11 d', 'never']
    >>> render_age(4860, is_short=True), render_age(162000, is_short=True)
    ('1 h', '1 d')
    """
    if seconds is None:
        return "never"
    whole = max(0, int(seconds))
    _, (unit, length), smaller = next(entry for entry in _AGES if whole < entry[0])
    text = f"{whole // length:,} {unit}"
    if smaller is None or is_short or whole % length < smaller[1]:
        return text
    return f"{text} {whole % length // smaller[1]} {smaller[0]}"


def age_of(text: str, now: datetime) -> float:
    """Return the age in seconds of a time in ISO 8601; negative in the future."""
    return (now - datetime.fromisoformat(text)).total_seconds()


def render_moment(text: str | None, now: datetime, is_short: bool = False) -> str:
    """Return a time in ISO 8601 as an age, or as ``in 5 min`` in the future; None as "-"."""
    if text is None:
        return NONE
    age = age_of(text, now)
    return f"in {render_age(-age, is_short)}" if age <= -1 else render_age(age, is_short)


def render_speed(mbps: int | None) -> str:
    """Return the speed of a link.

    >>> [render_speed(mbps) for mbps in (100, 2500, 25000, None)]
    ['100 Mbit/s', '2.5 Gbit/s', '25 Gbit/s', 'speed unknown']
    """
    if mbps is None:
        return "speed unknown"
    return f"{mbps} Mbit/s" if mbps < 1000 else f"{render_amount(mbps / 1000)} Gbit/s"


def render_percent(part: float, whole: float) -> str:
    """Return a share in whole percent, 100 only when it is full; "-" of a total of 0.

    >>> render_percent(7, 8), render_percent(12, 8), render_percent(0, 0)
    ('87 %', '150 %', '-')
    """
    return f"{math.floor(100 * part / whole)} %" if whole > 0 else NONE


def render_json(value: Any) -> str:
    """Return a value as compact JSON in one line, as ``jq -c`` prints it."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)


def render_plain(value: Any) -> str:
    """Return any value for people: text as it is, None as "-", the rest as JSON has it."""
    if value is None or value == "":
        return NONE
    if type(value) in (str, int):  # nearly all are
        return str(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return render_amount(value)
    if isinstance(value, Mapping | list | tuple):
        return render_json(value)
    return str(value)


def count_many(number: int, noun: str) -> str:
    """Return a number that may be large with its noun.

    >>> count_many(1, "node"), count_many(12345, "node")
    ('1 node', '12,345 nodes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def render_uptime(booted_at: datetime, now: datetime, load_average: LoadAverage | None) -> str:
    """Return a line that Nova's clients split at ``up``, ``users`` and ``load average``.

    Args:
        booted_at, now: by the same clock; a time before the boot counts as the boot.
        load_average: None = unknown.

    Source: procps, of which Nova returns the output on its hosts.

    >>> from datetime import UTC
    >>> booted, now = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 4, 4, 18, 25, 9, tzinfo=UTC)
    >>> render_uptime(booted, now, (0.2, 0.12, 0.14))
    '18:25:09 up 93 days, 18:25,  0 users,  load average: 0.20, 0.12, 0.14'
    """
    seconds = max(0, int((now - booted_at).total_seconds()))
    days, hours = seconds // _DAY, seconds % _DAY // _HOUR
    minutes = seconds % _HOUR // _MINUTE
    parts = []
    if days:
        parts.append(f"{days} day{'s' if days > 1 else ''}")
    parts.append(f"{hours:2d}:{minutes:02d}" if hours else f"{minutes} min")
    load = "unknown"
    if load_average is not None:
        load = ", ".join(f"{value:.2f}" for value in load_average)
    return f"{now:%H:%M:%S} up {', '.join(parts)},  0 users,  load average: {load}"
