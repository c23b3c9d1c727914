"""Sum what hosts and projects use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nodetracker.model.amounts import Amounts
from nodetracker.model.listing import UsageSum
from nodetracker.model.node import NodeValues
from nodetracker.model.units import (
    usage_gib_from_mib,
    usage_units_from_milli,
)

HOST_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
)  # fmt: skip
"""The columns of a node that `describe_host` reads."""


@dataclass(frozen=True, slots=True)
class HostUsage:
    """One line of ``host show``: a project's usage of a host."""

    host: str
    project: str
    cpu: int
    memory_mb: int
    disk_gb: int


def describe_host(
    host: str, nodes: Sequence[NodeValues], usage: Sequence[UsageSum]
) -> list[HostUsage]:
    """Build the lines of ``host show``: capacity, usage, and usage by project.

    ``(used_max)`` is the sum of all workloads without reserved amounts.
    Workloads without a claim are ``(unclaimed)``; if their driver reports a
    project, they are also included in its line.

    Args:
        nodes: of the host, in `HOST_COLUMNS`.
        usage: of the host, from `FleetReader.sum_usage`.
    """
    total = HostUsage(
        host,
        "(total)",
        sum(node.vcpus for node in nodes),
        sum(node.memory_mb for node in nodes),
        sum(node.local_gb for node in nodes),
    )
    used = HostUsage(
        host,
        "(used_now)",
        sum(node.vcpus_used for node in nodes),
        sum(node.memory_mb_used for node in nodes),
        sum(node.local_gb_used for node in nodes),
    )
    groups = [
        ("(used_max)", list(usage)),
        ("(unclaimed)", [found for found in usage if not found.is_claimed]),
        *(
            (project, [found for found in usage if found.project_id == project])
            for project in sorted({found.project_id for found in usage if found.project_id})
        ),
    ]
    return [total, used, *(_sum_group(host, project, group) for project, group in groups)]


def _sum_group(host: str, project: str, group: Iterable[UsageSum]) -> HostUsage:
    total = sum(map(Amounts.of, group), Amounts())
    cpu, disk_gb = usage_units_from_milli(total.vcpu_milli), usage_gib_from_mib(total.disk_mb)
    return HostUsage(host, project, cpu, total.memory_mb, disk_gb)


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
        **sum(map(Amounts.of, items), Amounts()).in_units(),
    }
