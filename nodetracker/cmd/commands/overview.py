"""The command overview: one screen, which --watch repaints."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nodetracker.cmd.commands.base import DrawnCommand, ShowCommand, argument
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal
from nodetracker.usecases.trends import NodeHours, read_fleet_trend
from nodetracker.views.plain_overview import render_overview
from nodetracker.views.problems import FleetView, select_host, view_fleet

_DEFAULT_SECONDS = 5.0
_LEAST_SECONDS = 0.5


def parse_interval(text: str) -> float:
    """Parse a number of seconds.

    Raises:
        ArgumentTypeError: it is not a number, or too small.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST_SECONDS <= seconds < 1e6:
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}: expected seconds, at least {_LEAST_SECONDS:g}"
        )
    return seconds


class ShowOverview(DrawnCommand, ShowCommand):
    """Show the fleet on one screen: totals, and a line for each node, the worst first.

    What does not fit is summed up in the last line; a pipe gets all nodes. With --watch
    the screen is repainted until Ctrl-C or q: arrows move, Enter describes the node, / filters
    by a part of a name, s changes the order. While the database does not answer, it shows the
    last picture.
    """

    example = "overview --watch 5"
    arguments = (
        argument("--host", help="Only the nodes of this host."),
        argument(
            "--watch",
            nargs="?",
            type=parse_interval,
            const=_DEFAULT_SECONDS,
            metavar="SECONDS",
            help=f"Repaint the screen every SECONDS, {_DEFAULT_SECONDS:g} by default.",
        ),
    )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw the screen once, or again and again."""
        if parsed_args.watch is None:
            return super().run(parsed_args)
        out = self.app.stdout
        if not self.is_drawn(parsed_args) or not detect_terminal(out).is_interactive:
            self.parser.error("--watch requires a terminal and the format table")
        from nodetracker.cmd.fleet_screen import FleetScreen

        read = partial(self._read, parsed_args.host)
        read_hours = NodeHours(self.reader).read
        FleetScreen(read, out, parsed_args.watch, self._read_node, sys.stdin, read_hours).run()
        return 0

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return render_overview(self._read(args.host).overview)

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        # A terminal shows what fits above its prompt; a pipe gets everything.
        height = terminal.height - 1 if terminal.is_interactive else None
        return draw_overview(self._read(args.host), terminal, height)

    def _read(self, host: str | None) -> FleetView:
        rows = self.reader.read_overview()
        limits = self.service_down_time, self.app.conf.compute.held_fact_expiry
        if host is not None:
            return view_fleet(select_host(rows, host), *limits)
        return view_fleet(rows, *limits, read_fleet_trend(self.reader))

    def _read_node(self, host: str, nodename: str) -> Callable[[Terminal], list[Line]]:
        from nodetracker.cmd.commands.node_details import read_description
        from nodetracker.cmd.screen.node_details import draw_description

        described, names = read_description(self.reader, self.read_liveness(), host, nodename)
        return partial(draw_description, described, names)
