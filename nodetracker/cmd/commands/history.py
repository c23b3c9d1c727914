"""Commands on what has happened and what was used: events, node history and trends."""

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from nodetracker.cmd.commands.base import (
    NODE,
    Argument,
    DrawnCommand,
    ListCommand,
    StoreCommand,
    argument,
    flag,
    node_arguments,
    parse_limit,
)
from nodetracker.cmd.screen.history import draw_history
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal
from nodetracker.model.change import EventKind, HistoryEntry
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.trend import Step, TrendQuery
from nodetracker.usecases.feed import read_feed
from nodetracker.usecases.reads import find_node, name_guests, read_items
from nodetracker.views.history import HISTORY_COLUMNS, Names, render_history_entry
from nodetracker.views.trends import ROW_COLUMNS, list_rows

_SECONDS = 2.0
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

PERIOD = tuple(
    argument(
        f"--{which}",
        metavar="TIME",
        help=f"Only {which} a time (ISO 8601, UTC) or an age such as 90m, 12h, 7d.",
    )
    for which in ("since", "until")
)


def _newest(default: int, what: str) -> Argument:
    """Return the option that limits a list to the newest."""
    text = f"Maximum number of {what}, by default {default}; the newest are shown."
    return argument("--limit", type=parse_limit, metavar="N", default=default, help=text)


def read_period(
    command: StoreCommand, args: argparse.Namespace, query: HistoryQuery
) -> list[HistoryEntry]:
    """Return the newest lines of a period, oldest first; say on stderr if there are others."""
    since, until = read_times(command, args)
    query = replace(query, since=since, until=until)
    found = list(islice(read_items(command.reader.list_history_page, query), args.limit + 1))
    if len(found) > args.limit:
        command.app.stderr.write(
            f"only the newest {args.limit} entries are shown; see more with --limit, or older ones "
            f"with --until {found[args.limit - 1].at:%Y-%m-%dT%H:%M:%SZ}\n"
        )
    return found[: args.limit][::-1]


def read_times(
    command: StoreCommand, args: argparse.Namespace
) -> tuple[datetime | None, datetime | None]:
    """Return the times of --since and --until; without one None. An invalid one exits with 2."""
    now = command.reader.now() if args.since or args.until else None
    try:
        since, until = (
            None if now is None or not text else _parse_time(text, now, option)
            for option, text in (("--since", args.since), ("--until", args.until))
        )
    except ValueError as error:
        command.parser.error(str(error))
    return since, until


def _parse_time(text: str, now: datetime, option: str) -> datetime:
    """Parse a time: ISO 8601, or an age such as ``90m``, ``12h`` or ``7d``.

    A time without an offset is UTC.

    Args:
        option: that has it, for the message of an error.

    Raises:
        ValueError: the text is neither.
    """
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None and text[:-1].isdigit():
            return now - timedelta(**{unit: int(text[:-1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"argument {option}: invalid value {text!r}: expected a time such as 2026-01-31T12:00 "
            "or an age such as 12h"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class HistoryCommand(DrawnCommand, ListCommand):
    """Base of commands that show entries of the history."""

    columns = HISTORY_COLUMNS

    def make_query(self, args: argparse.Namespace) -> HistoryQuery:
        """Return the query, without its period."""
        raise NotImplementedError

    def draw_entries(
        self, entries: Sequence[HistoryEntry], names: Names, terminal: Terminal
    ) -> list[Line]:
        """Return the lines of entries."""
        raise NotImplementedError

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return map(render_history_entry, read_period(self, args, self.make_query(args)))

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        query = self.make_query(args)
        entries = read_period(self, args, query)
        if not entries:
            self.report_unknown_host(args.host)
        return self.draw_entries(entries, name_guests(self.reader, query, entries), terminal)


class ListEvents(HistoryCommand):
    details = """
    With --follow further events are shown as they happen, until Ctrl-C. Times are in UTC.
    """
    example = "events --follow --kind claim"
    arguments = (
        argument("--host", help="Only events of this host."),
        argument("--kind", choices=[kind.value for kind in EventKind], help="Only of this kind."),
        *PERIOD,
        _newest(100, "events"),
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
        query = replace(self.make_query(parsed_args), since=since)
        entries, cursor = read_feed(self.reader, query)
        names = name_guests(self.reader, query, entries)
        is_out = False
        try:
            while True:
                screen.show(self.draw_entries(entries, names, terminal))
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

    def make_query(self, args: argparse.Namespace) -> HistoryQuery:
        kinds = tuple(map(EventKind, filter(None, [args.kind])))
        return HistoryQuery(host=args.host, kinds=kinds, limit=args.limit)

    def draw_entries(
        self, entries: Sequence[HistoryEntry], names: Names, terminal: Terminal
    ) -> list[Line]:
        placed = [replace(entry, nodename=_place_of(entry)) for entry in entries]
        return draw_history(placed, names, None, terminal)


class NodeHistory(HistoryCommand):
    details = """
    The newest of them, as many as --limit says. Times are in UTC. --long shows
    the columns of the history instead.
    """
    example = "node history compute-1 --since 12h"
    arguments = (
        *NODE,
        *PERIOD,
        _newest(1000, "entries"),
    )

    def make_query(self, args: argparse.Namespace) -> HistoryQuery:
        return HistoryQuery(host=args.host, nodename=args.nodename)

    def draw_entries(
        self, entries: Sequence[HistoryEntry], names: Names, terminal: Terminal
    ) -> list[Line]:
        return draw_history(entries, names, self.reader.now(), terminal)


def _place_of(entry: HistoryEntry) -> str:
    """Return the host of an event, and its node if that has another name."""
    names = dict.fromkeys(filter(None, (entry.host, entry.nodename)))
    return " ".join(names)


class ListTrends(ListCommand):
    details = """
    Hours are kept for 14 days; days, with the means of their hours, for two years. Of the
    fleet, what is measured is the sum over the nodes of which it is known.
    """
    example = "trends compute-1 --step day"

    required_names = ()
    columns = ROW_COLUMNS
    layout = (
        Column("at", ("at",), Kind.TIME),
        Column("cpu", ("vcpus_allocated", "vcpus_limit"), Kind.SHARE),
        Column("measured", ("vcpus_measured",), Kind.COUNT, 1),
        Column("memory", ("memory_mb_allocated", "memory_mb_limit"), Kind.SHARE_MIB),
        Column("measured", ("memory_mb_measured",), Kind.MIB, 1),
        Column("disk", ("disk_gb_allocated", "disk_gb_limit"), Kind.SHARE_GIB),
        Column("measured", ("disk_gb_measured",), Kind.GIB, 1),
    )
    arguments = (
        *node_arguments(of_host="As node list shows it. Default: the fleet."),
        argument(
            "--step",
            choices=[found.value for found in Step],
            default=Step.HOUR.value,
            help="Length of the time that a line is for. Default: hour.",
        ),
        _newest(24, "lines"),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        host = args.host
        node_id = None if host is None else find_node(self.reader, host, args.nodename).id
        step = Step(args.step)
        query = TrendQuery(step=step, node_id=node_id, limit=args.limit)
        samples = self.reader.read_trend(query)
        if not samples:
            now = self.reader.now()
            first = step.start_of(now) + timedelta(seconds=step.seconds)
            whose = "the fleet" if host is None else f"host {host}"
            self.app.stderr.write(
                f"no sample of {whose} yet: the next is taken at "
                f"{first.astimezone(UTC):%Y-%m-%d %H:%MZ} while nodetracker-api "
                "or a conductor runs\n"
            )
        return list_rows(samples)
