"""Write lines to an output, and repaint a terminal."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from nodetracker.cmd.screen.lines import Line, Style
from nodetracker.cmd.screen.streams import unwrap
from nodetracker.cmd.screen.terminal import Terminal, safe_text

LOOKS = {
    Style.TITLE: "bold",
    Style.DIM: "dim",
    Style.GOOD: "green",
    Style.WARNING: "yellow",
    Style.BAD: "bold red",
    Style.RESERVED: "bright_black",
    Style.CLAIMED: "blue",
    Style.UNCLAIMED: "blue",
    Style.LEFT: "dim",
    Style.EXCESS: "red",
}
"""By the terminal's own palette."""

FIXED_LOOKS = LOOKS | {
    Style.GOOD: "color(28)",
    Style.WARNING: "color(166)",
    Style.BAD: "bold color(160)",
    Style.RESERVED: "color(244)",
    Style.CLAIMED: "color(33)",
    Style.UNCLAIMED: "color(33)",
    Style.EXCESS: "color(160)",
}
"""By the 240 colors that are the same on all terminals.

Each has a contrast of at least 3.5 on white and on black, which the yellow and
blue of no common palette have on both.
"""

# Control sequences of ECMA-48 and xterm.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Screen:
    """An output and what it can show."""

    def __init__(self, out: IO[str], terminal: Terminal) -> None:
        self.out = unwrap(out)
        self.terminal = terminal

    def show(self, lines: Iterable[Line]) -> None:
        """Write lines."""
        self.out.write("".join(f"{text}\n" for text in self.render(lines)))
        self.out.flush()

    def paint(self, lines: Sequence[Line]) -> None:
        """Replace all that the terminal shows; lines that do not fit are left out."""
        texts = self.render(lines[: self.terminal.height])
        painted = "\n".join(f"{text}{_CLEAR_LINE}" for text in texts)
        self.out.write(f"{_HOME}{painted}{_CLEAR_BELOW}")
        self.out.flush()

    def render(self, lines: Iterable[Line]) -> list[str]:
        """Return lines as text; what their author left unsafe is made safe here."""
        has_unicode = self.terminal.has_unicode
        if not self.terminal.has_color:
            return [
                safe_text("".join([text for text, _ in line]), has_unicode).rstrip()
                for line in lines
            ]
        from rich.color import ColorSystem
        from rich.style import Style as Look

        is_fixed = self.terminal.has_fixed_colors
        names = FIXED_LOOKS if is_fixed else LOOKS
        looks = {style: Look.parse(look) for style, look in names.items()}
        system = ColorSystem.EIGHT_BIT if is_fixed else ColorSystem.STANDARD

        def color(text: str, style: Style) -> str:
            safe = safe_text(text, has_unicode)
            return looks[style].render(safe, color_system=system) if style in looks else safe

        return ["".join(color(text, style) for text, style in line) for line in lines]


@contextmanager
def full_screen(out: IO[str]) -> Iterator[None]:
    """Use the terminal's other screen, without a cursor, and return to the first one."""
    stream = unwrap(out)
    stream.write(_ENTER)
    try:
        yield
    finally:
        stream.write(_LEAVE)
        stream.flush()


class Panel:
    """Lines at the end of a terminal's output, below all that is written by `above`.

    Its methods may be called by several threads.
    """

    def __init__(self, out: IO[str] = sys.stdout) -> None:
        self._out = unwrap(out)
        self._texts: list[str] = []
        self._lock = threading.Lock()

    def paint(self, texts: Sequence[str]) -> None:
        """Replace the panel's lines, which are rendered."""
        with self._lock:
            self._out.write(self._clear())
            self._texts = list(texts)
            self._write()

    def above(self, text: str) -> None:
        """Write complete lines above the panel."""
        with self._lock:
            self._out.write(self._clear() + text)
            self._write()

    def _clear(self) -> str:
        return f"\x1b[{len(self._texts)}F{_CLEAR_BELOW}" if self._texts else ""

    def _write(self) -> None:
        self._out.write("".join(f"{text}\n" for text in self._texts))
        self._out.flush()


class PanelStream:
    """A terminal's stream whose lines are written above a panel; all else is the stream's own."""

    def __init__(self, stream: IO[str], panel: Panel) -> None:
        self._stream = stream
        self._panel = panel
        self._started = ""

    def write(self, text: str) -> int:
        """Write the lines that are complete; the rest waits for its newline."""
        complete, newline, rest = (self._started + text).rpartition("\n")
        self._started = rest
        if newline:
            self._panel.above(complete + newline)
        return len(text)

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the stream."""
        return getattr(self._stream, name)
