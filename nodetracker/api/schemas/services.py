"""Schemas of services, in Nova's form and nodetracker's own."""

from nodetracker.accounting.schemas import TEXT, Schema, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    TEXT_OR_NULL,
    TIME_OR_NULL,
    answer,
    answered_list,
)
from nodetracker.model.text import TEXT_LENGTH

NOVA_LIST_QUERY = record({"host": ANY_TEXT, "binary": ANY_TEXT})

_REASON: Schema = {
    "description": f"a text of 1 to {TEXT_LENGTH} characters",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
}
_NAMED: Schema = {"host": TEXT, "binary": TEXT}

NOVA_NAMED = record(_NAMED, required=tuple(_NAMED))

NOVA_NAMED_REASON = record(
    _NAMED | {"disabled_reason": _REASON}, required=(*_NAMED, "disabled_reason")
)

NOVA_NAMED_FORCED_DOWN = record(
    _NAMED | {"forced_down": BOOLEAN}, required=(*_NAMED, "forced_down")
)

NOVA_UPDATE = record(
    {
        "status": {
            "description": "enabled or disabled",
            "type": "string",
            "enum": ["enabled", "disabled"],
        },
        "disabled_reason": _REASON,
        "forced_down": BOOLEAN,
    }
) | {"description": "an object with status, forced_down or both", "minProperties": 1}

LIST_QUERY = record({"host": ANY_TEXT, "binary": ANY_TEXT, **PAGE})

UPDATE = record(
    {
        "disabled": BOOLEAN,
        "disabled_reason": _REASON,
        "maintenance": BOOLEAN,
        "forced_down": BOOLEAN,
    }
) | {"description": "an object with what is to change", "minProperties": 1}

DISABLING: Schema = {
    "disabled_reason": TEXT_OR_NULL,
    "disabled_at": TIME_OR_NULL | {"description": "null: enabled, or unknown"},
    "disabled_by": TEXT_OR_NULL | {"description": "the user; null: enabled, or unknown"},
}
"""Why, since when and by whom a service is disabled."""

SERVICE = answer(
    {
        "id": ANY_TEXT,
        "binary": ANY_TEXT,
        "host": ANY_TEXT,
        "status": {"enum": ["enabled", "disabled"]},
        "state": {"enum": ["up", "down", "unreachable"]},
        "updated_at": TIME_OR_NULL,
        **DISABLING,
        "epoch": INTEGER,
        "clock_skew_seconds": {"type": ["number", "null"]},
        "maintenance": BOOLEAN,
        "forced_down": BOOLEAN,
        "last_seen_up": TIME_OR_NULL,
        "version": ANY_TEXT,
    }
)

SERVICES = answered_list("services", SERVICE, LINKS)
