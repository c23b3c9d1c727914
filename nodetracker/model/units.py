"""Convert units: capacity is rounded down, usage is rounded up. No other module converts."""

import math
import re
from decimal import Decimal

from nodetracker.model.text import render_value

KIB_PER_MIB = 1024
MIB_PER_GIB = 1024
BYTES_PER_MIB = 1024 * 1024
MILLI = 1000


def capacity_mib_from_kib(kib: int) -> int:
    """Return KiB as whole MiB, rounded down.

    >>> capacity_mib_from_kib(2047)
    1
    """
    return kib // KIB_PER_MIB


def usage_mib_from_kib(kib: int) -> int:
    """Return KiB as whole MiB, rounded up."""
    return -(-kib // KIB_PER_MIB)


def capacity_mib_from_bytes(size: int) -> int:
    """Return bytes as whole MiB, rounded down."""
    return size // BYTES_PER_MIB


def usage_mib_from_bytes(size: int) -> int:
    """Return bytes as whole MiB, rounded up."""
    return -(-size // BYTES_PER_MIB)


def bytes_from_mib(mib: float) -> int:
    """Return MiB as bytes."""
    return int(mib * BYTES_PER_MIB)


def bytes_from_gib(gib: float) -> int:
    """Return GiB as bytes."""
    return bytes_from_mib(gib * MIB_PER_GIB)


def capacity_gib_from_mib(mib: int) -> int:
    """Return MiB as whole GiB, rounded down; a negative amount rounds away from zero.

    >>> capacity_gib_from_mib(2047), capacity_gib_from_mib(-1)
    (1, -1)
    """
    return mib // MIB_PER_GIB


def usage_gib_from_mib(mib: int) -> int:
    """Return MiB as whole GiB, rounded up.

    >>> usage_gib_from_mib(1025)
    2
    """
    return -(-mib // MIB_PER_GIB)


def usage_units_from_milli(milli: int) -> int:
    """Return thousandths as whole units, rounded up.

    >>> usage_units_from_milli(1500)
    2
    """
    return -(-milli // MILLI)


def whole_units(amount: int, parts: int) -> float:
    """Convert an amount to units of `parts` each; a whole result is an int.

    >>> whole_units(2000, MILLI), whole_units(1500, MILLI)
    (2, 1.5)
    """
    return amount // parts if amount % parts == 0 else amount / parts


def round_down(amount: float, decimals: int) -> float:
    """Return an amount with fewer decimals, rounded down: what is free is not shown larger.

    >>> round_down(9.9961, 2), round_down(0.29, 2), round_down(-0.001, 2)
    (9.99, 0.29, -0.01)
    """
    factor = 10.0**decimals
    return math.floor(round(amount * factor, 6)) / factor


def render_amount(amount: float) -> str:
    """Render a number in plain digits: without an exponent, with three decimals if these suffice.

    >>> render_amount(10_000_000.0), render_amount(1.49902), render_amount(0.0001)
    ('10000000', '1.499', '0.0001')
    """
    text = repr(round(amount, 3) or amount)
    if "e" in text:
        text = f"{Decimal(text):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_MAX_DIGITS = 20
_PAGE_SUFFIXES = {"": 1, "KB": 1, "MB": 1024, "GB": 1024**2, "KIB": 1, "MIB": 1024, "GIB": 1024**2}


def parse_page_size_kb(text: str) -> int:
    """Parse a page size with an optional suffix (KB, MB, GB, KiB …) and return it in KiB.

    Raises:
        ValueError: the text is not a page size.

    >>> parse_page_size_kb("2048"), parse_page_size_kb("1GB"), parse_page_size_kb("2MiB")
    (2048, 1048576, 2048)
    """
    digits = text.strip().rstrip("KMGIBkmgib")
    suffix = text.strip()[len(digits) :].upper()
    is_number = digits.isdecimal() and len(digits) <= _MAX_DIGITS
    if not is_number or suffix not in _PAGE_SUFFIXES:
        raise ValueError(f"{render_value(text)} is not a page size")
    return int(digits) * _PAGE_SUFFIXES[suffix]


_SIZE = re.compile(
    rf"([0-9]{{1,{_MAX_DIGITS}}}(?:\.[0-9]{{1,9}})?) ?([MGT])(?:i?B)?", re.IGNORECASE
)
_MIB_PER_UNIT = {"M": 1, "G": MIB_PER_GIB, "T": MIB_PER_GIB**2}


def parse_size_mib(text: str) -> int:
    """Parse a size as people write it, all units binary as in Nova, and return it in MiB.

    Raises:
        ValueError: the text is not a size with a unit.

    >>> [parse_size_mib(text) for text in ("32GiB", "1.5 TiB", "512m", "0.1GB")]
    [32768, 1572864, 512, 103]
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{render_value(text)} is not a size")
    return math.ceil(Decimal(found[1]) * _MIB_PER_UNIT[found[2].upper()])
