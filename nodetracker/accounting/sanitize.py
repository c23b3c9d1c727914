"""What hypervisors and engines say, as a row can hold it.

A name or label may be of any length and hold any character. One that a column
does not take would cost its node the whole row, so what is to be written is
cut and cleaned here, before it is compared with what stands there: a row that
was cut equals what is wanted, and a steady audit writes nothing.

Uuids and addresses are parsed by their drivers; cutting them would make two into one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nodetracker.model.fact import FactEntry
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.text import (
    LONG_TEXT_LENGTH,
    PCI_ID_LENGTH,
    TEXT_LENGTH,
    sanitize_text,
)

GUEST_TEXTS = {"name": LONG_TEXT_LENGTH, "project_id": TEXT_LENGTH}
"""Columns of a guest that hold what its driver says -> their length."""

DEVICE_TEXTS = {
    "vendor_id": PCI_ID_LENGTH,
    "product_id": PCI_ID_LENGTH,
    "class_id": PCI_ID_LENGTH,
    "driver": TEXT_LENGTH,
}
"""Columns of a device that hold what its driver says -> their length."""


def sanitize_values(values: NodeValues, columns: Iterable[str]) -> NodeValues:
    """Return values of which the named columns can be stored; each text has `TEXT_LENGTH`."""
    changes: dict[str, Any] = {}
    for name in columns:
        value = getattr(values, name)
        changes[name] = sanitize_text(value) if isinstance(value, str) else sanitize_json(value)
    return replace(values, **changes)


def sanitize_guest(guest: Guest) -> Guest:
    """Return a guest as its row can hold it."""
    texts: dict[str, Any] = {
        name: sanitize_text(getattr(guest, name), length) for name, length in GUEST_TEXTS.items()
    }
    return replace(guest, details=sanitize_json(guest.details), **texts)


def sanitize_device(device: TrackedDevice) -> TrackedDevice:
    """Return a device as its row can hold it."""
    texts: dict[str, Any] = {
        name: sanitize_text(getattr(device, name), length) for name, length in DEVICE_TEXTS.items()
    }
    return replace(device, **texts)


def sanitize_json(value: Any) -> Any:
    """Return plain data, or facts, without characters that cannot be stored; lengths stay."""
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
