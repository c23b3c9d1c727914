"""Build the parts that schemas of queries and answers share."""

from nodetracker.accounting.schemas import Schema
from nodetracker.model.text import TEXT_LENGTH

ANY_TEXT: Schema = {"description": "a text", "type": "string"}
PART_OF_NAME: Schema = {
    "description": "a part of the name",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,  # no name is longer, and SQLite refuses much longer patterns
}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
NODENAME: Schema = {"description": "a nodename", "type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
TIME_OR_NULL: Schema = {"type": ["string", "null"], "format": "date-time"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
BOOLEAN: Schema = {"description": "true or false", "type": "boolean"}


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


def answered_list(noun: str, item: Schema, links: Schema) -> Schema:
    """Return the schema of a page: ``{"NOUN": [...], "links": [...]}``."""
    return answer({noun: list_of_answers(item), "links": links})
