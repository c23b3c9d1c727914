"""Values of the inventory file's entries, each checked.

What cannot be meant raises `EntryError`, which costs that entry and no other.
Where a function has ``where``, that is the path of the entry or value.
"""

from collections.abc import Mapping
from typing import Any

from nodetracker.model.identifier import parse_uuid
from nodetracker.model.pci import ADDRESS_PATTERN

_LARGEST = 2**31 - 1


class EntryError(Exception):
    """An entry that cannot be used; the text begins with the path of the key."""


def parse_mapping(item: Any, where: str) -> dict[Any, Any]:
    """Return an item that has to be a mapping."""
    if not isinstance(item, dict):
        raise EntryError(f"{where}: is no mapping")
    return item


def parse_list(entry: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return the list under a key, empty without one."""
    items = entry.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise EntryError(f"{where}.{key}: is no list")
    return items


def parse_integer(entry: Mapping[str, Any], key: str, where: str) -> int:
    """Return the whole number under a key, from 0 to what a column holds."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        problem = "is missing" if key not in entry else f"{value!r} is no whole number >= 0"
        raise EntryError(f"{where}.{key}: {problem}")
    return value


def parse_pci_id(entry: Mapping[str, Any], key: str, where: str) -> str:
    """Return the vendor or product id under a key, in lower case."""
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise EntryError(f"{where}.{key}: {value!r} is no text")
    return value.lower()


def parse_own_uuid(entry: Mapping[str, Any], where: str) -> str:
    """Return the entry's uuid in its usual form."""
    value = entry.get("uuid")
    try:
        return parse_uuid(value)
    except ValueError as error:
        raise EntryError(f"{where}.uuid: {error}") from error


def parse_address(value: Any, where: str) -> str:
    """Return a PCI address in lower case."""
    text = str(value).lower()
    if not ADDRESS_PATTERN.fullmatch(text):
        raise EntryError(f"{where}: {value!r} is no PCI address")
    return text


def refuse_unknown(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    """Make sure that an entry has no other keys."""
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise EntryError(f"{where}: has an unknown key {unknown[0]!r}")
