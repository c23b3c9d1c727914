"""Files that the architecture names exist."""

import re
from pathlib import Path

import nodetracker

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def test_the_files_that_it_names_exist() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", TEXT)
    assert len(named) > 50
    places = (ROOT, Path(nodetracker.__file__).parent)
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
