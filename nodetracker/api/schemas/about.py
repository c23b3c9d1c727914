"""Schemas of ``/v1`` and ``/v1/about``."""

from nodetracker.api.schemas.fields import ANY_TEXT, BOOLEAN, TEXT_OR_NULL, answer, list_of_answers

VERSION = answer(
    {
        "name": ANY_TEXT,
        "version": ANY_TEXT,
        "links": list_of_answers(answer({"rel": ANY_TEXT, "href": ANY_TEXT})),
    }
)

ABOUT = answer(
    {
        "version": ANY_TEXT,
        "user": ANY_TEXT,
        "project_id": TEXT_OR_NULL,
        "roles": {"type": "array", "items": ANY_TEXT},
        "is_system": BOOLEAN,
        "has_session": BOOLEAN | {"description": "the request is that of a browser's session"},
        "rules": {
            "description": "the rules of the policy that allow this user",
            "type": "array",
            "items": ANY_TEXT,
        },
    }
)
