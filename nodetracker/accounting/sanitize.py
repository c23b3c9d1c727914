"""Sanitize data of hypervisors and engines so that every database can store it.

A name or label may have any length and contain any character. If a column
rejected it, the whole row of its node could not be written. So new values are
truncated and cleaned here before they are compared with the stored ones. A
truncated value then equals the stored one, and an audit without changes writes
nothing.

UUIDs and addresses are parsed by the drivers; truncating them could make two equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nodetracker.model.fact import FactEntry
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.text import LONG_TEXT_LENGTH, PCI_ID_LENGTH, TEXT_LENGTH, sanitize_text

GUEST_TEXTS = {"name": LONG_TEXT_LENGTH, "project_id": TEXT_LENGTH}
"""Columns of a guest with text from its driver -> their length."""

DEVICE_TEXTS = {
    "vendor_id": PCI_ID_LENGTH,
    "product_id": PCI_ID_LENGTH,
    "class_id": PCI_ID_LENGTH,
    "driver": TEXT_LENGTH,
}
"""Columns of a device with text from its driver -> their length."""


def sanitize_values(values: NodeValues, columns: Iterable[str]) -> NodeValues:
    """Return values with the named columns sanitized; texts have at most `TEXT_LENGTH`."""
    changes: dict[str, Any] = {}
    for name in columns:
        value = getattr(values, name)
        changes[name] = sanitize_text(value) if isinstance(value, str) else sanitize_json(value)
    return replace(values, **changes)


def sanitize_guest(guest: Guest) -> Guest:
    """Return a guest with its texts sanitized."""
    texts: dict[str, Any] = {
        name: sanitize_text(getattr(guest, name), length) for name, length in GUEST_TEXTS.items()
    }
    return replace(guest, details=sanitize_json(guest.details), **texts)


def sanitize_device(device: TrackedDevice) -> TrackedDevice:
    """Return a device with its texts sanitized."""
    texts: dict[str, Any] = {
        name: sanitize_text(getattr(device, name), length) for name, length in DEVICE_TEXTS.items()
    }
    return replace(device, **texts)


def sanitize_json(value: Any) -> Any:
    """Return plain data, or facts, without characters that cannot be stored; lengths are kept."""
    if isinstance(value, str):
        return sanitize_text(value, len(value))
    if isinstance(value, FactEntry):
        error = None if value.error is None else sanitize_json(value.error)
        return replace(value, source=sanitize_json(value.source), error=error)
    if isinstance(value, Mapping):
        return {sanitize_json(key): sanitize_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(sanitize_json(item) for item in value)
    return value
