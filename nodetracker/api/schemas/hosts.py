"""Schemas of hosts."""

from nodetracker.api.paging import PAGE
from nodetracker.api.schemas.fields import ANY_TEXT
from nodetracker.schemas.fields import Schema, record

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
