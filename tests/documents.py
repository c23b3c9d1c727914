"""What readers copy from the documents."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def read_blocks(page: str, language: str = "sh") -> list[str]:
    """Return the blocks of code of a page in docs/, in order, without the indentation of a list."""
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]
