"""node describe."""

import argparse
from typing import Any

from nodetracker.accounting.liveness import find_broker_outage
from nodetracker.accounting.reports.description import (
    NodeDescription,
    describe_node,
    render_description,
)
from nodetracker.accounting.reports.history import collect_names
from nodetracker.cmd.commands.base import ShowCommand
from nodetracker.cmd.commands.history import read_older
from nodetracker.cmd.commands.node import add_node_arguments, find_agent
from nodetracker.cmd.screen.node_details import MOST_CHANGES, draw_description
from nodetracker.fleet.reads import find_node, read_consistently, read_items
from nodetracker.model.listing import HistoryQuery, WarningQuery
from nodetracker.model.service import CONDUCTOR_BINARY


class DescribeNode(ShowCommand):
    """Describe one node: its state, machine, amounts, workloads, devices and problems."""

    example = "node describe compute-1"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and nodename."""
        return add_node_arguments(super().get_parser(prog_name))

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw the table format, unless columns are selected; other formats have the data."""
        if parsed_args.formatter != "table" or parsed_args.columns:
            return int(super().run(parsed_args))
        described = self._read(parsed_args)
        node = described.record
        query = HistoryQuery(host=node.host, nodename=node.nodename)
        changes = described.changes[::-1]
        names = collect_names([*read_older(self.reader, query, changes), *changes])
        screen = self.find_screen(parsed_args)
        screen.show(draw_description(described, names, screen.terminal))
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the node."""
        shown = render_description(self._read(parsed_args))
        return tuple(shown), tuple(shown.values())

    def _read(self, parsed_args: argparse.Namespace) -> NodeDescription:
        found = find_node(self.reader, parsed_args.host, parsed_args.nodename)
        record = read_consistently(self.reader, found)
        host, nodename = record.host, record.nodename
        warnings = read_items(
            self.reader.list_warning_page, WarningQuery(host=host, is_resolved=False)
        )
        query = HistoryQuery(host=host, nodename=nodename, limit=MOST_CHANGES)
        changes = self.reader.list_history_page(query).items
        conductors = self.reader.list_services(binary=CONDUCTOR_BINARY)
        now = self.reader.now()
        down_time = self.service_down_time
        outage = find_broker_outage(conductors, now, down_time)
        service = find_agent(self.reader, host)
        return describe_node(record, service, now, down_time, outage, tuple(warnings), changes)
