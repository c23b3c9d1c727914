"""Files and tests that documentation names exist, and its links lead somewhere."""

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


def test_links_lead_to_files_and_headings() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    found = [(page, link) for page in pages for link in _LINK.findall(_read_prose(page))]
    assert len(found) > 200
    assert [(page.name, link) for page, link in found if not _leads(page, link)] == []


_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def _leads(page: Path, link: str) -> bool:
    """Return whether a link's file exists, and has its heading."""
    name, _, anchor = link.partition("#")
    path = page.parent / name if name else page
    if not path.exists():
        return False
    headings = re.findall(r"^#+ (.*)$", _read_prose(path), re.MULTILINE) if anchor else []
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return not anchor or anchor in slugs


def _read_prose(path: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def _exists(name: str) -> bool:
    """Return whether a file exists, with the class and the function named after it."""
    path, *parts = name.split("::")
    if not (ROOT / path).exists():
        return False
    text = (ROOT / path).read_text() if parts else ""
    return all(
        re.search(rf"^ *(class|def) {part}\b|^{part} = ", text, re.MULTILINE) for part in parts
    )
