"""Schema of ``/v1/about``."""

from nodetracker.api.schemas.fields import ANY_TEXT, BOOLEAN, TEXT_OR_NULL, answer

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
