"""The command overview: one screen, which --watch repaints."""

import argparse
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from nodetracker.accounting.reports.overview import render_overview
from nodetracker.accounting.reports.problems import FleetView, select_host, view_fleet
from nodetracker.cmd.commands.base import DrawnCommand, ShowCommand, argument
from nodetracker.cmd.screen.lines import BLANK, Line, Piece, Style, cut_line, dim_lines
from nodetracker.cmd.screen.output import Screen, full_screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.streams import render_error
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal
from nodetracker.model.errors import NodetrackerError, NotFoundError

FleetSource = Callable[[], FleetView]
"""Reads the fleet. Raises the errors of `FleetReader.read_overview`, and NotFoundError."""

_SILENCE_SECONDS = 5.0
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

    With --watch the screen is repainted until Ctrl-C. While the database does not
    answer, it shows the last picture.
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
        FleetWatch(partial(self._read, parsed_args.host), out, parsed_args.watch).run()
        return 0

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return render_overview(self._read(args.host).overview)

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        return draw_overview(self._read(args.host), terminal)

    def _read(self, host: str | None) -> FleetView:
        rows = self.reader.read_overview()
        if host is not None:
            rows = select_host(rows, host)
        return view_fleet(rows, self.service_down_time, self.app.conf.compute.held_fact_expiry)


class FleetWatch:
    """Repaints a terminal until Ctrl-C, and leaves the last picture on it."""

    def __init__(self, read: FleetSource, out: TextIO, seconds: float) -> None:
        self._read = read
        self._out = out
        self._seconds = seconds
        self._found: SimpleQueue[FleetView | Exception | None] = SimpleQueue()
        self._view: FleetView | None = None
        self._outage: Outage | None = None
        self._is_taken = threading.Event()
        self._is_over = threading.Event()

    def run(self) -> None:
        """Paint until Ctrl-C.

        Raises:
            NotFoundError: the host that is watched does not exist.
        """
        threading.Thread(target=self._read_all, name="fleet", daemon=True).start()
        try:
            with _resizes(self._found), full_screen(self._out):
                while True:
                    self._paint()
                    self._take()
        except KeyboardInterrupt:
            pass
        finally:
            self._is_over.set()
            self._is_taken.set()  # the thread ends
        terminal = detect_terminal(self._out)
        Screen(self._out, terminal).show(draw_picture(self._view, self._outage, terminal))

    def _paint(self) -> None:
        terminal = detect_terminal(self._out)
        Screen(self._out, terminal).paint(draw_picture(self._view, self._outage, terminal))

    def _take(self) -> None:
        """Wait for the next reading, error or change of the terminal's size, and note it."""
        silence = max(_SILENCE_SECONDS, 2 * self._seconds)
        try:
            found = self._found.get(timeout=silence)
        except Empty:
            self._note_outage("")
            return
        if found is not None:
            self._is_taken.set()
        if isinstance(found, NodetrackerError) and not isinstance(found, NotFoundError):
            self._note_outage(render_error(found))
        elif isinstance(found, Exception):
            raise found
        elif found is not None:
            self._view, self._outage = found, None

    def _note_outage(self, reason: str) -> None:
        since = self._outage.since if self._outage else time.strftime("%H:%M:%SZ", time.gmtime())
        self._outage = Outage(since, reason)

    def _read_all(self) -> None:
        """Read again and again; not while a terminal that is stopped (Ctrl-S) takes no picture."""
        while not self._is_over.is_set():
            self._is_taken.clear()
            try:
                self._found.put(self._read())
            except Exception as error:  # of which the main thread decides
                self._found.put(error)
            self._is_taken.wait()
            self._is_over.wait(self._seconds)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the fleet cannot be read.

    Attributes:
        since: local time, for people.
        reason: the last error, "" while there is only no answer.
    """

    since: str
    reason: str


def draw_picture(view: FleetView | None, outage: Outage | None, terminal: Terminal) -> list[Line]:
    """Return a screen: the fleet, dimmed during an outage, whose start is the last line."""
    if outage is None:
        if view is None:
            return [(Piece("reading the fleet", Style.DIM),)]
        return draw_overview(view, terminal, terminal.height)
    text = f"no answer since {outage.since}"
    if view is not None:
        text += "; this is the last picture"
    if outage.reason:
        text += f": {outage.reason}"
    notice = cut_line((Piece(text, Style.BAD),), terminal.width, terminal.has_unicode)
    if view is None:
        return [notice]
    room = max(0, terminal.height - 2)
    return [*dim_lines(draw_overview(view, terminal, room)[:room]), BLANK, notice]


@contextmanager
def _resizes(found: "SimpleQueue[FleetView | Exception | None]") -> Iterator[None]:
    """Put None on the queue whenever the terminal's size changes; SIGTERM ends as Ctrl-C does."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda number, frame: found.put(None)),
        signal.SIGTERM: signal.signal(signal.SIGTERM, stop),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
