"""Parse UUIDs into their canonical form."""

import uuid

from nodetracker.model.rendering import render_value


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
