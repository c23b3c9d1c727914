"""workload list, show."""

import argparse
from typing import Any

from cliff.lister import Lister

from nodetracker.accounting.reports.workloads import WorkloadLine, list_workloads
from nodetracker.cmd.commands.base import StoreCommand, columns_of, uuid_argument
from nodetracker.errors import NotFoundError

COLUMNS = (
    "uuid", "kind", "name", "host", "nodename", "project_id", "vcpus", "memory_mb", "disk_gb",
    "power_state", "claimed",
)  # fmt: skip


class WorkloadCommand(StoreCommand, Lister):
    """Base of commands that read workloads: active claims and guests."""

    def read(self, host: str | None) -> list[WorkloadLine]:
        """Return the workloads of a host, or of all."""
        hosts = {record.host for record in self.store.list_nodes(host)}
        return [
            line
            for name in sorted(hosts)
            for record in self.store.load_nodes(name)
            for line in list_workloads(record)
        ]


class ListWorkloads(WorkloadCommand):
    """List workloads: those with an active claim, and unclaimed guests."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the filters."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only workloads on this host.")
        parser.add_argument("--project", metavar="P", help="Only workloads of this project.")
        parser.add_argument("--unclaimed", action="store_true", help="Only unclaimed guests.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and filter the workloads."""
        lines = [
            line.as_row()
            for line in self.read(parsed_args.host)
            if parsed_args.project in (None, line.project_id)
            and not (parsed_args.unclaimed and line.claimed)
        ]
        return columns_of(lines, COLUMNS)


class ShowWorkload(WorkloadCommand):
    """Show a workload's claims and guests: a line per node, with the driver's details."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the workload's uuid."""
        parser = super().get_parser(prog_name)
        parser.add_argument("uuid", metavar="UUID", type=uuid_argument)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the workload."""
        lines = [line.as_row() for line in self.read(None) if line.uuid == parsed_args.uuid]
        if not lines:
            raise NotFoundError(f"no such workload: {parsed_args.uuid}")
        return columns_of(lines, (*COLUMNS, "details"))
