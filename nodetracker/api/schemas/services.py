"""Schemas of services, in Nova's form and nodetracker's own."""

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
from nodetracker.schemas.fields import record

NOVA_LIST_QUERY = record({"host": ANY_TEXT, "binary": ANY_TEXT})

LIST_QUERY = record({"host": ANY_TEXT, "binary": ANY_TEXT, **PAGE})

SERVICE = answer(
    {
        "id": ANY_TEXT,
        "binary": ANY_TEXT,
        "host": ANY_TEXT,
        "status": {"enum": ["enabled", "disabled"]},
        "state": {"enum": ["up", "down", "unreachable"]},
        "updated_at": TIME_OR_NULL,
        "disabled_reason": TEXT_OR_NULL,
        "epoch": INTEGER,
        "clock_skew_seconds": {"type": ["number", "null"]},
        "maintenance": BOOLEAN,
        "forced_down": BOOLEAN,
        "last_seen_up": TIME_OR_NULL,
        "version": ANY_TEXT,
    }
)

SERVICES = answered_list("services", SERVICE, LINKS)
