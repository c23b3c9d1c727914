"""Render amounts of resources for people: rounded by what they are, in binary units."""

import enum
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, PARTS

NONE = "-"
"""Shown for a value that is unknown or not set."""

_SIZES = ("MiB", "GiB", "TiB", "PiB", "EiB")
_FIRST_UNITS = {MEMORY: 0, ORDINARY: 0, DISK: 1}
"""Resource class -> the index of its unit."""
_LEAST = Decimal("0.1")
_NEXT_UNIT = Decimal("999.5")
_DIGITS = ((100, 0), (1, 1), (_LEAST, 2))
_DIGITS_OF_LITTLE = 3


class Role(enum.StrEnum):
    """What an amount is, which decides how it is rounded: nobody expects too much."""

    USED = "used"  # rounded, as totals and limits are
    FREE = "free"  # rounded down
    REQUESTED = "requested"  # exact


def render_number(number: float | Decimal, role: Role = Role.USED) -> str:
    """Return a number with separators of thousands, and below 100 with decimals.

    An exact one has three decimals, rounded up.

    >>> [render_number(number) for number in (92434.3, 12.25, 0.256, 0.004, -0.0001)]
    ['92,434', '12.3', '0.26', '0.004', '0']
    >>> render_number(127.96, Role.FREE), render_number(127.96, Role.REQUESTED)
    ('127', '127.96')
    """
    exact = _exact(number)
    digits = next((n for least, n in _DIGITS if abs(exact) >= least), _DIGITS_OF_LITTLE)
    if role is Role.REQUESTED:
        digits = _DIGITS_OF_LITTLE
    shown = exact.quantize(Decimal(1).scaleb(-digits), _ROUNDINGS[role])
    text = f"{shown:,f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _exact(number: float | Decimal) -> Decimal:
    return number if isinstance(number, Decimal) else Decimal(repr(number))


_ROUNDINGS = {
    Role.USED: ROUND_HALF_UP,
    Role.FREE: ROUND_FLOOR,
    Role.REQUESTED: ROUND_CEILING,
}

Beside = tuple[float | Decimal, Role] | None
"""An amount on the same line, and its role; it lends its unit, unless to a small or exact one."""


def render_resource(
    resource: str, amount: float | Decimal | None, role: Role = Role.USED, beside: Beside = None
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
    exact = _exact(amount) * 1024**first
    unit = _unit_of(exact, role)
    if beside is not None and role is not Role.REQUESTED:
        other = _unit_of(_exact(beside[0]) * 1024**first, beside[1])
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
    other = beside and (_exact(beside[0]) / size, beside[1])
    return render_resource(resource, _exact(parts) / size, role, other)


def render_of(resource: str, part: float, whole: float, of: str = " of ") -> str:
    """Return what is used of a whole in one unit, unless it is a small part.

    >>> render_of("MEMORY_MB", 1000 * 1024, 1024 * 1024), render_of("VCPU", 647.877, 5504, "/")
    ('0.98 of 1 TiB', '648/5,504')
    """
    amount, _, unit = render_resource(resource, part, beside=(whole, Role.USED)).partition(" ")
    total = render_resource(resource, whole)
    return f"{amount} {unit}{of}{total}" if unit and unit not in total else f"{amount}{of}{total}"
