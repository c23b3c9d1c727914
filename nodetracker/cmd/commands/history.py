"""node history."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nodetracker.accounting.reports.history import collect_names, find_unnamed, render_history_entry
from nodetracker.cmd.commands.base import ListCommand, columns_of, parse_limit, parse_time
from nodetracker.cmd.commands.node import add_node_arguments
from nodetracker.cmd.screen.node_details import draw_history
from nodetracker.fleet.reads import read_items
from nodetracker.model.change import HistoryEntry
from nodetracker.model.listing import HistoryQuery

if TYPE_CHECKING:  # imports more than this command needs
    from nodetracker.ports import ReadingStore

COLUMNS = ("at", "host", "nodename", "what", "diff")
DEFAULT_LIMIT = 1000
_MOST_OLDER = 1000


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
