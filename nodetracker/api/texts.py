"""Check text and numbers of requests for what databases refuse."""

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.text import parse_uuid

MAX_ID = 2**63 - 1
"""The largest integer that a database compares."""


def find_bad_text(text: str) -> str | None:
    r"""Return what is wrong with a text; None if databases accept it.

    >>> find_bad_text("a\0")
    'contains a NUL character'
    """
    if "\0" in text:
        return "contains a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "not valid UTF-8"
    return None


def decode_url_text(name: str, raw: str) -> str:
    """Return percent-encoded text as characters.

    Args:
        name: of what it is, for the error.
        raw: each character is a byte, as in a WSGI environment.

    Raises:
        RequestError: it is not UTF-8, or has characters that databases refuse.
    """
    try:
        text = unquote_to_bytes(raw.encode("latin-1")).decode()
    except UnicodeError:
        raise RequestError(name, "not valid UTF-8") from None
    check_text(name, text)
    return text


def check_text(name: str, text: str) -> None:
    """Check one text.

    Raises:
        RequestError: it has characters that databases refuse.
    """
    problem = find_bad_text(text)
    if problem is not None:
        raise RequestError(name, problem)


def check_document(value: object) -> None:
    """Check all texts of a JSON document, keys included.

    Raises:
        RequestError: one has characters that databases refuse; it names the key.
    """
    pending: list[tuple[str, object]] = [("", value)]
    while pending:
        path, found = pending.pop()
        if isinstance(found, str):
            check_text(path or "body", found)
        elif isinstance(found, dict):
            for key in found:
                check_text(path or "body", key)
            pending += [(f"{path}.{key}".lstrip("."), item) for key, item in found.items()]
        elif isinstance(found, list):
            items: Iterable[object] = found
            pending += [(f"{path}[{number}]", item) for number, item in enumerate(items)]


def parse_row_id(text: str, what: str) -> int:
    """Return the integer id of a row.

    Args:
        what: the kind of object, for the error.

    Raises:
        NotFoundError: no row can have it.

    >>> parse_row_id("7", "service")
    7
    """
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or int(text) > MAX_ID:
        raise NotFoundError(f"no such {what}: {text}")
    return int(text)


def parse_path_uuid(text: str, what: str) -> str:
    """Return the uuid in a path.

    Args:
        what: the kind of object, for the error.

    Raises:
        NotFoundError: it is not a uuid, so no object has it.

    >>> parse_path_uuid("6A0E1F6C5A344A649D3A0F4F5C9A7B11", "claim")
    '6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11'
    """
    try:
        return parse_uuid(text)
    except ValueError:
        raise NotFoundError(f"no such {what}: {text}") from None


def parse_query_uuid(name: str, text: str | None) -> str | None:
    """Return the uuid in a parameter of a query, None without the parameter.

    Raises:
        RequestError: it is not a uuid.
    """
    if text is None:
        return None
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise RequestError(name, str(error)) from None
