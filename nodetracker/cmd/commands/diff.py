"""node diff."""

import argparse
from collections.abc import Sequence
from typing import Any

from nodetracker.accounting.reports.drift import DRIFT_COLUMNS, compare_usage, explain_usage
from nodetracker.cmd.commands.base import ListCommand, columns_of
from nodetracker.cmd.commands.node import add_node_arguments
from nodetracker.cmd.commands.placement_usage import read_usage
from nodetracker.cmd.screen.node_details import draw_advice
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import detect_terminal
from nodetracker.fleet.reads import find_node, read_consistently

_DIFF_COLUMNS = (*DRIFT_COLUMNS[:4], "placement", *DRIFT_COLUMNS[4:])
"""The columns of ``node diff``: ``placement`` follows ``hypervisor``."""


class DiffNode(ListCommand):
    """Compare a node's usage by its row, by its claims and by its guests."""

    example = "node diff compute-1"

    layout = (
        Column("resource", ("resource",)),
        Column("row", ("row_used",), Kind.NUMBER),
        Column("claims", ("ledger",), Kind.NUMBER),
        Column("hypervisor", ("hypervisor",), Kind.NUMBER),
        Column("placement", ("placement",), Kind.NUMBER, 1),
        Column("difference", ("difference",), Kind.NUMBER),
    )
    _sentences: Sequence[str] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and nodename."""
        return add_node_arguments(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read one node with its claims and guests."""
        found = find_node(self.reader, parsed_args.host, parsed_args.nodename)
        record = read_consistently(self.reader, found)
        usage = read_usage(self.app, record.uuid)
        lines = compare_usage(record)
        self._sentences = explain_usage(record, lines)
        rows = [line.as_row() | {"placement": None} for line in lines]
        for row in rows:
            entry = usage.get(row["resource"])
            if entry is not None:
                others = [f"{key} in placement +{held}" for key, held in entry.others.items()]
                causes = ", ".join(filter(None, (row["workloads"], *others)))
                row |= {"placement": entry.own, "workloads": causes}
        return columns_of(rows, _DIFF_COLUMNS)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Explain the differences below the table."""
        code = int(super().run(parsed_args))
        if parsed_args.formatter == "table":
            terminal = detect_terminal(self.app.stdout)
            Screen(self.app.stdout, terminal).show(draw_advice(self._sentences, terminal))
        return code
