"""Schemas of nodes."""

import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodetracker.accounting.reports.hardware import CpuUse
from nodetracker.accounting.reports.overview import PARTS
from nodetracker.accounting.reports.services import Freshness
from nodetracker.accounting.schemas import Schema, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    NUMBER_OR_NULL,
    PART_OF_NAME,
    TEXT_OR_NULL,
    TIME_OR_NULL,
    answer,
    answered_list,
    choice,
    list_of_answers,
)
from nodetracker.api.schemas.overview import USE
from nodetracker.api.schemas.services import DISABLING
from nodetracker.model.fleet import FLEET_ORDERS
from nodetracker.model.node import NODE_COLUMNS, NodeValues
from nodetracker.model.pci import PciStatus

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
        "name_part": PART_OF_NAME,
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
    "forced_down": BOOLEAN,
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
_READING: Schema = {
    "read_at": TIME_OR_NULL | {"description": "when it was last read completely; null = never"},
    "freshness": one_of(Freshness) | {"description": "how recent that is"},
}

_USE = answer(
    {
        "total": NUMBER,
        "reserved": NUMBER,
        "used": NUMBER | {"description": "by claims and by guests without a claim"},
        "free": NUMBER | {"description": "negative when more than the total is used"},
        "limit": NUMBER | {"description": "what may be used, reserved amounts included"},
    }
)

NODES = answered_list(
    "nodes",
    answer(
        {
            **_IDENTITY,
            **STATE,
            **{name: _COLUMNS[name] for name in LIST_COLUMNS},
            "generation": INTEGER,
            "amounts": answer(dict.fromkeys(PARTS, _USE)),
            **_READING,
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
        **_READING,
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
        ),
        "explanations": list_of_answers(ANY_TEXT)
        | {"description": "a sentence for each difference, and what to do about it"},
    }
)

_OWNER = answer({"uuid": ANY_TEXT, "name": ANY_TEXT}) | {
    "type": ["object", "null"],
    "description": "the workload that has it",
}
_PART = {"title": ANY_TEXT, "text": ANY_TEXT, "use": _USE}
_CPU = answer({"id": INTEGER, "use": one_of(CpuUse), "text": ANY_TEXT})
_CELL = answer(
    {
        "id": {"type": ["integer", "null"], "description": "null: CPUs that are in no cell"},
        "title": ANY_TEXT,
        "notes": ANY_TEXT,
        "summary": ANY_TEXT | {"description": "which CPUs have each use"},
        "cores": list_of_answers(list_of_answers(_CPU)),
        "memory": list_of_answers(answer(_PART)) | {"description": "memory and huge pages"},
        "distances": list_of_answers({"type": ["integer", "null"]})
        | {"description": "to each cell, in their order"},
    }
)
_GPU = answer({"address": ANY_TEXT, "name": ANY_TEXT, "notes": ANY_TEXT, "owner": _OWNER})
_DEVICE = {
    "address": ANY_TEXT,
    "kind": ANY_TEXT,
    "notes": ANY_TEXT,
    "status": one_of(PciStatus),
    "owner": _OWNER,
    "summary": ANY_TEXT | {"description": "of its functions"},
}
_FUNCTION = answer(_DEVICE | {"functions": {"type": "array", "maxItems": 0}})
_DEVICES = list_of_answers(
    answer(
        {
            "title": ANY_TEXT | {"description": "the NUMA cell of the devices"},
            "devices": list_of_answers(answer(_DEVICE | {"functions": list_of_answers(_FUNCTION)})),
        }
    )
)

DESCRIPTION = answer(
    {
        "amounts": {"type": "object", "additionalProperties": USE},
        "machine": list_of_answers(answer({"label": ANY_TEXT, "text": ANY_TEXT})),
        "cells": list_of_answers(_CELL),
        "gpus": list_of_answers(_GPU),
        "devices": _DEVICES | {"description": "those for guests"},
        "host_devices": _DEVICES,
    }
)

ACTIONS = answer(
    {
        "actions": list_of_answers(
            answer(
                {
                    "title": ANY_TEXT,
                    "effect": ANY_TEXT,
                    "rule": ANY_TEXT,
                    "method": choice(("PATCH", "POST", "DELETE")),
                    "path": ANY_TEXT,
                    "body": {"type": ["object", "null"]},
                    "takes_reason": BOOLEAN | {"description": "the body may have disabled_reason"},
                    "is_dangerous": BOOLEAN,
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
