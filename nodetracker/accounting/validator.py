"""Read JSON strictly and check documents against schemas; errors name the path of the key."""

import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from nodetracker.accounting.acceptance import (
    TYPES,
    Accept,
    compile_pattern,
    compile_schema,
)
from nodetracker.accounting.schemas import Schema
from nodetracker.model.errors import RequestError
from nodetracker.model.text import render_value

if TYPE_CHECKING:
    from jsonschema import ValidationError


_MAX_DIGITS = 1000

MAX_DEPTH = 64
MAX_VALUES = 200_000
"""Of a document that is parsed here: no other thread runs meanwhile, for up to 0.1 s."""

_PART = 128 * 1024
_OTHERS = bytes(set(range(256)).difference(b"[]{},:"))
_SAME = bytes.maketrans(b"{}", b"[]")


def count_values(data: bytes, name: str, limit: int = MAX_VALUES) -> int:
    """Count the values of a JSON document, and check its depth, before it is parsed.

    A few hundred kilobytes of ``[],[],`` take more time and memory than megabytes of text.

    Args:
        name: of the document, for errors.
        limit: after which counting ends.

    Returns:
        Objects, keys, lists, texts, numbers and so on, those in others included; rather one
        too many. A number above the limit if there are more.

    Raises:
        RequestError: it is nested too deeply, or its brackets do not match.

    >>> count_values(b'{"a": [1, "[[[", 2]}', "body")
    6
    """
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * limit:
        return limit + 1
    values, is_text, opened = 1, False, b""
    # In parts, so that other threads run between them.
    for start in range(0, len(plain), _PART):
        texts = plain[start : start + _PART].split(b'"')
        marks = b"".join(texts[is_text::2]).translate(_SAME, _OTHERS)
        is_text ^= len(texts) % 2 == 0
        values += len(marks) - marks.count(b"]")
        if values > limit:
            return values
        brackets = marks.translate(None, b",:")
        opened = _close(opened + brackets, name)
    return values


def _close(brackets: bytes, name: str) -> bytes:
    """Return the brackets that are not closed, without the pairs."""
    for _ in range(MAX_DEPTH):
        if b"]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    if b"]" in brackets or len(brackets) > MAX_DEPTH:
        raise RequestError(name, "not valid JSON: nested too deeply, or its brackets do not match")
    return brackets


def parse_json(text: str, name: str) -> object:
    """Parse a JSON document; a key occurs once in an object, and NaN and Infinity are invalid.

    Args:
        name: of the document, for errors; such as its file.

    Raises:
        RequestError: it is not valid JSON, has a duplicate key, a number of
            over 1000 digits or beyond the range of floats, more than `MAX_VALUES`
            values, or is nested too deeply.

    >>> parse_json('{"a": 1, "a": 2}', "request.json")
    Traceback (most recent call last):
    nodetracker.model.errors.RequestError: request.json: duplicate key 'a'
    """
    if count_values(text.encode(errors="surrogatepass"), name) > MAX_VALUES:
        raise RequestError(name, f"more than {MAX_VALUES} values")
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
    if len(text) > _MAX_DIGITS:
        raise RequestError(name, f"number of {len(text)} digits: expected at most {_MAX_DIGITS}")
    return int(text)


def _read_float(name: str, text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise RequestError(name, f"number {render_value(text)} is out of range")
    return value


def _refuse_constant(name: str, text: str) -> NoReturn:
    """Reject NaN and Infinity, which Python's reader accepts."""
    raise RequestError(name, f"not valid JSON: {text} is not a number")


def check(document: object, schema: Schema) -> None:
    """Check a document against a schema.

    Raises:
        RequestError: with the first violation and its path, e.g.
            ``numa.cells[1].pcpus``.

    >>> from nodetracker.accounting.schemas import integer
    >>> check({"vcpus": "2"}, {"properties": {"vcpus": integer()}})
    Traceback (most recent call last):
    nodetracker.model.errors.RequestError: vcpus: expected an integer from 0 to 2147483647, got '2'
    """
    # By its address, as it cannot be hashed; what is kept with it keeps it from being another's.
    known = _ACCEPTS.get(id(schema)) or _ACCEPTS.setdefault(
        id(schema), (schema, compile_schema(schema))
    )
    if known[1](document):
        return
    try:
        violation = next(_validator_class()(schema).iter_errors(document), None)
    except ValueError:  # jsonschema 4.26 renders the value; Python does not beyond 4300 digits
        raise RequestError("", "numbers of thousands of digits are not accepted") from None
    if violation is not None:
        raise _translate(violation)


_ACCEPTS: dict[int, tuple[Schema, Accept]] = {}
"""Address of a schema -> the schema, and what accepts documents."""


@functools.cache
def _validator_class() -> Callable[[Schema], Any]:
    """Return a validator that rejects 1.0 and True as integers, and NaN as a number.

    Text has no lone surrogates, and the end of a pattern is the end of the text as in
    JavaScript, whose patterns JSON Schema has: Python's $ allows a newline after it.

    jsonschema is imported with the first document that is wrong: it takes 40 ms and 8 MiB
    (seen with 4.26).
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {name: lambda _, value, test=test: test(value) for name, test in TYPES.items()}
    )
    extended = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, {"pattern": _check_pattern}, type_checker=types
    )
    return cast("Callable[[Schema], Any]", extended)


def _check_pattern(
    validator: Any, pattern: str, value: object, schema: Schema
) -> "Iterator[ValidationError]":
    """Yield an error if a text does not have a pattern."""
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not compile_pattern(pattern).search(
        cast("str", value)
    ):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _translate(violation: Any) -> RequestError:
    """Translate a `jsonschema.ValidationError`."""
    path, value = list(violation.absolute_path), violation.instance
    if violation.validator == "required":
        missing = next(key for key in violation.validator_value if key not in value)
        return RequestError(_render_path([*path, missing]), "is missing")
    if violation.validator == "additionalProperties":
        known = violation.schema["properties"]
        unknown = next(key for key in value if key not in known)
        expected = f"one of {', '.join(known)}" if known else "none"
        reason = f"unknown key {render_value(unknown)}: expected {expected}"
        return RequestError(_render_path(path), reason)
    kind = "key " if "propertyNames" in violation.relative_schema_path else ""
    is_too_long = violation.validator == "maxItems"
    got = f"a list of {len(value)}" if is_too_long else f"{kind}{render_value(value)}"
    reason = f"expected {violation.schema['description']}, got {got}"
    return RequestError(_render_path(path), reason)


def _render_path(path: Iterable[str | int]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")
