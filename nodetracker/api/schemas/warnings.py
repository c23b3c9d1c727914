"""Schemas of warnings."""

from nodetracker.accounting.schemas import Schema, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NODENAME,
    TIME,
    TIME_OR_NULL,
    answer,
    answered_list,
)
from nodetracker.model.warning import WarningKind

_FILTERS: Schema = {
    "kind": one_of(WarningKind),
    "all": BOOLEAN | {"description": "true (resolved warnings, too) or false"},
}

LIST_QUERY = record({"host": ANY_TEXT, "nodename": NODENAME, **_FILTERS, **PAGE})

OF_NODE_QUERY = record({**_FILTERS, **PAGE})

WARNINGS = answered_list(
    "warnings",
    answer(
        {
            "id": {"description": "null until it is stored", "type": ["integer", "null"]},
            "host": ANY_TEXT,
            "kind": one_of(WarningKind),
            "nodename": ANY_TEXT,
            "item": ANY_TEXT,
            "message": ANY_TEXT,
            "first_seen": TIME,
            "last_seen": TIME,
            "count": INTEGER,
            "resolved_at": TIME_OR_NULL,
            "earlier": INTEGER | {"description": "how often it was raised and resolved before"},
        }
    ),
    LINKS,
)
