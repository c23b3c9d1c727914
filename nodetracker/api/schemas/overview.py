"""Schema of ``/v1/overview``."""

from nodetracker.accounting.reports.overview import PARTS, HealthLevel
from nodetracker.accounting.reports.services import STATES, STATUSES, Freshness
from nodetracker.accounting.schemas import one_of
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    TIME,
    answer,
    list_of_answers,
)
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import WorkloadKind

USE = answer(
    {
        "total": NUMBER,
        "reserved": NUMBER,
        "claimed": NUMBER,
        "unclaimed": NUMBER,
        "free": {"description": "negative when more than the total is used", "type": "number"},
        "limit": {
            "description": "what may be used with the allocation ratio, reserved amounts included",
            "type": "number",
        },
    }
)
_AMOUNTS = answer(dict.fromkeys(PARTS, USE))
_GUESTS = answer({kind.value: INTEGER for kind in WorkloadKind})

_NODE = answer(
    {
        "uuid": ANY_TEXT,
        "host": ANY_TEXT,
        "nodename": ANY_TEXT,
        "state": {"type": "string", "enum": list(STATES)},
        "status": {"type": "string", "enum": list(STATUSES)},
        "maintenance": BOOLEAN,
        "freshness": one_of(Freshness),
        "amounts": _AMOUNTS,
        "guests": _GUESTS,
        "warnings": {"description": "unresolved warnings about the node", "type": "integer"},
    }
)

_FINDING = answer(
    {
        "level": one_of(HealthLevel),
        "text": ANY_TEXT,
        "path": {
            "description": "of the view of the page that lists what it is about, or empty",
            "type": "string",
        },
        "filters": {
            "description": "by which that view lists its nodes",
            "type": "object",
            "additionalProperties": ANY_TEXT,
        },
    }
)

OVERVIEW = answer(
    {
        "now": TIME,
        "health": answer(
            {
                "level": one_of(HealthLevel),
                "text": ANY_TEXT,
                "problems": list_of_answers(_FINDING) | {"description": "the worst first"},
                "notes": list_of_answers(_FINDING)
                | {"description": "nodes that administrators disabled or maintain"},
            }
        ),
        "summary": {"description": "what the fleet has, in words", "type": "string"},
        "totals": _AMOUNTS,
        "states": answer(dict.fromkeys(STATES, INTEGER)),
        "statuses": answer(dict.fromkeys(STATUSES, INTEGER)),
        "freshness": answer({kind.value: INTEGER for kind in Freshness}),
        "claims": answer({state.value: INTEGER for state in ClaimState}),
        "guests": _GUESTS,
        "warnings": {
            "description": "unresolved warnings by kind, of nodes and of whole hosts",
            "type": "object",
            "additionalProperties": INTEGER,
        },
        "nodes": list_of_answers(_NODE),
        "truncated": {
            "description": "there are more nodes than [api] overview_max_nodes",
            "type": "boolean",
        },
    }
)
