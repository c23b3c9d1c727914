"""Schemas of nodes."""

import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT_OR_NULL,
    TIME_OR_NULL,
    answer,
    answered_list,
    choice,
    list_of_answers,
)
from nodetracker.api.schemas.services import DISABLING
from nodetracker.model.fleet import FLEET_ORDERS
from nodetracker.model.node import NODE_COLUMNS, NodeValues
from nodetracker.schemas.fields import Schema, record

STATES = ("up", "down", "unreachable")
STATUSES = ("enabled", "disabled")

LIST_COLUMNS = (
    "vcpus", "vcpus_used", "cpu_used", "pcpus", "pcpus_used", "memory_mb", "memory_mb_used",
    "free_ram_mb", "mem_available", "local_gb", "local_gb_used", "disk_used", "free_disk_gb",
    "disk_available_least", "running_vms", "total_containers", "hypervisor_type", "host_ip",
    "architecture", "os", "kernel_version", "booted_at",
)  # fmt: skip
"""The columns of a node in lists: all that operators compare, and none that is JSON."""


LIST_QUERY = record(
    {
        "host": ANY_TEXT,
        "nodename": ANY_TEXT,
        "name_part": {"description": "a part of the nodename", "type": "string", "minLength": 1},
        "state": choice(STATES),
        "status": choice(STATUSES),
        "sort_key": choice(FLEET_ORDERS),
        "sort_dir": choice(("asc", "desc")),
        **PAGE,
    }
)

STATE: Schema = {
    "state": {"enum": list(STATES)},
    "status": {"enum": list(STATUSES)},
    **DISABLING,
    "maintenance": BOOLEAN,
}
"""What the service of a node's host decides."""

_BY_TYPE: dict[Any, Schema] = {
    int: INTEGER,
    float: NUMBER,
    bool: BOOLEAN,
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    list: {"type": "array"},
    Mapping: {"type": "object"},
}


def _column(hint: Any) -> Schema:
    """Return the schema of a column from the type of its field."""
    if isinstance(hint, types.UnionType):
        (known,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        schema = _column(known)
        return schema | {"type": [schema["type"], "null"]}
    return _BY_TYPE[typing.get_origin(hint) or hint]


_HINTS = typing.get_type_hints(NodeValues)
_COLUMNS = {name: _column(_HINTS[name]) for name in NODE_COLUMNS}
_IDENTITY: Schema = {"uuid": ANY_TEXT, "host": ANY_TEXT, "hypervisor_hostname": ANY_TEXT}
_READ_AT: Schema = {
    "read_at": TIME_OR_NULL | {"description": "when it was last read completely; null = never"}
}

NODES = answered_list(
    "nodes",
    answer(
        {
            **_IDENTITY,
            **STATE,
            **{name: _COLUMNS[name] for name in LIST_COLUMNS},
            "generation": INTEGER,
            **_READ_AT,
        }
    ),
    LINKS,
)

NODE = answer(
    {
        "id": INTEGER,
        **_IDENTITY,
        **STATE,
        "last_seen_up": TIME_OR_NULL,
        **_COLUMNS,
        "vms_running": INTEGER | {"description": "instances that run; running_vms counts all"},
        "generation": INTEGER,
        "epoch": INTEGER,
        "created_at": TIME_OR_NULL,
        "updated_at": TIME_OR_NULL,
        **_READ_AT,
    }
)

_CAUSE = answer(
    {
        "workload_uuid": TEXT_OR_NULL
        | {"description": "null: the row, which differs from the sum of all workloads"},
        "name": ANY_TEXT,
        "ledger": NUMBER_OR_NULL | {"description": "the larger of its claims and its guest"},
        "hypervisor": NUMBER_OR_NULL | {"description": "null: its guest is not listed"},
        "difference": NUMBER,
    }
)

DIFF = answer(
    {
        "diff": list_of_answers(
            answer(
                {
                    "resource": ANY_TEXT,
                    "row_used": NUMBER_OR_NULL,
                    "ledger": NUMBER,
                    "hypervisor": NUMBER_OR_NULL,
                    "difference": NUMBER_OR_NULL,
                    "workloads": ANY_TEXT | {"description": "the causes as text"},
                    "causes": list_of_answers(_CAUSE),
                }
            )
        )
    }
)

AUDIT = answer(
    {
        "nodes": {"type": "object", "additionalProperties": ANY_TEXT},
        "listing_error": TEXT_OR_NULL,
        "duration_seconds": NUMBER,
    }
)

AUDIT_RUNNING = answer({"host": ANY_TEXT, "nodename": ANY_TEXT})
