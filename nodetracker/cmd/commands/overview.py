"""The command overview: the fleet on one screen, which --watch repaints and keys steer."""

import argparse
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from nodetracker.cmd.commands.base import DrawnCommand, ShowCommand, argument
from nodetracker.cmd.screen.lines import Line, Piece, Style
from nodetracker.cmd.screen.output import Screen, full_screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.streams import render_error
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal
from nodetracker.cmd.screen.watch import (
    NodeKey,
    Outage,
    Watch,
    draw_picture,
    draw_watch,
    list_shown,
    press,
)
from nodetracker.model.errors import NodetrackerError, NotFoundError
from nodetracker.model.trend import TrendSample
from nodetracker.process.workers import start_thread
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
    details = """
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


FleetSource = Callable[[], FleetView]
"""Reads the fleet. Raises the errors of `FleetReader.read_overview`, and NotFoundError."""

Drawing = Callable[[Terminal], Sequence[Line]]
NodeSource = Callable[[str, str], Drawing]
"""Reads a node by host and nodename, and returns what draws it; raises as `FleetSource`."""

HoursSource = Callable[[Sequence[str], datetime], Mapping[str, Sequence[TrendSample]]]
"""Reads the last day of nodes by their uuids, at a time; raises as `FleetSource`."""

_SILENCE_SECONDS = 5.0
_ESCAPE_SECONDS = 0.1  # after which an escape is a key, and not the start of another one's code
_SUSPEND = "c-z"


class KeyReader:
    """The keys of a terminal, which does neither echo nor interpret them meanwhile."""

    def __init__(self, stream: TextIO) -> None:
        from prompt_toolkit.input.vt100 import Vt100Input

        self._input = Vt100Input(stream)

    def fileno(self) -> int:
        """Return the descriptor that can be read from when a key was pressed."""
        return self._input.fileno()

    def raw_mode(self) -> AbstractContextManager[None]:
        """Take the terminal's keys until the end of the context."""
        return self._input.raw_mode()

    def read(self) -> list[str]:
        """Return the keys that were pressed, by prompt_toolkit's names; the end is ``c-c``."""
        pressed = self._input.read_keys()
        if not pressed and not select.select([self], [], [], _ESCAPE_SECONDS)[0]:
            pressed = self._input.flush_keys()
        keys = [str(getattr(found.key, "value", found.key)) for found in pressed]
        return [*keys, "c-c"] if self._input.closed else keys


@dataclass(frozen=True, slots=True)
class _Found:
    """What the reading thread has read: the fleet, and the node that was opened then."""

    view: FleetView
    opened: NodeKey | None
    drawing: Drawing | None


class FleetScreen:
    """Repaints a terminal until Ctrl-C or ``q``, and leaves the last picture on it.

    Args:
        stdin: gives the keys if it is a terminal.
    """

    def __init__(
        self,
        read: FleetSource,
        out: TextIO,
        seconds: float,
        read_node: NodeSource | None = None,
        stdin: TextIO | None = None,
        read_hours: HoursSource | None = None,
    ) -> None:
        self._read = read
        self._read_node = read_node
        self._read_hours = read_hours
        self._out = out
        self._seconds = seconds
        self._keys = KeyReader(stdin) if stdin is not None and stdin.isatty() else None
        self._found: SimpleQueue[_Found | Exception] = SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        os.set_blocking(self._wake_reader, False)
        self._watch = Watch()
        self._view: FleetView | None = None
        self._outage: Outage | None = None
        self._drawing: tuple[NodeKey, Drawing] | None = None
        self._heard_at = time.monotonic()
        self._is_suspended = False
        self._is_due = threading.Event()  # the thread reads at once
        self._is_taken = threading.Event()
        self._is_over = threading.Event()

    def run(self) -> None:
        """Paint until Ctrl-C or ``q``; Ctrl-Z suspends the process.

        Raises:
            NotFoundError: the host that is watched does not exist.
        """
        start_thread("fleet", self._read_all)
        try:
            while not self._watch.is_over:
                with self._taking_the_terminal():
                    while not self._watch.is_over and not self._is_suspended:
                        self._paint()
                        self._take()
                if self._is_suspended:
                    os.kill(os.getpid(), signal.SIGTSTP)  # goes on here
                    self._is_suspended, self._heard_at = False, time.monotonic()
        except KeyboardInterrupt:
            pass
        finally:
            self._is_over.set()
            self._is_taken.set()  # the thread ends
            self._is_due.set()
        terminal = detect_terminal(self._out)
        Screen(self._out, terminal).show(draw_picture(self._view, self._outage, terminal))

    @contextmanager
    def _taking_the_terminal(self) -> Iterator[None]:
        """Use the terminal's other screen and keys; SIGTERM ends as Ctrl-C does."""
        with ExitStack() as stack:
            stack.enter_context(_handling(signal.SIGWINCH, lambda *_: self._wake()))
            stack.enter_context(_handling(signal.SIGTSTP, lambda *_: self._suspend()))
            stack.enter_context(_handling(signal.SIGTERM, _interrupt))
            if self._keys is not None:
                stack.enter_context(self._keys.raw_mode())
            stack.enter_context(full_screen(self._out))
            yield

    def _suspend(self) -> None:
        self._is_suspended = True
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:  # it is awake
            pass

    def _paint(self) -> None:
        terminal = detect_terminal(self._out)
        lines = draw_watch(
            self._watch, self._view, self._outage, self._describe(terminal), terminal
        )
        Screen(self._out, terminal).paint(lines)

    def _describe(self, terminal: Terminal) -> Sequence[Line] | None:
        """Return the lines of the node that is opened, None while it is not read."""
        if self._drawing is None or self._drawing[0] != self._watch.opened:
            return None
        return self._drawing[1](terminal)

    def _take(self) -> None:
        """Wait for the next reading, error, key or change of the terminal's size, and note it."""
        silence = max(_SILENCE_SECONDS, 2 * self._seconds)
        keys = self._keys
        streams: list[KeyReader | int] = [self._wake_reader, *([keys] if keys else [])]
        wait = max(0.0, self._heard_at + silence - time.monotonic())
        ready = select.select(streams, [], [], wait)[0]
        if keys is not None and keys in ready:
            for key in keys.read():
                self._press(key)
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if time.monotonic() >= self._heard_at + silence:
            self._note_outage("")
            self._heard_at = time.monotonic()
        try:
            while True:
                self._note(self._found.get_nowait())
        except Empty:
            pass

    def _press(self, key: str) -> None:
        if key == _SUSPEND:
            self._is_suspended = True
            return
        before = self._watch.opened
        self._watch = press(self._watch, key, self._view, detect_terminal(self._out))
        if self._watch.opened not in (None, before):
            self._is_due.set()

    def _note(self, found: "_Found | Exception") -> None:
        self._heard_at = time.monotonic()
        self._is_taken.set()
        if isinstance(found, NodetrackerError) and not isinstance(found, NotFoundError):
            self._note_outage(render_error(found))
        elif isinstance(found, Exception):
            raise found
        else:
            self._view, self._outage = found.view, None
            if found.opened is not None and found.drawing is not None:
                self._drawing = found.opened, found.drawing

    def _note_outage(self, reason: str) -> None:
        since = self._outage.since if self._outage else time.strftime("%H:%M:%SZ", time.gmtime())
        self._outage = Outage(since, reason)

    def _read_all(self) -> None:
        """Read again and again; not while a terminal that is stopped (Ctrl-S) takes no picture."""
        while not self._is_over.is_set():
            self._is_taken.clear()
            self._is_due.clear()
            found: _Found | Exception
            try:
                found = self._read_once()
            except Exception as error:  # of which the main thread decides
                found = error
            self._found.put(found)
            self._wake()
            self._is_taken.wait()
            self._is_due.wait(self._seconds)

    def _read_once(self) -> _Found:
        opened = self._watch.opened
        view = self._read()
        if self._read_hours is not None:
            shown = list_shown(self._watch, view, detect_terminal(self._out))
            uuids = [line.node.uuid for line in shown if line.node.uuid]
            view = replace(view, hours=self._read_hours(uuids, view.overview.now))
        if opened is None or self._read_node is None:
            return _Found(view, None, None)
        try:
            drawing = self._read_node(*opened)
        except NotFoundError as error:
            text = str(error)
            drawing = lambda terminal: [(Piece(text, Style.BAD),)]  # noqa: E731
        return _Found(view, opened, drawing)


@contextmanager
def _handling(number: signal.Signals, handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
