"""Render single values for people: ages, sizes in binary units, shares, JSON, uptime."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, PARTS
from nodetracker.model.service import LoadAverage
from nodetracker.model.units import MIB_PER_GIB, render_amount

NONE = "-"
"""Shown for a value that is unknown or not set."""

_AGES = ((120, 1, "s"), (120 * 60, 60, "min"), (48 * 3600, 3600, "h"), (float("inf"), 86400, "d"))
_SIZES = ("MiB", "GiB", "TiB", "PiB", "EiB")


def render_age(seconds: float | None) -> str:
    """Return an age in the largest unit of which it has at least two.

    >>> [render_age(age) for age in (12.3, 119, 120, 7200, 172800, None)]
    ['12 s', '119 s', '2 min', '2 h', '2 d', 'never']
    """
    if seconds is None:
        return "never"
    whole = max(0, int(seconds))
    size, unit = next((size, unit) for limit, size, unit in _AGES if whole < limit)
    return f"{whole // size} {unit}"


def age_of(text: str, now: datetime) -> float:
    """Return the age in seconds of a time in ISO 8601; negative in the future."""
    return (now - datetime.fromisoformat(text)).total_seconds()


def render_moment(text: str | None, now: datetime) -> str:
    """Return a time in ISO 8601 as an age, or as ``in 5 min`` in the future; None as "-"."""
    if text is None:
        return NONE
    age = age_of(text, now)
    return f"in {render_age(-age)}" if age <= -1 else render_age(age)


def render_mib(mib: float | None) -> str:
    """Return an amount of MiB with its largest binary unit and at most three digits before it.

    >>> [render_mib(mib) for mib in (512, 1536, 65536, 1535.5 * 1024 * 1024, -512, None)]
    ['512 MiB', '1.5 GiB', '64 GiB', '1.5 PiB', '-512 MiB', '-']
    """
    if mib is None:
        return NONE
    amount, unit = float(mib), 0
    while abs(amount) >= 1000 and unit < len(_SIZES) - 1:
        amount, unit = amount / MIB_PER_GIB, unit + 1
    text = f"{amount:.0f}" if abs(amount) >= 100 or not unit else f"{amount:.1f}"
    return f"{text.removesuffix('.0')} {_SIZES[unit]}"


def render_gib(gib: float | None) -> str:
    """Return an amount of GiB like `render_mib`."""
    return NONE if gib is None else render_mib(gib * MIB_PER_GIB)


def render_resource(resource: str, amount: float | None) -> str:
    """Return an amount of a resource class in its unit; without one it is unlimited.

    >>> render_resource("MEMORY_MB", 31232), render_resource("VCPU", 1.5)
    ('30.5 GiB', '1.5')
    """
    if amount is None:
        return "unlimited"
    if resource in (MEMORY, ORDINARY):
        return render_mib(amount)
    return render_gib(amount) if resource == DISK else render_amount(amount)


def render_parts(resource: str, amount: int) -> str:
    """Return an amount of a resource class in its parts; nothing needs no unit.

    >>> render_parts("MEMORY_MB", 31232), render_parts("VCPU", 1500)
    ('30.5 GiB', '1.5')
    """
    if not amount:
        return "0"
    if resource in (MEMORY, DISK):
        return render_mib(amount)
    return render_amount(round(amount / PARTS.get(resource, 1), 1))


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


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


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
