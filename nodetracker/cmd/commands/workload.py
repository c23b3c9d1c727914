"""workload list, show."""

import argparse
from typing import Any

from nodetracker.accounting.reports.workloads import render_workload
from nodetracker.cmd.commands.base import (
    ListCommand,
    columns_of,
    uuid_argument,
)
from nodetracker.cmd.screen.columns import Column, Kind
from nodetracker.errors import NotFoundError
from nodetracker.model.listing import WorkloadQuery
from nodetracker.ports.fleet import read_items

COLUMNS = (
    "uuid", "kind", "name", "host", "nodename", "project_id", "vcpus", "memory_mb", "disk_gb",
    "power_state", "claimed",
)  # fmt: skip


class WorkloadCommand(ListCommand):
    """Base of commands that read workloads: active claims and guests."""

    def read(self, query: WorkloadQuery) -> list[dict[str, Any]]:
        """Return workloads in order of host, node, name and uuid."""
        rows = sorted(
            read_items(self.store.list_workloads, query),
            key=lambda row: (row.host, row.nodename, row.name, row.uuid),
        )
        return [render_workload(row) for row in rows]


class ListWorkloads(WorkloadCommand):
    """List workloads: those with an active claim, and unclaimed guests."""

    layout = (
        Column("uuid", ("uuid",)),
        Column("name", ("name",), Kind.FLEXIBLE),
        Column("kind", ("kind",), Kind.TEXT, 6),
        Column("host", ("host",)),
        Column("node", ("nodename",), Kind.TEXT, 3),
        Column("project", ("project_id",), Kind.TEXT, 7),
        Column("cpu", ("vcpus",), Kind.NUMBER, 1),
        Column("memory", ("memory_mb",), Kind.MIB, 1),
        Column("disk", ("disk_gb",), Kind.GIB, 5),
        Column("power", ("power_state",), Kind.STATE, 2),
        Column("claimed", ("claimed",), Kind.TEXT, 4),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the filters."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only workloads on this host.")
        parser.add_argument("--project", metavar="P", help="Only workloads of this project.")
        parser.add_argument("--unclaimed", action="store_true", help="Only unclaimed guests.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the workloads."""
        query = WorkloadQuery(
            host=parsed_args.host,
            project_id=parsed_args.project,
            is_claimed=False if parsed_args.unclaimed else None,
        )
        return columns_of(self.read(query), COLUMNS)


class ShowWorkload(WorkloadCommand):
    """Show a workload's claims and guests: a line per node, with the driver's details."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the workload's uuid."""
        parser = super().get_parser(prog_name)
        parser.add_argument("uuid", metavar="UUID", type=uuid_argument)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the workload."""
        rows = self.read(WorkloadQuery(uuid=parsed_args.uuid, reads_details=True))
        if not rows:
            raise NotFoundError(f"no such workload: {parsed_args.uuid}")
        return columns_of(rows, (*COLUMNS, "details"))
