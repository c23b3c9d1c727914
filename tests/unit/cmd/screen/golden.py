"""Compare whole screens with files in ``tests/golden/screens``; GOLDEN=write renews them."""

import os
from pathlib import Path

from nodetracker.cmd.screen.lines import Line, plain_text

GOLDEN = Path(__file__).parents[3] / "golden" / "screens"


def check(name: str, lines: list[Line]) -> None:
    """Compare a screen with its file."""
    path, text = GOLDEN / f"{name}.txt", plain_text(lines)
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
