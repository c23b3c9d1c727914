"""Text: fit for every database, rendered from values and times, and parsed as UUIDs."""

import math
import re
import unicodedata
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice

TEXT_LENGTH = 255
"""Default length of text columns, in characters."""

LONG_TEXT_LENGTH = 16_000
"""Characters that fit into an unbounded text column of MariaDB in any script."""

JSON_TEXT_LENGTH = 1000
"""Characters of a text within a column of JSON of a node."""

PCI_ID_LENGTH = 16
"""Length of the columns for PCI ids and addresses, in characters."""


_NUMBER = re.compile("([0-9]+)")
_CANONICAL_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def sanitize_text(text: str, length: int = TEXT_LENGTH) -> str:
    r"""Truncate text to a column's length and replace characters that a database rejects.

    >>> sanitize_text("a\0b\ud800c", 4)
    'a?b?'
    """
    if text.isascii() and "\0" not in text:
        return text[:length]
    return text[:length].encode(errors="replace").decode().replace("\0", "?")


def cut_bytes(text: str, most: int) -> str:
    """Return as much of a text as fits into bytes of UTF-8.

    >>> cut_bytes("aü", 2)
    'a'
    """
    return text if len(text) * 4 <= most else text.encode()[:most].decode(errors="ignore")


# C0, DEL and C1 controls, bidirectional controls, line and paragraph separators, and
# surrogates, which no encoding accepts.
_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
_UNSAFE_BUT_NEWLINE = re.compile(f"(?!\n)[{_UNSAFE}]")


def escape_text(text: str) -> str:
    r"""Return a text with characters that could forge lines or move a cursor as escapes.

    >>> print(escape_text("a\x1b[31m\nb\u202e"))
    a\x1b[31m\x0ab\u202e
    """
    if text.isprintable():  # as no unsafe character is
        return text
    return _UNSAFE_CHARACTER.sub(_escape, text)


def escape_lines(text: str) -> str:
    """Return a text like `escape_text` that keeps its newlines."""
    return _UNSAFE_BUT_NEWLINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


_LONGEST = 100
_MAX_ITEMS = 40  # more never fit
_MAX_BITS = 512  # Python renders no integer of more than 4300 digits
_DEEPEST = 4


def render_value(value: object) -> str:
    r"""Render a value of a JSON document, cut after 100 characters.

    Numbers have plain digits, without an exponent.

    >>> print(render_value({"a": [None, True, 1e-05, float("nan"), "b\n"]}))
    {'a': [null, true, 0.00001, NaN, 'b\n']}
    """
    text = _render(value, _DEEPEST)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def render_time(moment: datetime | None) -> str | None:
    """Return a time as ISO 8601 text with microseconds, in UTC; None for None."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


def render_minute(moment: datetime) -> str:
    """Return a time for people, in UTC.

    >>> render_minute(datetime(2026, 3, 1, 11, 58, 20, tzinfo=UTC))
    '2026-03-01 11:58Z'
    """
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%MZ}"


def name_some(names: Collection[str], most: int = 5) -> str:
    """Return the first of many names.

    >>> name_some(["c", "a", "b"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> count_noun(1, "node"), count_noun(2, "node")
    ('1 node', '2 nodes')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _render(value: object, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MAX_BITS else "a number of over 150 digits"
    if isinstance(value, float):
        return _render_float(value)
    if isinstance(value, str):
        return repr(value[: _LONGEST + 1])
    if isinstance(value, Mapping | list | tuple):
        return _render_items(value, depth)
    return str(value)


def _render_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)):f}"


def _render_items(value: Collection[object], depth: int) -> str:
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    if not depth:
        return f"{opening}...{closing}"
    first = list(islice(value, _MAX_ITEMS))
    items = [_render(item, depth - 1) for item in first]
    if isinstance(value, Mapping):
        items = [
            f"{key}: {_render(value[name], depth - 1)}"
            for name, key in zip(first, items, strict=True)
        ]
    return f"{opening}{', '.join(items)}{closing}"


_TLS_CODES = re.compile(r"\[SSL(: \w+)?\] | \(_ssl\.c:\d+\)")


def omit_tls_codes(text: str) -> str:
    """Return the text of an error without what only developers of OpenSSL's binding read.

    >>> omit_tls_codes("([SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006))")
    '(wrong version number)'
    """
    return _TLS_CODES.sub("", text)


def render_file_error(error: OSError | UnicodeError) -> str:
    """Return why a file cannot be read or written, without its path.

    >>> render_file_error(FileNotFoundError(2, "No such file or directory", "/etc/x"))
    'No such file or directory'
    """
    if isinstance(error, UnicodeError):
        return "not valid UTF-8"
    return error.strerror or str(error)


def is_host_name(text: str) -> bool:
    """Return whether a text may be the name of a host.

    >>> is_host_name("compute-1.example.org"), is_host_name("a b"), is_host_name("")
    (True, False, False)
    """
    return 0 < len(text) <= TEXT_LENGTH and text.isprintable() and " " not in text


def fold_host_name(name: str) -> str:
    r"""Return what names of hosts have in common that look or resolve alike.

    >>> fold_host_name("Compute-1."), fold_host_name("\uff43ompute-1")
    ('compute-1', 'compute-1')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return folded.removesuffix(".")


def find_name_problem(name: str, others: Iterable[str]) -> str | None:
    """Return why a new host may not have a name, None if it may.

    Args:
        others: names of known hosts.
    """
    folded = fold_host_name(name)
    if folded in ("", "."):
        return f"{name!r} is not a valid host name"
    clash = next((other for other in others if fold_host_name(other) == folded), None)
    if clash is None:
        return None
    return (
        f"host {escape_text(name)} has the name of host {escape_text(clash)} in other characters: "
        f"set another [DEFAULT] host, or delete or rename host {escape_text(clash)}"
    )


def natural_key(name: str) -> list[str | int]:
    """Return the key by which people sort names: numbers in them by their value.

    >>> sorted(["h10", "h2", "h2-10", "h2-9"], key=natural_key)
    ['h2', 'h2-9', 'h2-10', 'h10']
    """
    parts = _NUMBER.split(name)  # of which each second one is a number
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def parse_uuid(value: object) -> str:
    """Return a UUID in its canonical form: lower case with hyphens.

    Raises:
        ValueError: it is not a valid UUID.

    >>> parse_uuid("0B9C6C2E0D5F4C0E9F5B0A3D5E7F1A2B")
    '0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b'
    """
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise ValueError(f"{render_value(value)} is not a valid UUID") from None


def is_canonical_uuid(text: str) -> bool:
    """Return whether a text is a UUID as `parse_uuid` returns it.

    >>> is_canonical_uuid("0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"), is_canonical_uuid("0B9C")
    (True, False)
    """
    return _CANONICAL_UUID.fullmatch(text) is not None
