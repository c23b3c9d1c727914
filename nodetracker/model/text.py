"""Sanitize text for every supported database: column lengths and invalid characters."""

TEXT_LENGTH = 255
"""Default length of text columns, in characters."""

LONG_TEXT_LENGTH = 16_000
"""Characters that fit into an unbounded text column of MariaDB in any script."""

PCI_ID_LENGTH = 16
"""Length of the columns for PCI ids and addresses, in characters."""


def sanitize_text(text: str, length: int = TEXT_LENGTH) -> str:
    r"""Truncate text to a column's length and replace characters that a database rejects.

    >>> sanitize_text("a\0b\ud800c", 4)
    'a?b?'
    """
    if text.isascii() and "\0" not in text:
        return text[:length]
    return text[:length].encode(errors="replace").decode().replace("\0", "?")
