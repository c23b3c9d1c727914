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
    """Base of commands that read workloads: what claims hold, and what drivers see."""

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
    """List workloads: those that claims hold, and guests that no claim covers."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what to leave out."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only those on this host.")
        parser.add_argument("--project", metavar="P", help="Only those of this project.")
        parser.add_argument(
            "--unclaimed", action="store_true", help="Only guests that no claim covers."
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and choose."""
        lines = [
            line.as_row()
            for line in self.read(parsed_args.host)
            if parsed_args.project in (None, line.project_id)
            and not (parsed_args.unclaimed and line.claimed)
        ]
        return columns_of(lines, COLUMNS)


class ShowWorkload(WorkloadCommand):
    """Show where a workload is held or seen: a line for each node, with what its driver tells."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the workload."""
        parser = super().get_parser(prog_name)
        parser.add_argument("uuid", metavar="UUID", type=uuid_argument)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read it."""
        lines = [line.as_row() for line in self.read(None) if line.uuid == parsed_args.uuid]
        if not lines:
            raise NotFoundError(f"no such workload: {parsed_args.uuid}")
        return columns_of(lines, (*COLUMNS, "details"))
