"""Read the parameters of a query by a schema."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nodetracker.accounting.requests.fields import Schema
from nodetracker.accounting.requests.validator import check
from nodetracker.api.texts import decode_url_text
from nodetracker.model.errors import RequestError

_INTEGER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 18
_ALIASES = {"node": "nodename"}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def split_query(raw: str) -> tuple[tuple[str, str], ...]:
    """Return names and values of a query string.

    Raises:
        RequestError: it is not UTF-8, or has characters that databases refuse.
    """
    pairs = []
    for part in raw.split("&"):
        if part:
            name, _, value = part.replace("+", " ").partition("=")
            known = decode_url_text("query", name)
            pairs.append((known, decode_url_text(known, value)))
    return tuple(pairs)


def read_query(
    pairs: Sequence[tuple[str, str]], schema: Schema, is_strict: bool
) -> Mapping[str, Any]:
    """Return parameters with the types of their schemas.

    Args:
        schema: of an object; its properties are text, integers, booleans or lists of text.
            A parameter ``nodename`` may also be given as ``node``.
        is_strict: whether unknown parameters, and parameters given twice, are errors;
            otherwise unknown ones are ignored and the last value is used.

    Raises:
        RequestError: a parameter is invalid; it names the parameter.

    >>> from nodetracker.accounting.requests.fields import integer, record
    >>> read_query([("limit", "7")], record({"limit": integer(1)}), is_strict=True)
    {'limit': 7}
    """
    known: Mapping[str, Schema] = schema["properties"]
    found: dict[str, Any] = {}
    for given, value in pairs:
        is_alias = given not in known and _ALIASES.get(given) in known
        name = _ALIASES[given] if is_alias else given
        kind = known.get(name, {}).get("type")
        if name not in known and not is_strict:
            continue
        if kind == "array":
            found.setdefault(name, []).append(value)
        elif name in found and is_strict:
            raise RequestError(name, "is given more than once")
        else:
            found[name] = _convert(value, kind)
    if found or schema.get("required"):  # a request without parameters is frequent
        check(found, schema)
    return found


def _convert(text: str, kind: object) -> object:
    """Return the value of a text; the text itself if it has another type."""
    if kind == "integer" and _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if kind == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    return text


def _parse_integer(text: str) -> int:
    """Return an integer; all of more than 18 digits as one, as Python parses at most 4300.

    >>> _parse_integer("0" * 5000 + "7"), _parse_integer("-" + "9" * 5000) == -(10**18)
    (7, True)
    """
    digits = text.removeprefix("-").lstrip("0") or "0"
    amount = int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
    return -amount if text.startswith("-") else amount
