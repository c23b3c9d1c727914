"""Build schemas of queries and answers, mostly from types.

A shape is a schema, or what a schema is made from: a type of Python or an enumeration, one of
them ``| None``, ``[items]``, ``{str: values}`` or ``(shape, description)``.
"""

import types
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodetracker.accounting.schemas import TEXT, Schema, one_of, record
from nodetracker.model.text import TEXT_LENGTH

_BY_TYPE: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"description": "true or false", "type": "boolean"},
    str: {"description": "a text", "type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    list: {"type": "array"},
    Mapping: {"type": "object"},
}

SHORT_TEXT: Schema = {
    "description": f"a text of 1 to {TEXT_LENGTH} characters",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
}
PART_OF_NAME: Schema = SHORT_TEXT | {"description": "a part of the name"}
"""No name is longer, and SQLite refuses much longer patterns."""

NODENAME = (str, "a nodename")

PAGE: Schema = {
    "limit": {"description": "an integer from 1", "type": "integer", "minimum": 1},
    "marker": TEXT,
}
"""The parameters of every list; `limit` above ``[api] max_limit`` is cut."""

WITH_COUNT: Schema = {"with_count": (bool, "true to count what the filters select, or false")}
"""The parameter of lists that say how many items they have in all."""

LINKS: Schema = {
    "description": "the link to the next page, if any",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["rel", "href"],
        "properties": {"rel": {"const": "next"}, "href": {"type": "string"}},
    },
}


def schema_of(shape: Any) -> Schema:
    """Return the schema of a shape.

    >>> schema_of(([float | None], "the worst first"))["items"]
    {'type': ['number', 'null']}
    """
    if isinstance(shape, tuple):
        return schema_of(shape[0]) | {"description": shape[1]}
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of(shape[0])}
    if isinstance(shape, dict):
        return (
            {"type": "object", "additionalProperties": schema_of(shape[str])}
            if str in shape
            else shape
        )
    if isinstance(shape, types.UnionType):
        (known,) = (part for part in typing.get_args(shape) if part is not types.NoneType)
        schema = {key: value for key, value in schema_of(known).items() if key != "description"}
        return schema | {"type": [schema["type"], "null"]}
    if isinstance(shape, type) and issubclass(shape, StrEnum):
        return one_of(shape)
    if typing.get_origin(shape) is tuple:
        return {"type": "array", "items": schema_of(typing.get_args(shape)[0])}
    return _BY_TYPE[typing.get_origin(shape) or shape]


def choice(values: Collection[str]) -> Schema:
    """Return the schema of one of some words."""
    return {"description": f"one of {', '.join(values)}", "type": "string", "enum": list(values)}


def parameters(*required: str, **shapes: Any) -> Schema:
    """Return the schema of a query or body from the shapes of its parameters."""
    return record({name: schema_of(shape) for name, shape in shapes.items()}, required)


def answer(**shapes: Any) -> Schema:
    """Return the schema of an object in an answer, which has all of its keys, from their shapes."""
    return {
        "type": "object",
        "required": list(shapes),
        "additionalProperties": False,
        "properties": {name: schema_of(shape) for name, shape in shapes.items()},
    }


def answer_of(kind: type, without: Collection[str] = (), **others: Any) -> Schema:
    """Return the schema of a dataclass that is an object in an answer.

    Args:
        without: fields that the answer does not have.
        others: shapes of keys of which the field's type says less, or that are not fields.
    """
    names = [item.name for item in fields(kind) if item.name not in (*without, "damaged")]
    found = answer_with(kind, names, **others)
    return with_damage(found) if len(names) < len(fields(kind)) - len(without) else found


def with_damage(schema: Schema) -> Schema:
    """Return the schema of a row that may have damaged columns, with their names."""
    text = "columns of the row with values that cannot be used; absent without any"
    damaged = {"damaged": schema_of([str]) | {"description": text}}
    return {**schema, "properties": {**schema["properties"], **damaged}}


def answer_with(kind: type, names: Iterable[str], **others: Any) -> Schema:
    """Return the schema of what `pick` returns of a dataclass.

    Args:
        others: as `answer_of`; keys that are not picked are last.
    """
    paths = {name: path or name for name, _, path in (name.partition("=") for name in names)}
    hints = {name: _hint_of(kind, path) for name, path in paths.items() if name not in others}
    return answer(**(dict.fromkeys(paths) | hints | others))


def _hint_of(kind: Any, path: str) -> Any:
    """Return the type of an attribute, which may be a property, of a dataclass."""
    name, _, rest = path.partition(".")
    found = getattr(kind, name, None)
    hint = typing.get_type_hints(found.fget if isinstance(found, property) else kind)
    inner = hint["return" if isinstance(found, property) else name]
    return _hint_of(inner, rest) if rest else inner


def answered_page(noun: str, item: Schema, is_counted: bool = False) -> Schema:
    """Return the schema of a page: ``{"NOUN": [...], "links": [...]}``.

    Args:
        is_counted: the query may have `WITH_COUNT`.
    """
    page = answer(**{noun: [item], "links": LINKS})
    if not is_counted:
        return page
    count = schema_of((int, "items of all pages; absent without with_count"))
    return {**page, "properties": {**page["properties"], "count": count}}


def nullable(schema: Schema, description: str) -> Schema:
    """Return the schema of an object in an answer that may be null."""
    return schema | {"type": [schema["type"], "null"], "description": description}


def hideable(shape: Any) -> Schema:
    """Return the schema of what is null for callers who may not see hosts."""
    return nullable(schema_of(shape), "null: the caller may not see hosts")


HIDEABLE = hideable(str)


EXPLANATIONS: Schema = schema_of(
    (
        [
            answer(
                text=str,
                amounts=[
                    answer(resource=str, free=float | None, requested=float, max_unit=float | None)
                ],
            )
        ],
        "for each of the reasons its text for people, and its amounts in the classes' units",
    )
)
