"""Write the pictures of screens in docs/images; `python -m tests.pictures`."""

import io
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nodetracker.cmd.commands.node import ListNodes
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.table import draw_table
from nodetracker.cmd.screen.terminal import Terminal
from tests.unit.cmd.screen import fleets

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH = 100

# rich's own has fonts from the network.
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {terminal_width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{height}"/></clipPath>{lines}</defs>
<rect fill="#292929" width="{terminal_width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, 8)" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    """Write both pictures."""
    terminal = Terminal(WIDTH, has_color=True)
    write("terminal-overview", draw_overview(fleets.view(fleets.example()), terminal))
    rows = fleets.list_rows()
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    write("terminal-node-list", draw_table(ListNodes.layout, rows, terminal, now))


def write(name: str, lines: list[Line]) -> None:
    """Write lines as a picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for text in Screen(io.StringIO(), Terminal(WIDTH, has_color=True)).render(lines):
        console.print(Text.from_ansi(text), soft_wrap=True)
    svg = console.export_svg(title="", code_format=_FORMAT, unique_id=name)
    (IMAGES / f"{name}.svg").write_text(
        "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    )


if __name__ == "__main__":
    main()
