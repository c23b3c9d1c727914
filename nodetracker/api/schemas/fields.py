"""Build the parts that schemas of queries and answers share."""

from nodetracker.schemas.fields import Schema

ANY_TEXT: Schema = {"description": "a text", "type": "string"}
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


def answered_list(noun: str, item: Schema, links: Schema) -> Schema:
    """Return the schema of a page: ``{"NOUN": [...], "links": [...]}``."""
    return answer({noun: list_of_answers(item), "links": links})
