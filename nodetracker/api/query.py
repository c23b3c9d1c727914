"""Read texts, ids and parameters of requests, and reject what databases refuse."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from nodetracker.accounting.schemas import Schema
from nodetracker.accounting.validator import check
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.text import parse_uuid

MAX_ID = 2**63 - 1
"""The largest integer that a database compares."""

_INTEGER = re.compile(r"-?[0-9]+")
_MAX_DIGITS = 18
_MAX_WAIT_SECONDS = 120
_SECONDS = re.compile(r"0*([0-9]+)")
_QUOTED = re.compile(r'"([^"]*)"')
_DELIMITERS = str.maketrans(",;=", "   ")
_ALIASES = {"node": "nodename"}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def decode_url_text(name: str, raw: str) -> str:
    """Return percent-encoded text as characters.

    Args:
        name: of what it is, for the error.
        raw: each character is a byte, as in a WSGI environment.

    Raises:
        RequestError: it is not UTF-8, or has characters that databases refuse.
    """
    try:
        text = unquote_to_bytes(raw.encode("latin-1")).decode()
    except UnicodeError:
        raise RequestError(name, "not valid UTF-8") from None
    check_text(name, text)
    return text


def check_text(name: str, text: str) -> None:
    """Check one text.

    Raises:
        RequestError: it has characters that databases refuse.
    """
    if "\0" in text:
        raise RequestError(name, "contains a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise RequestError(name, "not valid UTF-8")


def check_document(value: object) -> None:
    """Check all texts of a JSON document, keys included.

    Raises:
        RequestError: one has characters that databases refuse; it names the key.
    """
    pending: list[tuple[str, object]] = [("", value)]
    while pending:
        path, found = pending.pop()
        if isinstance(found, str):
            check_text(path or "body", found)
        elif isinstance(found, dict):
            for key in found:
                check_text(path or "body", key)
            pending += [(f"{path}.{key}".lstrip("."), item) for key, item in found.items()]
        elif isinstance(found, list):
            items: Iterable[object] = found
            pending += [(f"{path}[{number}]", item) for number, item in enumerate(items)]


def parse_wait(header: str | None) -> int | None:
    """Return how many seconds the header ``Prefer`` wants to wait, None without a valid number.

    Source: RFC 7240, of which the first of several equal preferences counts.

    >>> parse_wait('respond-async, wait=300; reason="a, b"')
    120
    """
    plain = _QUOTED.sub(lambda quoted: quoted[1].translate(_DELIMITERS), header or "")
    for preference in plain.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            digits = _SECONDS.fullmatch(value.strip())
            # Python converts no more than 4300 digits.
            return min(int(digits[1][:4]), _MAX_WAIT_SECONDS) or None if digits else None
    return None


def parse_row_id(text: str, what: str) -> int:
    """Return the integer id of a row.

    Args:
        what: the kind of object, for the error.

    Raises:
        NotFoundError: no row can have it.

    >>> parse_row_id("7", "service")
    7
    """
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or int(text) > MAX_ID:
        raise NotFoundError(f"no such {what}: {text}")
    return int(text)


def parse_path_uuid(text: str, what: str) -> str:
    """Return the uuid in a path.

    Args:
        what: the kind of object, for the error.

    Raises:
        NotFoundError: it is not a uuid, so no object has it.

    >>> parse_path_uuid("6A0E1F6C5A344A649D3A0F4F5C9A7B11", "claim")
    '6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11'
    """
    try:
        return parse_uuid(text)
    except ValueError:
        raise NotFoundError(f"no such {what}: {text}") from None


def parse_marker_id(marker: str | None) -> int | None:
    """Return the marker of a list whose items have integers as ids.

    Raises:
        RequestError: it is not such an id.
    """
    if marker is None:
        return None
    if not marker.isascii() or not marker.isdigit() or len(marker) > _MAX_DIGITS:
        raise RequestError("marker", f"invalid value {marker!r}: expected the id of an item")
    return int(marker)


def parse_query_uuid(name: str, text: str | None) -> str | None:
    """Return the uuid in a parameter of a query, None without the parameter.

    Raises:
        RequestError: it is not a uuid.
    """
    if text is None:
        return None
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise RequestError(name, str(error)) from None


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

    >>> from nodetracker.accounting.schemas import integer, record
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
    amount = int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
    return -amount if text.startswith("-") else amount
