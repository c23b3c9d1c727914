"""host list, show."""

import argparse
from typing import Any

from cliff.lister import Lister

from nodetracker.accounting.summary import as_row, describe_host
from nodetracker.cmd.commands.base import StoreCommand, columns_of
from nodetracker.errors import NotFoundError

ZONE = "nova"
"""Every host is in the zone that Nova calls its hosts' when none is set."""


class ListHosts(StoreCommand, Lister):
    """List hosts with their service and zone."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read all services."""
        rows = [
            {"host_name": service.host, "service": service.binary, "zone": ZONE}
            for service in self.store.list_services()
        ]
        return columns_of(rows, ("host_name", "service", "zone"))


class ShowHost(StoreCommand, Lister):
    """Show what a host has, what is used, and by which project."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the host's nodes and add them up."""
        records = self.store.load_nodes(parsed_args.host)
        if not records and not self.store.list_services(parsed_args.host):
            raise NotFoundError(f"there is no host {parsed_args.host}")
        rows = [as_row(line) for line in describe_host(parsed_args.host, records)]
        return columns_of(rows, ("host", "project", "cpu", "memory_mb", "disk_gb"))
