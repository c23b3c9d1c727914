"""Schemas of ``/v1/session``."""

from nodetracker.accounting.schemas import Schema, record
from nodetracker.model.text import TEXT_LENGTH

_NAME: Schema = {
    "description": f"a text of 1 to {TEXT_LENGTH} characters",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
}

LOGIN = record(
    {
        "user": _NAME,
        "domain": _NAME | {"description": f"{_NAME['description']} (without one: Default)"},
        "project": _NAME | {"description": f"{_NAME['description']} (without one: system scope)"},
        "password": {
            "description": "a text of 1 to 4096 characters",
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
        },
    },
    required=("user", "password"),
)
