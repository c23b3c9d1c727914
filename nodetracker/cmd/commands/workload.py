"""workload list, show."""

import argparse
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from nodetracker.accounting.reports.values import render_gib, render_json, render_mib, render_plain
from nodetracker.accounting.reports.workloads import (
    describe_workload,
    render_bindings,
    render_workload,
)
from nodetracker.cmd.commands.base import UUID, ListCommand, ShowCommand, argument, flag
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.fleet.reads import find_node, read_consistently, read_items
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.errors import NotFoundError
from nodetracker.model.listing import WorkloadQuery, WorkloadRow


class ListWorkloads(ListCommand):
    """List workloads: those with an active claim, and unclaimed guests."""

    example = "workload list --unclaimed"

    columns = (
        "uuid", "kind", "name", "host", "nodename", "project_id", "vcpus", "memory_mb", "disk_gb",
        "power_state", "claimed", "pcpus", "missing_since",
    )  # fmt: skip
    layout = (
        Column("uuid", ("uuid",)),
        Column("name", ("name",), Kind.FLEXIBLE, least=13),
        Column("kind", ("kind",), Kind.TEXT, 6),
        Column("host", ("host",), Kind.FLEXIBLE, least=13),
        Column("node", ("nodename",), Kind.FLEXIBLE, 3, same_as="host"),
        Column("project", ("project_id",), Kind.TEXT, 7),
        Column("cpu", ("vcpus",), Kind.NUMBER, 1),
        Column("pcpu", ("pcpus",), Kind.COUNT, 2),
        Column("memory", ("memory_mb",), Kind.MIB, 1),
        Column("disk", ("disk_gb",), Kind.GIB, 5),
        Column("power", ("power_state", "missing_since"), Kind.POWER, 2),
        Column("claimed", ("claimed",), Kind.TEXT, 4),
    )

    arguments = (
        argument("--host", help="Only workloads on this host."),
        argument("--project", metavar="P", help="Only workloads of this project."),
        flag("--unclaimed", "Only unclaimed guests."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        is_claimed = False if args.unclaimed else None
        query = WorkloadQuery(host=args.host, project_id=args.project, is_claimed=is_claimed)
        found = read_items(self.reader.list_workloads, query)
        order = attrgetter("host", "nodename", "name", "uuid")
        return map(render_workload, sorted(found, key=order))


class ShowWorkload(ShowCommand):
    """Show a workload, and each node where it is with its claim, amounts, pins and devices."""

    example = "workload show 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        query = WorkloadQuery(uuid=args.uuid, reads_details=True)
        found = read_items(self.reader.list_workloads, query)
        rows = sorted(found, key=attrgetter("host", "nodename"))
        if not rows:
            raise NotFoundError(f"no such workload: {args.uuid}")
        shown = describe_workload(rows)
        for place, row in zip(shown["places"], rows, strict=True):
            place |= self._read_bindings(row)
        return shown | {"places": Lines(shown["places"], map(render_place_line, shown["places"]))}

    def _read_bindings(self, row: WorkloadRow) -> dict[str, Any]:
        record = find_node(self.reader, row.host, row.nodename)
        return render_bindings(row, read_consistently(self.reader, record))


def render_place_line(place: Mapping[str, Any]) -> str:
    """Return a line with a node where a workload is, and what it uses there."""
    claim = "no claim"
    if place["claimed"]:
        claim = f"claim {place['claim_uuid']} {place['claim_state']}"
    cpus = [f"{render_plain(place['vcpus'])} CPU"]
    if place["pcpus"]:
        cpus.append(f"{place['pcpus']} pinned CPU")
    parts = [
        f"{place['host']} {place['nodename']}: {claim}",
        *cpus,
        render_mib(place["memory_mb"]),
        f"{render_gib(place['disk_gb'])} disk",
        *(f"{amount} {name}" for name, amount in sorted(place["resources"].items())),
        f"gone since {place['missing_since']}"
        if place["missing_since"]
        else place["power_state"] or "not listed",
    ]
    if place["pins"]:
        parts += map(_render_cell, place["pins"]["cells"])
    if place["devices"]:
        parts.append(f"devices {' '.join(place['devices'])}")
    if place["details"]:
        parts.append(f"details {render_json(place['details'])}")
    return ", ".join(parts)


def _render_cell(cell: Mapping[str, Any]) -> str:
    """Return what a workload has of a NUMA cell.

    >>> cell = {"host_cell": 1, "memory_mb": 512, "pages": 256, "page_size_kb": 2048,
    ...         "pins": {"0": 4, "1": 5}, "isolated": [6]}
    >>> _render_cell(cell)
    'cell 1: 512 MiB in 256 pages of 2048 KiB, pinned to CPUs 4-5, 6 kept free'
    """
    text = f"cell {cell['host_cell']}: {render_mib(cell['memory_mb'])}"
    if cell["pages"]:
        text += f" in {cell['pages']} pages of {cell['page_size_kb']} KiB"
    if cell["pins"]:
        text += f", pinned to CPUs {render_cpu_set(cell['pins'].values())}"
    if cell["isolated"]:
        text += f", {render_cpu_set(cell['isolated'])} kept free"
    return text
