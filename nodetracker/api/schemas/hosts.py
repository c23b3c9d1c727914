"""Schemas of hosts."""

from nodetracker.accounting.schemas import Schema, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    INTEGER,
    answer,
    answered_list,
    choice,
    list_of_answers,
)
from nodetracker.api.schemas.nodes import STATE, STATUSES
from nodetracker.ports import POWER_ACTIONS

NOVA_LIST_QUERY = record({"zone": ANY_TEXT})

_SWITCH: Schema = {
    "description": "enable or disable",
    "type": "string",
    "enum": [form(word) for word in ("enable", "disable") for form in (str, str.title, str.upper)],
}

NOVA_UPDATE = record({"status": _SWITCH, "maintenance_mode": _SWITCH}) | {
    "description": "an object with status, maintenance_mode or both",
    "minProperties": 1,
}

ZUN_SORT_KEYS = {
    "hostname": "host",
    "uuid": "uuid",
    "id": "id",
    "mem_total": "memory_mb",
    "mem_used": "memory_mb_used",
    "cpus": "vcpus",
    "cpu_used": "cpu_used",
    "disk_total": "local_gb",
    "disk_used": "disk_used",
    "total_containers": "total_containers",
    "architecture": "architecture",
    "os_type": "os_type",
    "os": "os",
    "kernel_version": "kernel_version",
    "created_at": "created_at",
}
"""Key of Zun's hosts -> the order of a `FleetQuery`."""

ZUN_LIST_QUERY = record(
    {
        **PAGE,
        "sort_key": {
            "description": f"one of {', '.join(ZUN_SORT_KEYS)}",
            "type": "string",
            "enum": [*ZUN_SORT_KEYS],
        },
        "sort_dir": {"description": "asc or desc", "type": "string", "enum": ["asc", "desc"]},
    }
)

LIST_QUERY = record({"status": choice(STATUSES), **PAGE})

HOSTS = answered_list(
    "hosts",
    answer(
        {"uuid": ANY_TEXT, "host_name": ANY_TEXT, "service": ANY_TEXT, "zone": ANY_TEXT, **STATE}
    ),
    LINKS,
)

HOST = answer(
    {
        "host": ANY_TEXT,
        "resources": list_of_answers(
            answer(
                {
                    "host": ANY_TEXT,
                    "project": ANY_TEXT,
                    "cpu": INTEGER,
                    "memory_mb": INTEGER,
                    "disk_gb": INTEGER,
                }
            )
        ),
    }
)

ACTION = record({"action": choice(POWER_ACTIONS)}, required=("action",))

ACTION_STARTED = answer({"host": ANY_TEXT, "action": choice(POWER_ACTIONS)})
