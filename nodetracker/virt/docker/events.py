"""Decode the engine's event stream."""

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.audit import EventKind

_KINDS = {
    "create": EventKind.CHANGED,
    "init": EventKind.CHANGED,
    "start": EventKind.CHANGED,
    "restart": EventKind.CHANGED,
    "restore": EventKind.CHANGED,
    "pause": EventKind.CHANGED,
    "unpause": EventKind.CHANGED,
    "update": EventKind.CHANGED,
    "rename": EventKind.CHANGED,
    "oom": EventKind.CHANGED,
    "die": EventKind.STOPPED,
    "died": EventKind.STOPPED,
    "stop": EventKind.STOPPED,
    "destroy": EventKind.GONE,
    "remove": EventKind.GONE,
}
_RELOAD = "reload"

FILTERS = {"event": [*_KINDS, _RELOAD]}
"""Filters of the stream; they exclude the frequent events of health checks."""

_NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event.

    Attributes:
        at_ns: time of the event by the engine's clock, in nanoseconds since 1970.
        container_id: "" for an event of the engine itself.
        name, labels: of the container.
    """

    kind: EventKind
    at_ns: int
    container_id: str
    name: str
    labels: Mapping[str, str]

    @property
    def since(self) -> str:
        """Time of the event, in the format of the ``since`` parameter."""
        return f"{self.at_ns // _NS_PER_SECOND}.{self.at_ns % _NS_PER_SECOND:09d}"


class EventDecoder:
    """Assembles events from the pieces of a stream, with or without newlines between events."""

    def __init__(self) -> None:
        self._text = ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._json = json.JSONDecoder()

    def feed(self, piece: bytes) -> Iterator[EngineEvent]:
        """Yield the events that a piece completes; irrelevant events are skipped.

        Raises:
            ValueError: the text is not JSON.
        """
        self._text += self._utf8.decode(piece)
        while text := self._text.lstrip():
            try:
                raw, end = self._json.raw_decode(text)
            except ValueError:
                if not text.startswith("{"):
                    raise
                self._text = text  # incomplete; wait for the next piece
                return
            self._text = text[end:]
            event = parse_event(raw)
            if event is not None:
                yield event
        self._text = ""


def parse_event(raw: Any) -> EngineEvent | None:
    """Parse one event, None if it is irrelevant."""
    if not isinstance(raw, Mapping):
        return None
    action, subject = str(raw.get("Action") or ""), raw.get("Type")
    actor = raw.get("Actor")
    actor = actor if isinstance(actor, Mapping) else {}
    if subject == "container":
        kind = _KINDS.get(action)
    else:
        kind = EventKind.CHANGED if (subject, action) == ("daemon", _RELOAD) else None
    if kind is None:
        return None
    attributes = actor.get("Attributes")
    attributes = attributes if isinstance(attributes, Mapping) else {}
    at_ns = raw.get("timeNano")
    return EngineEvent(
        kind=kind,
        at_ns=at_ns if isinstance(at_ns, int) else 0,
        container_id=str(actor.get("ID") or "") if subject == "container" else "",
        name=str(attributes.get("name") or ""),
        labels={str(key): str(value) for key, value in attributes.items()},
    )
