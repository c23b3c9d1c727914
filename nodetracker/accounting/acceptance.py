"""Compile a JSON schema to a function that returns whether a document is valid.

jsonschema walks a schema again for each document, which took a quarter of the time of many claims
in one request, and importing it costs a program 40 ms and 8 MiB. So it is asked only what is wrong
with a document that was not accepted here; it has the last word.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from nodetracker.accounting.schemas import Schema

Accept = Callable[[Any], bool]

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_integer(value: object) -> bool:
    """Return whether a value is an integer; 1.0 and True are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a number; NaN and infinity are not."""
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def is_string(value: object) -> bool:
    """Return whether a value is a text without lone surrogates."""
    return isinstance(value, str) and not _SURROGATE.search(value)


def is_object(value: object) -> bool:
    """Return whether a value is an object."""
    return type(value) is dict or isinstance(value, Mapping)


TYPES: Mapping[str, Accept] = {
    "integer": is_integer,
    "number": is_number,
    "string": is_string,
    "object": is_object,
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


@cache
def compile_pattern(pattern: str) -> "re.Pattern[str]":
    """Return a pattern of JSON Schema, where ``$`` is the end of the text as in JavaScript.

    Python's allows a newline after it.
    """
    return re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern)


def compile_schema(schema: Schema) -> Accept:
    """Return a function that is true for documents that a schema accepts.

    It is false for all if the schema has a keyword that is not known here.

    >>> compile_schema({"type": "object", "required": ["a"]})({"a": 1})
    True
    """
    try:
        return _compile(schema)
    except KeyError:
        return lambda value: False


def _compile(schema: Schema | bool) -> Accept:
    if isinstance(schema, bool):
        return lambda value: schema
    tests = [
        _MAKERS[keyword](argument, schema)
        for keyword, argument in schema.items()
        if keyword not in _WITHOUT_TEST
    ]

    def accept(value: Any) -> bool:
        for test in tests:  # noqa: SIM110 - all() of a generator takes twice as long
            if not test(value):
                return False
        return True

    return accept


_WITHOUT_TEST = {"description", "title", "format", "then", "else"}
"""Keywords without a test of their own; code checks formats."""


def _type(names: str | Sequence[str], schema: Schema) -> Accept:
    tests = [TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    if len(tests) == 1:
        return tests[0]
    return lambda value: any(test(value) for test in tests)


def _enum(choices: Sequence[Any], schema: Schema) -> Accept:
    known = [(type(choice), choice) for choice in choices]
    return lambda value: (type(value), value) in known


def _const(constant: Any, schema: Schema) -> Accept:
    return _enum([constant], schema)


def _of_kind(is_kind: Accept, test: Callable[[Any, Any], bool]) -> Callable[[Any, Schema], Accept]:
    """Return what makes the test of a keyword that only concerns values of one kind.

    Args:
        test: gets the value and the keyword's argument.
    """
    return lambda argument, schema: lambda value: not is_kind(value) or test(value, argument)


def _has_all(value: Mapping[str, Any], names: Collection[str]) -> bool:
    return all(name in value for name in names)


def _properties(properties: Mapping[str, Schema], schema: Schema) -> Accept:
    accepts = {name: _compile(item) for name, item in properties.items()}

    def test(value: Any) -> bool:
        if is_object(value):
            for name, item in value.items():
                accept = accepts.get(name)
                if accept is not None and not accept(item):
                    return False
        return True

    return test


def _additional(item: Schema | bool, schema: Schema) -> Accept:
    known, accept = schema.get("properties", {}).keys(), _compile(item)

    def test(value: Any) -> bool:
        if is_object(value) and not value.keys() <= known:
            return all(accept(value[name]) for name in value if name not in known)
        return True

    return test


def _names(item: Schema, schema: Schema) -> Accept:
    accept = _compile(item)
    return lambda value: not is_object(value) or all(accept(name) for name in value)


def _items(item: Schema, schema: Schema) -> Accept:
    accept = _compile(item)
    return lambda value: not isinstance(value, list) or all(accept(one) for one in value)


def _if(condition: Schema, schema: Schema) -> Accept:
    is_so = _compile(condition)
    then, otherwise = (_compile(schema.get(name, True)) for name in ("then", "else"))
    return lambda value: then(value) if is_so(value) else otherwise(value)


_is_list = TYPES["array"]

_MAKERS: Mapping[str, Callable[[Any, Schema], Accept]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _of_kind(is_number, lambda value, least: bool(value >= least)),
    "maximum": _of_kind(is_number, lambda value, most: bool(value <= most)),
    "exclusiveMinimum": _of_kind(is_number, lambda value, limit: bool(value > limit)),
    "minLength": _of_kind(is_string, lambda value, least: len(value) >= least),
    "maxLength": _of_kind(is_string, lambda value, most: len(value) <= most),
    "pattern": _of_kind(
        is_string, lambda value, pattern: bool(compile_pattern(pattern).search(value))
    ),
    "minItems": _of_kind(_is_list, lambda value, least: len(value) >= least),
    "maxItems": _of_kind(_is_list, lambda value, most: len(value) <= most),
    "minProperties": _of_kind(is_object, lambda value, least: len(value) >= least),
    "maxProperties": _of_kind(is_object, lambda value, most: len(value) <= most),
    "required": _of_kind(is_object, _has_all),
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "items": _items,
    "if": _if,
}
