"""Sanitize text for every supported database: column lengths and invalid characters."""

import re

TEXT_LENGTH = 255
"""Default length of text columns, in characters."""

LONG_TEXT_LENGTH = 16_000
"""Characters that fit into an unbounded text column of MariaDB in any script."""

PCI_ID_LENGTH = 16
"""Length of the columns for PCI ids and addresses, in characters."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def has_control_characters(text: str) -> bool:
    r"""Return whether text has any, with which it can change how a terminal shows it.

    >>> has_control_characters("a\x1b[2J"), has_control_characters("a b")
    (True, False)
    """
    return _CONTROL.search(text) is not None


def sanitize_text(text: str, length: int = TEXT_LENGTH) -> str:
    r"""Truncate text to a column's length and replace characters that a database rejects.

    >>> sanitize_text("a\0b\ud800c", 4)
    'a?b?'
    """
    if text.isascii() and "\0" not in text:
        return text[:length]
    return text[:length].encode(errors="replace").decode().replace("\0", "?")
