"""A notification: what happened to one thing, for whoever listens on the broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = "1.0"
"""Of every payload: the second number rises with what is added, the first with what is changed."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One event.

    Attributes:
        event_type: e.g. ``claim.create``.
        subject: names the thing; the newer of two events of one subject tells
            its state, an update with what it follows.
        payload: plain JSON; `VERSION` is added when it is sent.
    """

    event_type: str
    subject: str
    payload: Mapping[str, Any]
