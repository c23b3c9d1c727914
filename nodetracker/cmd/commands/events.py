"""The command events: what happens in the fleet, once or as it happens."""

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodetracker.cmd.commands.base import DrawnCommand, ListCommand, argument, flag, parse_limit
from nodetracker.cmd.commands.period import PERIOD, read_period, read_times
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.node_details import draw_history
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal
from nodetracker.model.change import EventKind, HistoryEntry
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.model.listing import HistoryQuery
from nodetracker.usecases.feed import read_feed
from nodetracker.usecases.reads import name_guests
from nodetracker.views.history import Names, render_history_entry

_DEFAULT_LIMIT = 100
_SECONDS = 2.0


class ListEvents(DrawnCommand, ListCommand):
    """Show what happened to nodes, claims, moves, services and warnings, the newest last.

    With --follow further events are shown as they happen, until Ctrl-C. Times are in UTC.
    """

    example = "events --follow --kind claim"

    columns = ("at", "host", "nodename", "what", "diff", "kind")
    arguments = (
        argument("--host", help="Only events of this host."),
        argument("--kind", choices=[kind.value for kind in EventKind], help="Only of this kind."),
        *PERIOD,
        argument(
            "--limit",
            type=parse_limit,
            metavar="N",
            default=_DEFAULT_LIMIT,
            help=f"Maximum number of events, by default {_DEFAULT_LIMIT}; the newest are shown.",
        ),
        flag("--follow", f"Show further events, asked for every {_SECONDS:g} s, until Ctrl-C."),
    )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Show the newest events, and those that follow."""
        if not parsed_args.follow:
            return super().run(parsed_args)
        if not self.is_drawn(parsed_args):
            self.parser.error("--follow requires the format table")
        if parsed_args.until:
            self.parser.error("--follow has no end: leave --until out")
        terminal = detect_terminal(self.app.stdout)
        screen = Screen(self.app.stdout, terminal)
        since, _ = read_times(self, parsed_args)
        query = replace(_make_query(parsed_args), since=since)
        entries, cursor = read_feed(self.reader, query)
        names = name_guests(self.reader, query, entries)
        is_out = False
        try:
            while True:
                screen.show(_draw(entries, names, terminal))
                time.sleep(_SECONDS)
                try:
                    entries, following = read_feed(self.reader, query, cursor)
                    names = name_guests(self.reader, query, entries)
                except StoreUnavailableError as error:
                    entries = []
                    if not is_out:
                        self.app.stderr.write(f"{error}; trying again\n")
                    is_out = True
                    continue
                cursor = following
                if is_out:
                    self.app.stderr.write("the database answers again\n")
                is_out = False
        except KeyboardInterrupt:
            return 0

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return map(render_history_entry, read_period(self, args, _make_query(args)))

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        entries = read_period(self, args, _make_query(args))
        if not entries:
            self.report_unknown_host(args.host)
        return _draw(entries, name_guests(self.reader, _make_query(args), entries), terminal)


def _draw(entries: Sequence[HistoryEntry], names: Names, terminal: Terminal) -> list[Line]:
    placed = [replace(entry, nodename=_place_of(entry)) for entry in entries]
    return draw_history(placed, names, None, terminal)


def _make_query(args: argparse.Namespace) -> HistoryQuery:
    kinds = tuple(map(EventKind, filter(None, [args.kind])))
    return HistoryQuery(host=args.host, kinds=kinds, limit=args.limit)


def _place_of(entry: HistoryEntry) -> str:
    """Return the host of an event, and its node if that has another name."""
    names = dict.fromkeys(filter(None, (entry.host, entry.nodename)))
    return " ".join(names)
