"""Notifications: events that are sent to the message broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = "1.0"
"""Version of all payloads: additions increase the minor version, changes the major version."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One event.

    Attributes:
        event_type: e.g. ``claim.create``.
        subject: identifies the object. Of two events of a subject the newer
            one has its state; an update also needs the event that it follows.
        payload: plain JSON; `VERSION` is added when it is sent.
    """

    event_type: str
    subject: str
    payload: Mapping[str, Any]
