"""Events of an engine, from the text of its stream to values."""

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.event import EventKind

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
"""What is asked for: the many events of health checks stay with the engine."""

_NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event.

    Attributes:
        at_ns: when it was, by the engine's clock, in nanoseconds since 1970.
        container_id: "" when the engine itself is meant.
        name, labels: of the container.
    """

    kind: EventKind
    at_ns: int
    container_id: str
    name: str
    labels: Mapping[str, str]

    @property
    def since(self) -> str:
        """When it was, as the engine wants to be told from when on to go on."""
        return f"{self.at_ns // _NS_PER_SECOND}.{self.at_ns % _NS_PER_SECOND:09d}"


class EventDecoder:
    """Puts the pieces of a stream together to events, with or without lines between them."""

    def __init__(self) -> None:
        self._text = ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._json = json.JSONDecoder()

    def feed(self, piece: bytes) -> Iterator[EngineEvent]:
        """Give the events that a piece completes; what is no event here is passed over.

        Raises:
            ValueError: it is no JSON.
        """
        self._text += self._utf8.decode(piece)
        while text := self._text.lstrip():
            try:
                raw, end = self._json.raw_decode(text)
            except ValueError:
                if not text.startswith("{"):
                    raise
                self._text = text  # the rest is still to come
                return
            self._text = text[end:]
            event = parse_event(raw)
            if event is not None:
                yield event
        self._text = ""


def parse_event(raw: Any) -> EngineEvent | None:
    """Read one event, None for one that changes nothing here."""
    if not isinstance(raw, Mapping):
        return None
    action, about = str(raw.get("Action") or ""), raw.get("Type")
    actor = raw.get("Actor")
    actor = actor if isinstance(actor, Mapping) else {}
    if about == "container":
        kind = _KINDS.get(action)
    else:
        kind = EventKind.CHANGED if (about, action) == ("daemon", _RELOAD) else None
    if kind is None:
        return None
    attributes = actor.get("Attributes")
    attributes = attributes if isinstance(attributes, Mapping) else {}
    at_ns = raw.get("timeNano")
    return EngineEvent(
        kind=kind,
        at_ns=at_ns if isinstance(at_ns, int) else 0,
        container_id=str(actor.get("ID") or "") if about == "container" else "",
        name=str(attributes.get("name") or ""),
        labels={str(key): str(value) for key, value in attributes.items()},
    )
