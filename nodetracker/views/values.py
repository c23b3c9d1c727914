"""Render single values for people: ages, sizes in binary units, shares, JSON, uptime."""

import enum
import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, PARTS
from nodetracker.model.service import LoadAverage
from nodetracker.model.units import render_amount

NONE = "-"
"""Shown for a value that is unknown or not set."""

_SIZES = ("MiB", "GiB", "TiB", "PiB", "EiB")
_FIRST_UNITS = {MEMORY: 0, ORDINARY: 0, DISK: 1}
"""Resource class -> the index of its unit."""
_LEAST = Decimal("0.1")
_NEXT_UNIT = Decimal("999.5")
_DIGITS = ((100, 0), (1, 1), (_LEAST, 2))
_DIGITS_OF_LITTLE = 3

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_AGES = (  # up to, unit and its length, the smaller unit and its length
    (2 * _MINUTE, ("s", 1), None),
    (_HOUR, ("min", _MINUTE), None),
    (10 * _HOUR, ("h", _HOUR), ("min", _MINUTE)),
    (_DAY, ("h", _HOUR), None),
    (10 * _DAY, ("d", _DAY), ("h", _HOUR)),
    (math.inf, ("d", _DAY), None),
)


class Role(enum.StrEnum):
    """What an amount is, which decides how it is rounded: nobody expects too much."""

    USED = "used"  # rounded, as totals and limits are
    FREE = "free"  # rounded down
    REQUESTED = "requested"  # exact


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


def render_number(number: float | Decimal, role: Role = Role.USED) -> str:
    """Return a number with separators of thousands, and below 100 with decimals.

    An exact one has three decimals, rounded up.

    >>> [render_number(number) for number in (92434.3, 12.25, 0.256, 0.004, -0.0001)]
    ['92,434', '12.3', '0.26', '0.004', '0']
    >>> render_number(127.96, Role.FREE), render_number(127.96, Role.REQUESTED)
    ('127', '127.96')
    """
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    digits = next((n for least, n in _DIGITS if abs(exact) >= least), _DIGITS_OF_LITTLE)
    if role is Role.REQUESTED:
        digits = _DIGITS_OF_LITTLE
    shown = exact.quantize(Decimal(1).scaleb(-digits), _ROUNDINGS[role])
    text = f"{shown:,f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


_ROUNDINGS = {
    Role.USED: ROUND_HALF_UP,
    Role.FREE: ROUND_FLOOR,
    Role.REQUESTED: ROUND_CEILING,
}

Beside = tuple[float, Role] | None
"""An amount on the same line, and its role; it lends its unit, unless to a small or exact one."""


def render_resource(
    resource: str, amount: float | None, role: Role = Role.USED, beside: Beside = None
) -> str:
    """Return an amount of a resource class with its unit; without one it is unlimited.

    Nothing needs no unit.

    >>> render_resource("MEMORY_MB", 31232), render_resource("VCPU", 5504.5)
    ('30.5 GiB', '5,505')
    >>> requested = (131072, Role.REQUESTED)
    >>> [render_resource("MEMORY_MB", mib, Role.FREE, requested) for mib in (131071, 2048, 0)]
    ['127 GiB', '2 GiB', '0']
    """
    if amount is None:
        return "unlimited"
    first = _FIRST_UNITS.get(resource)
    if first is None or not amount:
        return render_number(amount, role)
    exact = Decimal(repr(amount)) * 1024**first
    unit = _unit_of(exact, role)
    if beside is not None and role is not Role.REQUESTED:
        other = _unit_of(Decimal(repr(beside[0])) * 1024**first, beside[1])
        unit = other if abs(exact) / 1024**other >= _LEAST else unit
    return f"{render_number(exact / 1024**unit, role)} {_SIZES[unit]}"


def _unit_of(mib: Decimal, role: Role) -> int:
    """Return the index of the largest unit that leaves three digits, and a requested one exact."""
    unit = 0
    while unit < len(_SIZES) - 1 and abs(mib) / 1024**unit >= _NEXT_UNIT:
        unit += 1
    if role is Role.REQUESTED:
        while unit and mib * 1000 % 1024**unit:
            unit -= 1
    return unit


def render_mib(mib: float | None, role: Role = Role.USED, beside: Beside = None) -> str:
    """Return an amount of MiB like `render_resource`, "-" if it is unknown.

    >>> [render_mib(mib) for mib in (512, 1536, 65536, 1000 * 1024, -512, 0, None)]
    ['512 MiB', '1.5 GiB', '64 GiB', '0.98 TiB', '-512 MiB', '0', '-']
    """
    return NONE if mib is None else render_resource(MEMORY, mib, role, beside)


def render_gib(gib: float | None, role: Role = Role.USED, beside: Beside = None) -> str:
    """Return an amount of GiB like `render_mib`."""
    return NONE if gib is None else render_resource(DISK, gib, role, beside)


def render_parts(resource: str, parts: float, role: Role = Role.USED, beside: Beside = None) -> str:
    """Return an amount of a resource class in its parts.

    Args:
        beside: in parts, too.

    >>> render_parts("MEMORY_MB", 31232), render_parts("VCPU", 1500)
    ('30.5 GiB', '1.5')
    """
    size = PARTS.get(resource, 1)
    other = beside and (beside[0] / size, beside[1])
    return render_resource(resource, parts / size, role, other)


def render_of(resource: str, part: float, whole: float, of: str = " of ") -> str:
    """Return what is used of a whole in one unit, unless it is a small part.

    >>> render_of("MEMORY_MB", 1000 * 1024, 1024 * 1024), render_of("VCPU", 647.877, 5504, "/")
    ('0.98 of 1 TiB', '648/5,504')
    """
    amount, _, unit = render_resource(resource, part, beside=(whole, Role.USED)).partition(" ")
    total = render_resource(resource, whole)
    return f"{amount} {unit}{of}{total}" if unit and unit not in total else f"{amount}{of}{total}"


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
