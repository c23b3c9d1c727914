"""What readers copy from the documents."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def read_section(page: str, heading: str) -> str:
    """Return the text below a heading of the second level, up to the next one."""
    _, _, text = (DOCS / page).read_text().partition(f"\n## {heading}\n")
    assert text, heading
    return text.partition("\n## ")[0]


def read_blocks(text: str, language: str = "sh") -> list[str]:
    """Return the blocks of code of a text, in order, without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]
