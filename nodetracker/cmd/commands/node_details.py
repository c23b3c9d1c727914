"""Commands that explain nodes: describe, diff and history.

They are apart from `node`, as lists need neither the ledger nor placement.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nodetracker.accounting.liveness import find_broker_outage
from nodetracker.accounting.reports.description import (
    NodeDescription,
    describe_node,
    render_description,
)
from nodetracker.accounting.reports.drift import DRIFT_COLUMNS, compare_usage, explain_usage
from nodetracker.accounting.reports.history import collect_names, find_unnamed, render_history_entry
from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    columns_of,
    parse_limit,
    parse_time,
)
from nodetracker.cmd.commands.node import add_node_arguments, find_agent
from nodetracker.cmd.screen.node_details import (
    MOST_CHANGES,
    draw_advice,
    draw_description,
    draw_history,
)
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import detect_terminal
from nodetracker.fleet.reads import find_node, read_consistently, read_items
from nodetracker.model.change import HistoryEntry
from nodetracker.model.errors import PlacementError
from nodetracker.model.listing import HistoryQuery, WarningQuery
from nodetracker.model.service import CONDUCTOR_BINARY

if TYPE_CHECKING:
    from nodetracker.accounting.placement.comparison import ClassUsage
    from nodetracker.ports import ReadingStore


_DIFF_COLUMNS = (*DRIFT_COLUMNS[:4], "placement", *DRIFT_COLUMNS[4:])
"""The columns of ``node diff``: ``placement`` follows ``hypervisor``."""

COLUMNS = ("at", "host", "nodename", "what", "diff")
DEFAULT_LIMIT = 1000
_MOST_OLDER = 1000


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


class NodeHistory(ListCommand):
    """Show what changed on a host's nodes, a line for each thing, the newest last.

    The newest of them, as many as --limit says. Times are in UTC. --long shows
    the columns of the history instead.
    """

    example = "node history compute-1 --since 12h"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host, nodename and times."""
        parser = add_node_arguments(super().get_parser(prog_name))
        for option, which in (("--since", "since"), ("--until", "until")):
            parser.add_argument(
                option,
                metavar="TIME",
                help=f"Only changes {which} a time (ISO 8601, UTC) or an age such as 90m, 12h, 7d.",
            )
        parser.add_argument(
            "--limit",
            type=parse_limit,
            metavar="N",
            default=DEFAULT_LIMIT,
            help=f"Maximum number of entries, by default {DEFAULT_LIMIT}; the newest are shown.",
        )
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw the table format, unless columns are selected; other formats have the data."""
        if parsed_args.formatter != "table" or parsed_args.columns or parsed_args.long:
            return int(super().run(parsed_args))
        query = self._make_query(parsed_args)
        entries = self._read(query, parsed_args.limit)
        if not entries:
            self.report_unknown_host(parsed_args.host)
        names = collect_names([*read_older(self.reader, query, entries), *entries])
        screen = self.find_screen(parsed_args)
        screen.show(draw_history(entries, names, self.reader.now(), screen.terminal))
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the history."""
        entries = self._read(self._make_query(parsed_args), parsed_args.limit)
        return columns_of([render_history_entry(entry) for entry in entries], COLUMNS)

    def _make_query(self, parsed_args: argparse.Namespace) -> HistoryQuery:
        since, until = (
            parse_time(text, self.reader.now(), option) if text else None
            for option, text in (("--since", parsed_args.since), ("--until", parsed_args.until))
        )
        return HistoryQuery(
            host=parsed_args.host, nodename=parsed_args.nodename, since=since, until=until
        )

    def _read(self, query: HistoryQuery, limit: int) -> list[HistoryEntry]:
        """Return the newest entries, oldest first; print a line on stderr if there are others."""
        found = list(islice(read_items(self.reader.list_history_page, query), limit + 1))
        if len(found) > limit:
            self.app.stderr.write(
                f"only the newest {limit} entries are shown; see more with --limit, or older ones "
                f"with --until {found[limit - 1].at:%Y-%m-%dT%H:%M:%SZ}\n"
            )
        return found[:limit][::-1]


def read_older(
    store: "ReadingStore", query: HistoryQuery, entries: Sequence[HistoryEntry]
) -> list[HistoryEntry]:
    """Return earlier entries that name the guests of these, oldest first; [] if not needed."""
    if not find_unnamed(entries, collect_names(entries)):
        return []
    older = replace(query, since=None, until=entries[0].at)
    return list(islice(read_items(store.list_history_page, older), _MOST_OLDER))[::-1]


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


def read_usage(app: Any, uuid: str) -> "dict[str, ClassUsage]":
    """Return the usage of each class; nothing if placement is not used or cannot be read."""
    if not app.conf.placement.enabled:
        return {}
    from nodetracker.accounting.placement.comparison import sum_usage
    from nodetracker.bootstrap.clients import build_placement_client
    from nodetracker.placement.client import read_tree

    client = build_placement_client(app.conf)
    try:
        return sum_usage(read_tree(client, uuid), uuid)
    except PlacementError as error:
        app.stderr.write(f"placement is not compared: {error}\n")
        return {}
