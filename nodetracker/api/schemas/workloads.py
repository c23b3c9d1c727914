"""Schemas of workloads."""

from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.claims import PLACEMENT
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NODENAME,
    NUMBER,
    TEXT_OR_NULL,
    answer,
    answered_list,
    list_of_answers,
)
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.guest import WorkloadKind
from nodetracker.schemas.fields import Schema, one_of, record

LIST_QUERY = record(
    {
        "host": ANY_TEXT,
        "node": NODENAME,
        "name_part": {"description": "a part of its name", "type": "string", "minLength": 1},
        "project": ANY_TEXT,
        "claimed": BOOLEAN,
        **PAGE,
    }
)

OF_NODE_QUERY = record(PAGE)

_IDENTITY: Schema = {
    "uuid": ANY_TEXT,
    "kind": one_of(WorkloadKind),
    "name": ANY_TEXT,
    "project_id": ANY_TEXT,
}

_PLACE: Schema = {
    "node_uuid": ANY_TEXT,
    "host": ANY_TEXT,
    "nodename": ANY_TEXT,
    "claimed": BOOLEAN,
    "claim_uuid": TEXT_OR_NULL,
    "claim_state": {"enum": [*(state.value for state in ACTIVE_STATES), None]},
    "vcpus": NUMBER,
    "pcpus": INTEGER,
    "memory_mb": INTEGER,
    "disk_gb": NUMBER,
    "power_state": TEXT_OR_NULL,
}

WORKLOADS = answered_list("workloads", answer({**_IDENTITY, **_PLACE}), LINKS)

_NUMA = PLACEMENT | {"description": "the placement of its claim, or the pins of its guest"}

WORKLOADS_OF_NODE = answered_list(
    "workloads", answer({**_IDENTITY, **_PLACE, "numa": _NUMA}), LINKS
)

WORKLOAD = answer(
    {
        **_IDENTITY,
        "places": list_of_answers(answer({**_PLACE, "details": {"type": "object"}})),
    }
)
