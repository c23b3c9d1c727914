"""workload list, show."""

import argparse
import re
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    argument,
    flag,
    sort_by_host,
    uuid_argument,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.amount_text import render_gib, render_mib, render_number
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.listing import WorkloadQuery, WorkloadRow
from nodetracker.model.text import name_some, natural_key, parse_uuid
from nodetracker.usecases.reads import find_node, read_consistently, read_items
from nodetracker.views.values import render_json
from nodetracker.views.workloads import (
    describe_workload,
    render_bindings,
    render_workload,
)


class ListWorkloads(ListCommand):
    example = "workload list --unclaimed"

    columns = (
        "uuid", "kind", "name", "host", "nodename", "project_id", "vcpus", "memory_mb", "disk_gb",
        "power_state", "claimed", "pcpus", "missing_since",
    )  # fmt: skip
    layout = (
        Column("uuid", ("uuid",)),
        Column("name", ("name",), Kind.NAME, least=13),
        Column("kind", ("kind",), Kind.TEXT, 6),
        Column("host", ("host",), Kind.NAME, least=13),
        Column("node", ("nodename",), Kind.NAME, 3, same_as="host"),
        Column("project", ("project_id",), Kind.TEXT, 7),
        Column("cpu", ("vcpus",), Kind.COUNT, 1),
        Column("pcpu", ("pcpus",), Kind.FEW, 2),
        Column("memory", ("memory_mb",), Kind.MIB, 1),
        Column("disk", ("disk_gb",), Kind.GIB, 5),
        Column("power", ("power_state", "missing_since"), Kind.POWER, 2),
        Column("claimed", ("claimed",), Kind.TEXT, 4),
    )

    arguments = (
        argument("--host", help="Only workloads on this host."),
        argument("--project", metavar="P", help="Only workloads of this project."),
        argument(
            "--name",
            metavar="PATTERN",
            help="Only those with this part in their name, or that match it with * and ?.",
        ),
        flag("--unclaimed", "Only unclaimed guests."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        is_claimed = False if args.unclaimed else None
        pattern = (args.name or "").lower()
        query = WorkloadQuery(
            host=args.host,
            project_id=args.project,
            is_claimed=is_claimed,
            name_part=max(re.split(r"[*?]", pattern), key=len) or None,
        )
        found = read_items(self.reader.list_workloads, query)
        if set(pattern) & set("*?"):
            matches = re.compile(_translate(pattern)).fullmatch
            found = (row for row in found if matches(row.name.lower()))
        return sort_by_host(
            map(render_workload, sorted(found, key=lambda row: (natural_key(row.name), row.uuid)))
        )


class ShowWorkload(ShowCommand):
    details = "Where several have one name, they are listed and the exit code is 1."
    example = "workload show web-1"

    arguments = (argument("workload", metavar="NAME|UUID", type=uuid_argument),)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        query = WorkloadQuery(uuid=self._find_uuid(args.workload), reads_details=True)
        found = read_items(self.reader.list_workloads, query)
        rows = sorted(found, key=attrgetter("host", "nodename"))
        if not rows:
            raise NotFoundError(f"no such workload: {args.workload}")
        shown = describe_workload(rows)
        for place, row in zip(shown["places"], rows, strict=True):
            place |= self._read_bindings(row)
        return shown | {"places": Lines(shown["places"], map(render_place_line, shown["places"]))}

    def _find_uuid(self, text: str) -> str:
        """Return the uuid of the workload that has a name, or the text if it is a uuid.

        Raises:
            RefusedError: several have the name.
        """
        try:
            return parse_uuid(text)
        except ValueError:
            pass
        found = read_items(self.reader.list_workloads, WorkloadQuery(name_part=text))
        places = {row.uuid: f"{row.uuid} on {row.host}" for row in found if row.name == text}
        if len(places) > 1:
            listed = name_some(places.values())
            raise RefusedError(f"{len(places)} workloads are named {text}: {listed}")
        return next(iter(places), text)

    def _read_bindings(self, row: WorkloadRow) -> dict[str, Any]:
        record = find_node(self.reader, row.host, row.nodename)
        return render_bindings(row, read_consistently(self.reader, record))


def _translate(pattern: str) -> str:
    """Return a pattern with * and ? as a regular expression."""
    signs = {"*": ".*", "?": "."}
    return "".join(signs.get(sign) or re.escape(sign) for sign in pattern)


def render_place_line(place: Mapping[str, Any]) -> str:
    """Return a line with a node where a workload is, and what it uses there."""
    claim = "no claim"
    if place["claimed"]:
        claim = f"claim {place['claim_uuid']} {place['claim_state']}"
    cpus = [f"{render_number(place['vcpus'])} CPU"]
    if place["pcpus"]:
        cpus.append(f"{render_number(place['pcpus'])} pinned CPU")
    parts = [
        f"{place['host']} {place['nodename']}: {claim}",
        *cpus,
        f"{render_mib(place['memory_mb'])} memory",
        f"{render_gib(place['disk_gb'])} disk",
        *(f"{amount:,} {name}" for name, amount in sorted(place["resources"].items())),
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
    'cell 1: 512 MiB in 256 pages of 2048 KiB, pinned to CPUs 4-5, 6 kept from others'
    """
    text = f"cell {cell['host_cell']}: {render_mib(cell['memory_mb'])}"
    if cell["pages"]:
        text += f" in {cell['pages']} pages of {cell['page_size_kb']} KiB"
    if cell["pins"]:
        text += f", pinned to CPUs {render_cpu_set(cell['pins'].values())}"
    if cell["isolated"]:
        text += f", {render_cpu_set(cell['isolated'])} kept from others"
    return text
