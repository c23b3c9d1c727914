"""Files that the architecture names exist, and so do the tests that documentation names."""

import re
from pathlib import Path

import nodetracker

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (DOCS / "architecture.md").read_text()


def test_the_files_that_it_names_exist() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", TEXT)
    assert len(named) > 50
    places = (ROOT, Path(nodetracker.__file__).parent)
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_the_tests_that_documentation_names_exist() -> None:
    named = {
        name
        for path in DOCS.rglob("*.md")
        for name in re.findall(r"`(tests/[^` ]+)`", path.read_text())
    }
    assert sum("::" in name for name in named) >= 8
    assert [name for name in sorted(named) if not _exists(name)] == []


def test_each_line_about_costs_and_projects_has_a_test() -> None:
    _, _, text = (DOCS / "security.md").read_text().partition("What one caller can cost")
    lines = re.findall(r"^\| (?!who)(.*) \|$", text, re.MULTILINE)
    assert len(lines) >= 11
    assert [line for line in lines if "`tests/" not in line.rpartition(" | ")[2]] == []


def _exists(name: str) -> bool:
    """Return whether a file exists, with the class and the function named after it."""
    path, *parts = name.split("::")
    if not (ROOT / path).exists():
        return False
    text = (ROOT / path).read_text() if parts else ""
    return all(re.search(rf"^ *(class|def) {part}\b", text, re.MULTILINE) for part in parts)
