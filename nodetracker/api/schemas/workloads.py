"""Schemas of workloads."""

from nodetracker.accounting.schemas import Schema, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.claims import PLACEMENT
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    HIDEABLE,
    INTEGER,
    NODENAME,
    NUMBER,
    PART_OF_NAME,
    TEXT_OR_NULL,
    TIME_OR_NULL,
    answer,
    answered_list,
    hideable,
    list_of_answers,
)
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.guest import WorkloadKind

LIST_QUERY = record(
    {
        "host": ANY_TEXT,
        "nodename": NODENAME,
        "name_part": PART_OF_NAME,
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
    "node_uuid": HIDEABLE,
    "host": HIDEABLE,
    "nodename": HIDEABLE,
    "claimed": BOOLEAN,
    "claim_uuid": TEXT_OR_NULL,
    "claim_state": {"enum": [*(state.value for state in ACTIVE_STATES), None]},
    "vcpus": NUMBER,
    "pcpus": INTEGER,
    "memory_mb": INTEGER,
    "disk_gb": NUMBER,
    "power_state": TEXT_OR_NULL,
    "missing_since": TIME_OR_NULL,
}

WORKLOADS = answered_list("workloads", answer({**_IDENTITY, **_PLACE}), LINKS)

_NUMA = PLACEMENT | {"description": "the placement of its claim, or the pins of its guest"}

WORKLOADS_OF_NODE = answered_list(
    "workloads", answer({**_IDENTITY, **_PLACE, "numa": _NUMA}), LINKS
)

WORKLOAD = answer(
    {
        **_IDENTITY,
        "places": list_of_answers(answer({**_PLACE, "details": hideable({"type": "object"})})),
    }
)
