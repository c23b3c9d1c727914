"""The command overview."""

import argparse
from typing import Any

from nodetracker.accounting.reports.overview import render_overview
from nodetracker.cmd.commands.base import ShowCommand
from nodetracker.cmd.fleet_watch import FleetWatch, make_fleet_source
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.terminal import detect_terminal

_DEFAULT_SECONDS = 5.0
_LEAST_SECONDS = 0.5


class ShowOverview(ShowCommand):
    """Show the fleet on one screen: totals, and a line for each node, the worst first.

    With --watch the screen is repainted until Ctrl-C. While the database does not
    answer, it shows the last picture.
    """

    example = "overview --watch 5"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host and the interval."""
        self._parser = super().get_parser(prog_name)
        self._parser.add_argument("--host", help="Only the nodes of this host.")
        self._parser.add_argument(
            "--watch",
            nargs="?",
            type=parse_interval,
            const=_DEFAULT_SECONDS,
            metavar="SECONDS",
            help=f"Repaint the screen every SECONDS, {_DEFAULT_SECONDS:g} by default.",
        )
        return self._parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw the table format; other formats have the data."""
        is_table = parsed_args.formatter == "table" and not parsed_args.columns
        if parsed_args.watch is None and not is_table:
            return int(super().run(parsed_args))
        out, terminal = self.app.stdout, detect_terminal(self.app.stdout)
        if parsed_args.watch is None:
            view = self._source(parsed_args)()
            Screen(out, terminal).show(draw_overview(view, terminal))
            return 0
        if not is_table or not terminal.is_interactive:
            self._parser.error("--watch requires a terminal and the format table")
        FleetWatch(self._source(parsed_args), out, parsed_args.watch).run()
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the fleet."""
        shown = render_overview(self._source(parsed_args)().overview)
        return tuple(shown), tuple(shown.values())

    def _source(self, parsed_args: argparse.Namespace) -> Any:
        return make_fleet_source(
            self.reader,
            self.service_down_time,
            self.app.conf.compute.held_fact_expiry,
            parsed_args.host,
        )


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
