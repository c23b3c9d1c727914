"""Parse JSON text strictly, wherever a request comes from."""

import json
import math
from collections import Counter
from functools import partial
from typing import Any, NoReturn

from nodetracker.model.errors import RequestError
from nodetracker.model.text import render_value

_MOST_DIGITS = 1000


def parse_json(text: str, name: str) -> object:
    """Parse a JSON document; a key occurs once in an object, and NaN and Infinity are invalid.

    Args:
        name: of the document, for errors; such as its file.

    Raises:
        RequestError: it is not valid JSON, has a duplicate key, a number of
            over 1000 digits or beyond the range of floats, or is nested too deeply.

    >>> parse_json('{"a": 1, "a": 2}', "request.json")
    Traceback (most recent call last):
    nodetracker.model.errors.RequestError: request.json: duplicate key 'a'
    """
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=partial(_read_object, name),
            parse_int=partial(_read_integer, name),
            parse_float=partial(_read_float, name),
            parse_constant=partial(_refuse_constant, name),
        )
    except RecursionError as error:
        raise RequestError(name, "not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise RequestError(name, f"not valid JSON: {error}") from error
    return value


def _read_object(name: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object without duplicate keys, of which a reader would keep only the last."""
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key, count in counts.items() if count > 1)
        raise RequestError(name, f"duplicate key {render_value(duplicate)}")
    return value


def _read_integer(name: str, text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise RequestError(name, f"number of {len(text)} digits: expected at most {_MOST_DIGITS}")
    return int(text)


def _read_float(name: str, text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise RequestError(name, f"number {render_value(text)} is out of range")
    return value


def _refuse_constant(name: str, text: str) -> NoReturn:
    """Reject NaN and Infinity, which Python's reader accepts."""
    raise RequestError(name, f"not valid JSON: {text} is not a number")
