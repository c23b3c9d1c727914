"""Schemas of the history of nodes."""

from nodetracker.accounting.schemas import Schema, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    INTEGER,
    NODENAME,
    TIME,
    answer,
    answered_list,
    list_of_answers,
)
from nodetracker.model.change import ChangeKind

_TIME: Schema = {"description": "a time in ISO 8601, UTC unless it has an offset", "type": "string"}
_PERIOD: Schema = {"since": _TIME, "until": _TIME}

LIST_QUERY = record({"host": ANY_TEXT, "nodename": NODENAME, **_PERIOD, **PAGE})

OF_NODE_QUERY = record({**_PERIOD, **PAGE})

HISTORY = answered_list(
    "history",
    answer(
        {
            "id": INTEGER,
            "at": TIME,
            "host": ANY_TEXT,
            "nodename": ANY_TEXT,
            "what": one_of(ChangeKind),
            "diff": {"type": "object"},
            "changes": list_of_answers(ANY_TEXT) | {"description": "the diff in words"},
        }
    ),
    LINKS,
)
