"""Show how far a long command is: rich's bar on a terminal, a line every few seconds elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TextIO

from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal, safe_text
from nodetracker.process.workers import start_thread
from nodetracker.views.values import render_age

if TYPE_CHECKING:  # imported late: most commands end before there is anything to draw
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

DELAY_SECONDS = 0.5
"""A command that ends before shows nothing on a terminal."""

LINE_SECONDS = 5.0
_REDRAW_SECONDS = 0.2

Wait = Callable[[float], bool]
"""Waits for some seconds; returns True when the command has ended."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a command is.

    Attributes:
        done, total: in the command's own unit; a total of 0 is unknown.
        doing: what it does now.
    """

    done: float = 0
    total: float = 0
    doing: str = ""


class Progress:
    """What a command reports, and when it started; one thread reports, another one draws.

    Args:
        title: what the command does, e.g. ``capturing the machine``.
        monotonic: seconds that never go back.
    """

    def __init__(self, title: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.title = title
        self.position = Position()
        self._monotonic = monotonic
        self._started_at = monotonic()

    def report(self, done: float, total: float, doing: str = "") -> None:
        """Set the position; for functions that report to a callable of this form."""
        self.position = Position(done, total, doing)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the command started."""
        return self._monotonic() - self._started_at


class ProgressLines:
    """Draws one line for each position; for outputs that are not repainted."""

    interval = LINE_SECONDS
    delay = LINE_SECONDS

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def draw(self, progress: Progress) -> None:
        """Write a line."""
        self._screen.out.write(f"{render_progress(progress, self._screen.terminal)}\n")
        self._screen.out.flush()

    def close(self) -> None:
        """Leave the lines."""


class ProgressBar:
    """Draws rich's bar, which disappears at the end."""

    interval = _REDRAW_SECONDS
    delay = DELAY_SECONDS

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._drawn: tuple[RichProgress, TaskID] | None = None

    def draw(self, progress: Progress) -> None:
        """Repaint the bar."""
        bar, task = self._drawn or self._start()
        has_unicode = self._screen.terminal.has_unicode
        position = progress.position
        bar.update(
            task,
            description=safe_text(progress.title, has_unicode),
            completed=position.done,
            total=position.total or None,
            doing=safe_text(position.doing, has_unicode),
            refresh=True,
        )

    def close(self) -> None:
        """Remove the bar."""
        if self._drawn is not None:
            self._drawn[0].stop()

    def _start(self) -> "tuple[RichProgress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        terminal = self._screen.terminal
        console = Console(
            file=self._screen.out,
            force_terminal=True,  # `detect_terminal` decides
            width=terminal.width,
            height=terminal.height,
            color_system="standard" if terminal.has_color else None,
        )
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._drawn = bar, bar.add_task("", doing="")
        bar.start()
        return self._drawn


def render_progress(progress: Progress, terminal: Terminal) -> str:
    """Return a position as a line, e.g. ``migrating: 2 of 5, add a column, 15 s``."""
    position = progress.position
    parts = [f"{position.done:.0f} of {position.total:.0f}"] if position.total else []
    parts += [position.doing] if position.doing else []
    parts.append(render_age(progress.elapsed_seconds))
    return safe_text(f"{progress.title}: {', '.join(parts)}", terminal.has_unicode)


def draw_until(wait: Wait, progress: Progress, drawing: ProgressLines | ProgressBar) -> None:
    """Draw a command's positions until `wait` says that it has ended."""
    seconds = drawing.delay
    try:
        while not wait(seconds):
            drawing.draw(progress)
            seconds = drawing.interval
    finally:
        drawing.close()


@contextmanager
def show_progress(title: str, out: TextIO) -> Iterator[Progress]:
    """Show the progress of what runs in the context.

    Args:
        out: stderr of the program.
    """
    terminal = detect_terminal(out)
    screen = Screen(out, terminal)
    drawing = ProgressBar(screen) if terminal.is_interactive else ProgressLines(screen)
    progress, has_ended = Progress(title), threading.Event()
    thread = start_thread("progress", partial(draw_until, has_ended.wait, progress, drawing))
    try:
        yield progress
    finally:
        has_ended.set()
        thread.join()
