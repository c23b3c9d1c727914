"""Parse values of the inventory file's entries.

An invalid value raises `EntryError`, which invalidates only that entry. The
argument ``where`` is the path of the entry or value.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nodetracker.model.identifier import parse_uuid
from nodetracker.model.pci import ADDRESS_PATTERN

_MAX_INTEGER = 2**31 - 1


class EntryError(Exception):
    """An entry is invalid; the text starts with the path of the key."""


def parse_mapping(item: Any, where: str) -> dict[Any, Any]:
    """Return an item that must be a mapping."""
    if not isinstance(item, dict):
        raise EntryError(f"{where}: expected a mapping")
    return item


def parse_list(entry: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return the list under a key, empty without one."""
    items = entry.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise EntryError(f"{where}.{key}: expected a list")
    return items


def parse_integer(entry: Mapping[str, Any], key: str, where: str) -> int:
    """Return the integer under a key, from 0 to the maximum of a column."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INTEGER:
        problem = "is missing" if key not in entry else f"{value!r} is not an integer >= 0"
        raise EntryError(f"{where}.{key}: {problem}")
    return value


def parse_pci_id(entry: Mapping[str, Any], key: str, where: str) -> str:
    """Return the vendor or product id under a key, in lower case."""
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise EntryError(f"{where}.{key}: {value!r} is not a string")
    return value.lower()


def parse_entry_uuid(entry: Mapping[str, Any], where: str) -> str:
    """Return the entry's uuid in canonical form."""
    value = entry.get("uuid")
    try:
        return parse_uuid(value)
    except ValueError as error:
        raise EntryError(f"{where}.uuid: {error}") from error


def parse_time(entry: Mapping[str, Any], key: str, where: str) -> datetime | None:
    """Return the time under a key in UTC, None without one; a time without an offset is UTC."""
    value = entry.get(key)
    if value is None:
        return None
    try:
        # YAML reads a time without quotes itself.
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise EntryError(f"{where}.{key}: {value!r} is not a valid time") from error


def parse_address(value: Any, where: str) -> str:
    """Return a PCI address in lower case."""
    text = str(value).lower()
    if not ADDRESS_PATTERN.fullmatch(text):
        raise EntryError(f"{where}: {value!r} is not a valid PCI address")
    return text


def reject_unknown_keys(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    """Raise `EntryError` if an entry has other keys."""
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise EntryError(f"{where}: unknown key {unknown[0]!r}")
