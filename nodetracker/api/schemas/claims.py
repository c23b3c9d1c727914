"""Schemas of claims; that of a request is `CLAIM_REQUEST` of `accounting.schemas`."""

from nodetracker.accounting.schemas import UUID, Schema, list_of, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    HIDEABLE,
    INTEGER,
    NODENAME,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT_OR_NULL,
    TIME,
    TIME_OR_NULL,
    answer,
    answered_list,
    choice,
    hideable,
    list_of_answers,
)
from nodetracker.model.claim import ClaimKind, ClaimState
from nodetracker.model.guest import WorkloadKind

_STATES = list_of(one_of(ClaimState), "states; may be repeated")
_ORDER: Schema = {"sort_dir": choice(("asc", "desc"))}

LIST_QUERY = record(
    {
        "host": ANY_TEXT,
        "nodename": NODENAME,
        "state": _STATES,
        "workload": UUID,
        "project": ANY_TEXT,
        **_ORDER,
        **PAGE,
    }
)

OF_NODE_QUERY = record({"state": _STATES, **_ORDER, **PAGE})

CREATE_QUERY = record({"dry_run": BOOLEAN})

_CELL = answer(
    {
        "host_cell": INTEGER,
        "vcpus": INTEGER,
        "memory_mb": INTEGER,
        "page_size_kb": {"type": ["integer", "null"]},
        "pages": INTEGER,
        "pins": {
            "description": "CPU of the guest -> CPU of the host",
            "type": "object",
            "additionalProperties": INTEGER,
        },
        "isolated": list_of_answers(INTEGER),
    }
)

PLACEMENT: Schema = answer({"cells": list_of_answers(_CELL)}) | {"type": ["object", "null"]}

CLAIM = answer(
    {
        "uuid": ANY_TEXT,
        "workload_uuid": ANY_TEXT,
        "workload_name": ANY_TEXT,
        "kind": one_of(ClaimKind),
        "state": one_of(ClaimState),
        "host": HIDEABLE,
        "nodename": HIDEABLE,
        "vcpus": NUMBER,
        "memory_mb": INTEGER,
        "disk_gb": NUMBER,
        "expires_at": TIME_OR_NULL,
        "reason": ANY_TEXT,
        "workload_kind": one_of(WorkloadKind),
        "project_id": ANY_TEXT,
        "pcpus": INTEGER,
        "resources": {"type": "object", "additionalProperties": INTEGER},
        "numa": PLACEMENT,
        "devices": hideable(list_of_answers(ANY_TEXT)),
        "migration_uuid": TEXT_OR_NULL,
        "created_at": TIME,
        "updated_at": TIME,
    }
)

CLAIMS = answered_list("claims", CLAIM, LINKS)

_VERDICT = answer(
    {
        "resource": ANY_TEXT,
        "total": NUMBER,
        "reserved": NUMBER,
        "allocation_ratio": NUMBER,
        "used": NUMBER,
        "limit": NUMBER_OR_NULL,
        "free": NUMBER_OR_NULL,
        "requested": NUMBER,
        "excess": NUMBER_OR_NULL,
        "max_unit": NUMBER_OR_NULL,
        "is_growing": BOOLEAN,
        "fits": BOOLEAN,
    }
)

_PCI_FINDING = answer(
    {
        "alias": ANY_TEXT,
        "count": INTEGER,
        "usable": INTEGER,
        "pools": hideable(list_of_answers(ANY_TEXT)),
        "devices": hideable(list_of_answers(ANY_TEXT)),
    }
)

ADMISSION = answer(
    {
        "host": TEXT_OR_NULL,
        "nodename": TEXT_OR_NULL,
        "fits": BOOLEAN,
        "reasons": list_of_answers(ANY_TEXT),
        "numa": PLACEMENT,
        "numa_reasons": list_of_answers(ANY_TEXT),
        "resources": list_of_answers(_VERDICT),
        "pci": list_of_answers(_PCI_FINDING),
    }
)

CLAIM_OR_ADMISSION: Schema = {
    "description": "the claim that the same request was granted before, or a dry run's result",
    "oneOf": [CLAIM, ADMISSION],
}
