"""Text as every database holds it: how long a column's may be, and what no column takes."""

TEXT_LENGTH = 255
"""Characters of a text column, unless it says otherwise."""

LONG_TEXT_LENGTH = 16_000
"""Characters that an unbounded text column of MariaDB holds, whatever they are."""

PCI_ID_LENGTH = 16
"""Characters of a PCI id and of a PCI address."""


def sanitize_text(text: str, length: int = TEXT_LENGTH) -> str:
    r"""Return text cut to a column's length, without what some database refuses.

    >>> sanitize_text("a\0b\ud800c", 4)
    'a?b?'
    """
    if text.isascii() and "\0" not in text:
        return text[:length]
    return text[:length].encode(errors="replace").decode().replace("\0", "?")
