"""Schemas of candidates; that of a request is `CLAIM_REQUEST` of `accounting.schemas`."""

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.schemas import TEXT, Schema, list_of, one_of, record
from nodetracker.api.paging import PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    answer,
    list_of_answers,
)

_EXPLAIN: Schema = BOOLEAN | {"description": "true, or false (excluded is null)"}

FIND_QUERY = record({"limit": PAGE["limit"], "explain": _EXPLAIN})

LIST_QUERY = record(
    {
        "resources": {
            "description": "resource classes and amounts such as VCPU:2,MEMORY_MB:4096",
            "type": "string",
        },
        "required": list_of(TEXT, "traits, separated by commas; may be repeated"),
        **FIND_QUERY["properties"],
    },
    required=["resources"],
)

_CHECKS = list_of_answers(one_of(AdmissionCheck))

_NEAREST: Schema = answer(
    {
        "host": ANY_TEXT,
        "nodename": ANY_TEXT,
        "checks": _CHECKS,
        "missing": {
            "description": "resource class -> the amount by which too little is free",
            "type": "object",
            "additionalProperties": NUMBER,
        },
        "reasons": list_of_answers(ANY_TEXT),
    }
) | {"type": ["object", "null"], "description": "the excluded node that lacks least"}

_EXCLUDED: Schema = answer(
    {
        "total_nodes": {"description": "nodes that the request may name", "type": "integer"},
        "checks": list_of_answers(
            answer(
                {
                    "check": one_of(AdmissionCheck),
                    "nodes": INTEGER,
                    "is_lower_bound": BOOLEAN,
                    "text": ANY_TEXT,
                }
            )
        ),
        "nearest": _NEAREST,
    }
) | {
    "type": ["object", "null"],
    "description": "null if limit cuts the list, or with explain=false",
}

CANDIDATES = answer(
    {
        "candidates": list_of_answers(
            answer(
                {
                    "host": ANY_TEXT,
                    "nodename": ANY_TEXT,
                    "weight": NUMBER,
                    "free_vcpus": NUMBER,
                    "free_memory_mb": INTEGER,
                    "free_disk_gb": NUMBER,
                }
            )
        ),
        "excluded": _EXCLUDED,
    }
)
