"""Draw sentences that explain something, below a table."""

from collections.abc import Sequence

from nodetracker.cmd.screen.lines import BLANK, Line, make_line
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.text import safe_text, wrap_text


def draw_advice(sentences: Sequence[str], terminal: Terminal) -> list[Line]:
    """Return a blank line and the sentences, each as a paragraph; nothing without sentences."""
    lines: list[Line] = [BLANK] if sentences else []
    for sentence in sentences:
        texts = wrap_text(safe_text(sentence, terminal.has_unicode), terminal.width - 2)
        lines += (
            make_line("- " if number == 0 else "  ", text) for number, text in enumerate(texts)
        )
    return lines
