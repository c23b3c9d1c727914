"""Schemas of usages."""

from nodetracker.accounting.schemas import Schema, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    answer,
    answered_list,
    list_of_answers,
)
from nodetracker.model.guest import WorkloadKind

LIST_QUERY = record({"host": ANY_TEXT, "project": ANY_TEXT, **PAGE, "marker": ANY_TEXT})
"""The marker is a project, which may be unknown: an empty text."""

_AMOUNTS: Schema = {
    "workloads": INTEGER,
    "vcpus": NUMBER,
    "pcpus": INTEGER,
    "memory_mb": INTEGER,
    "disk_gb": NUMBER,
}

USAGES = answered_list(
    "usages",
    answer(
        {
            "project_id": ANY_TEXT,
            **_AMOUNTS,
            "parts": list_of_answers(
                answer({"kind": one_of(WorkloadKind), "claimed": BOOLEAN, **_AMOUNTS})
            ),
        }
    ),
    LINKS,
)
