"""Build the parts that schemas share."""

import enum
from collections.abc import Sequence
from typing import Any

from nodetracker.model.text import TEXT_LENGTH

Schema = dict[str, Any]

MAX_AMOUNT = 2**31 - 1
"""Placement's largest amount; the sum of a thousand of these is still exact in a row."""

TEXT: Schema = {
    "description": f"a text of 1 to {TEXT_LENGTH} characters without control characters "
    "or lone surrogates",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
    # For engines without lookahead, too (Go's, Rust's); see `validator` for $ and surrogates.
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$",
}

UUID: Schema = {
    "description": "a UUID",
    "type": ["string", "integer"],  # 32 digits without quotes are accepted
    "format": "uuid",  # in any form that `parse_uuid` reads, so code checks it
}


def integer(minimum: int = 0, maximum: int = MAX_AMOUNT) -> Schema:
    """Return the schema of an integer; 1.0 is not an integer, see `validator`."""
    return {
        "description": f"an integer from {minimum} to {maximum}",
        "type": "integer",
        "minimum": minimum,
        "maximum": maximum,
    }


def one_of(choices: type[enum.StrEnum]) -> Schema:
    """Return the schema of a member of an enumeration."""
    values = [choice.value for choice in choices]
    return {"description": f"one of {', '.join(values)}", "type": "string", "enum": values}


def list_of(items: Schema, description: str, **limits: int) -> Schema:
    """Return the schema of a list.

    Args:
        limits: ``minItems`` and ``maxItems``.
    """
    return {"description": description, "type": "array", **limits, "items": items}


def record(properties: Schema, required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object without further keys."""
    return {
        "description": "an object",
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


def nullable(schema: Schema) -> Schema:
    """Return a schema that also accepts null, which means that the key is absent."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    changed: Schema = {"type": [*types, "null"]}
    if "enum" in schema:
        changed["enum"] = [*schema["enum"], None]
    return schema | changed
