"""Build the parts that schemas of queries and answers share."""

import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodetracker.accounting.schemas import TEXT, Schema, one_of
from nodetracker.model.text import TEXT_LENGTH

ANY_TEXT: Schema = {"description": "a text", "type": "string"}
PART_OF_NAME: Schema = {
    "description": "a part of the name",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,  # no name is longer, and SQLite refuses much longer patterns
}
SHORT_TEXT: Schema = {
    "description": f"a text of 1 to {TEXT_LENGTH} characters",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
NODENAME: Schema = {"description": "a nodename", "type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
TIME_OR_NULL: Schema = {"type": ["string", "null"], "format": "date-time"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
BOOLEAN: Schema = {"description": "true or false", "type": "boolean"}

PAGE: Schema = {
    "limit": {"description": "an integer from 1", "type": "integer", "minimum": 1},
    "marker": TEXT,
}
"""The parameters of every list; `limit` above ``[api] max_limit`` is cut."""

_LINKS: Schema = {
    "description": "the link to the next page, if any",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["rel", "href"],
        "properties": {"rel": {"const": "next"}, "href": {"type": "string"}},
    },
}


def choice(values: tuple[str, ...]) -> Schema:
    """Return the schema of one of some words."""
    return {
        "description": f"one of {', '.join(values)}",
        "type": "string",
        "enum": list(values),
    }


def answer(properties: Schema) -> Schema:
    """Return the schema of an object in an answer, which has all of its keys."""
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


_BY_TYPE: dict[Any, Schema] = {
    int: INTEGER,
    float: NUMBER,
    bool: BOOLEAN,
    str: {"type": "string"},
    datetime: TIME,
    list: {"type": "array"},
    Mapping: {"type": "object"},
}


def schema_of(hint: Any) -> Schema:
    """Return the schema of a value in an answer from the type of its field."""
    if isinstance(hint, types.UnionType):
        (known,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        schema = schema_of(known)
        return schema | {"type": [schema["type"], "null"]}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return one_of(hint)
    return _BY_TYPE[typing.get_origin(hint) or hint]


def answer_of(kind: type, without: Collection[str] = (), **others: Schema) -> Schema:
    """Return the schema of a dataclass that is an object in an answer.

    Args:
        without: fields that the answer does not have.
        others: keys whose schema says more than the type of the field, or that are no field.
    """
    hints = typing.get_type_hints(kind)
    names = [item.name for item in fields(kind) if item.name not in without]
    known = {
        name: ANY_TEXT if hints[name] is str else schema_of(hints[name])
        for name in names
        if name not in others
    }
    return answer({name: known.get(name) or others[name] for name in [*names, *others]})


def list_of_answers(items: Schema) -> Schema:
    """Return the schema of a list in an answer."""
    return {"type": "array", "items": items}


def hideable(schema: Schema) -> Schema:
    """Return the schema of what is null for callers who may not see hosts."""
    return schema | {
        "description": "null: the caller may not see hosts",
        "type": [schema["type"], "null"],
    }


HIDEABLE = hideable({"type": "string"})


def answered_page(noun: str, item: Schema) -> Schema:
    """Return the schema of a page: ``{"NOUN": [...], "links": [...]}``."""
    return answer({noun: list_of_answers(item), "links": _LINKS})
