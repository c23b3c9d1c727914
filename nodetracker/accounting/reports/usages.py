"""Sum the usage of projects, for REST."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from nodetracker.model.listing import UsageSum
from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units


def describe_usages(sums: Iterable[UsageSum]) -> list[dict[str, Any]]:
    """Return what each project uses, in total and by kind of workload and with or without claims.

    A workload that is claimed on one node and an unclaimed guest on another one
    counts twice.

    Args:
        sums: from `FleetReader.sum_usage`.
    """
    ordered = sorted(sums, key=lambda item: (item.project_id, item.kind, not item.is_claimed))
    return [
        {
            "project_id": project_id,
            **_add(found),
            "parts": [
                {"kind": item.kind.value, "claimed": item.is_claimed, **_add([item])}
                for item in found
            ],
        }
        for project_id, group in groupby(ordered, key=lambda item: item.project_id)
        for found in [list(group)]
    ]


def _add(items: Sequence[UsageSum]) -> dict[str, float]:
    return {
        "workloads": sum(item.workloads for item in items),
        "vcpus": whole_units(sum(item.vcpu_milli for item in items), MILLI),
        "pcpus": sum(item.pcpus for item in items),
        "memory_mb": sum(item.memory_mb for item in items),
        "disk_gb": whole_units(sum(item.disk_mb for item in items), MIB_PER_GIB),
    }
