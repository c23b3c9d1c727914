"""Render values: as plain data, and those of documents and times as text."""

import dataclasses
import enum
import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

_LONGEST = 100
_MOST_ITEMS = 40  # more never fit
_MOST_BITS = 512  # Python renders no integer of more than 4300 digits
_DEEPEST = 4


def render_value(value: object) -> str:
    r"""Render a value of a JSON document, cut after 100 characters.

    Numbers have plain digits, without an exponent.

    >>> print(render_value({"a": [None, True, 1e-05, float("nan"), "b\n"]}))
    {'a': [null, true, 0.00001, NaN, 'b\n']}
    """
    text = _render(value, _DEEPEST)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def to_plain(value: Any) -> Any:
    """Return a value as plain JSON: dataclasses as objects, times as ISO text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: to_plain(getattr(value, item.name)) for item in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(item) for item in value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value


def render_time(moment: datetime | None) -> str | None:
    """Return a time as ISO 8601 text with microseconds, in UTC; None for None."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


def name_some(names: Collection[str], most: int = 5) -> str:
    """Return the first of many names.

    >>> name_some(["c", "a", "b"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> count_noun(1, "node"), count_noun(2, "node")
    ('1 node', '2 nodes')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _render(value: object, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MOST_BITS else "a number of over 150 digits"
    if isinstance(value, float):
        return _render_float(value)
    if isinstance(value, str):
        return repr(value[: _LONGEST + 1])
    if isinstance(value, Mapping | list | tuple):
        return _render_items(value, depth)
    return str(value)


def _render_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)):f}"


def _render_items(value: Collection[object], depth: int) -> str:
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    if not depth:
        return f"{opening}...{closing}"
    first = list(islice(value, _MOST_ITEMS))
    items = [_render(item, depth - 1) for item in first]
    if isinstance(value, Mapping):
        items = [
            f"{key}: {_render(value[name], depth - 1)}"
            for name, key in zip(first, items, strict=True)
        ]
    return f"{opening}{', '.join(items)}{closing}"


def render_file_error(error: OSError | UnicodeError) -> str:
    """Return why a file cannot be read or written, without its path.

    >>> render_file_error(FileNotFoundError(2, "No such file or directory", "/etc/x"))
    'No such file or directory'
    """
    if isinstance(error, UnicodeError):
        return "not valid UTF-8"
    return error.strerror or str(error)
