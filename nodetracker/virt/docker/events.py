"""Listen to an engine's events: decode the stream, and reopen it when it ends."""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.audit import EventKind
from nodetracker.model.errors import DriverUnavailableError, HostDataError, NotFoundError
from nodetracker.process.workers import start_thread
from nodetracker.virt.docker.client import EngineClient, EventStream

_ACTIONS = {
    EventKind.CHANGED: (
        "create", "init", "start", "restart", "restore", "pause", "unpause", "update", "rename",
        "oom",
    ),
    EventKind.STOPPED: ("die", "died", "stop"),
    EventKind.GONE: ("destroy", "remove"),
}  # fmt: skip
_KINDS = {action: kind for kind, actions in _ACTIONS.items() for action in actions}
_RELOAD = "reload"

FILTERS = {"event": [*_KINDS, _RELOAD]}
"""Filters of the stream; they exclude the frequent events of health checks."""

_NS_PER_SECOND = 1_000_000_000
_MAX_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event.

    Attributes:
        at_ns: time of the event by the engine's clock, in nanoseconds since 1970.
        container_id: "" for an event of the engine itself.
    """

    kind: EventKind
    at_ns: int
    container_id: str
    name: str
    labels: Mapping[str, str]

    @property
    def since(self) -> str:
        return f"{self.at_ns // _NS_PER_SECOND}.{self.at_ns % _NS_PER_SECOND:09d}"


MAX_EVENT_BYTES = 2**20
"""Of the JSON of one event; real ones have about 1 KiB, with many labels some more."""

_OUTSIDE_TEXT = re.compile(rb'["{}]')
_WITHIN_TEXT = re.compile(rb'["\\]')


class EventDecoder:
    """Assembles events from the pieces of a stream, with or without newlines between events.

    Each byte is looked at once, whatever the pieces are.

    Args:
        source: of the stream, for errors.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._event = bytearray()
        self._depth = 0
        self._is_text = self._is_escaped = False

    def feed(self, piece: bytes) -> Iterator[EngineEvent]:
        """Yield the events that a piece completes; irrelevant events are skipped.

        Raises:
            HostDataError: the input is not a JSON object, or too long for an event.
        """
        start = place = 0
        while (end := self._find_end(piece, place)) is not None:
            event = self._parse(piece[start:end])
            if event is not None:
                yield event
            start = place = end
        self._keep(piece[start:])

    def _find_end(self, piece: bytes, place: int) -> int | None:
        """Return where the object that has begun ends in a piece, None if it does not."""
        if self._is_escaped and place < len(piece):
            place, self._is_escaped = place + 1, False
        while found := (_WITHIN_TEXT if self._is_text else _OUTSIDE_TEXT).search(piece, place):
            place, mark = found.end(), found.group()
            if mark == b'"':
                self._is_text = not self._is_text
            elif mark == b"\\":
                self._is_escaped = place == len(piece)
                place += 1
            else:
                self._depth += 1 if mark == b"{" else -1
                if self._depth <= 0:
                    self._depth = 0
                    return place
        return None

    def _keep(self, part: bytes) -> None:
        self._event += part if self._event else part.lstrip()
        if self._event and not self._event.startswith(b"{"):
            raise HostDataError(self._source, "an event is not a JSON object")
        if len(self._event) > MAX_EVENT_BYTES:
            raise HostDataError(self._source, f"an event of more than {MAX_EVENT_BYTES} bytes")

    def _parse(self, rest: bytes) -> EngineEvent | None:
        self._keep(rest)
        text, self._event = self._event.decode(errors="replace"), bytearray()
        try:
            return parse_event(json.loads(text))
        except (ValueError, RecursionError):
            raise HostDataError(self._source, "an event is not a JSON object") from None


def parse_event(raw: Any) -> EngineEvent | None:
    """Parse one event, None if it is irrelevant."""
    if not isinstance(raw, Mapping):
        return None
    action, subject = _text(raw.get("Action")), raw.get("Type")
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
        at_ns=at_ns if isinstance(at_ns, int) and 0 <= at_ns <= _MAX_NS else 0,
        container_id=_text(actor.get("ID")) if subject == "container" else "",
        name=_text(attributes.get("name")),
        labels={key: value for key, value in attributes.items() if isinstance(value, str)},
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


LOG = logging.getLogger(__name__)

IDLE_SECONDS = 15.0
"""The stream is reopened after this long without an event, to detect a frozen engine."""

_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 5.0


class EventListener:
    """Reports an engine's events, and when its event stream is lost and restored.

    Args:
        client: a separate client, so that waiting does not block other calls.
        on_source: called when the stream was lost, and when it is restored;
            events may have been missed in between.
    """

    def __init__(
        self,
        client: EngineClient,
        on_event: Callable[[EngineEvent], None],
        on_source: Callable[[], None],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._client = client
        self._on_event = on_event
        self._on_source = on_source
        self._quiet = idle_seconds
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: EventStream | None = None
        self._since: str | None = None
        self._notified_until_ns = self._notified_before_ns = 0
        self._is_live = False

    def start(self) -> None:
        start_thread("docker-events", self._run)

    @property
    def is_live(self) -> bool:
        """Whether the stream is open, so that every change is reported."""
        return self._is_live

    def stop(self) -> None:
        """Stop listening; a thread that waits for the engine ends when the engine answers."""
        self._stopping.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
        self._client.close()

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                was_idle = self._listen()
            except (DriverUnavailableError, HostDataError, NotFoundError) as error:
                LOG.debug("Cannot read events: %s", error)
                was_idle = False
                if isinstance(error, HostDataError):
                    self._since = None  # or the same events come again; an audit follows
            if was_idle:
                continue
            if self._is_live:
                pause = _FIRST_PAUSE_SECONDS
                self._handle_loss()
            self._stopping.wait(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        self._client.close()

    def _listen(self) -> bool:
        """Listen until the stream ends; return whether it ended because it was idle."""
        stream = self._client.open_events(self._since, FILTERS, self._quiet)
        with self._lock:
            self._stream = stream
        if self._stopping.is_set():
            stream.close()
            return False
        if stream.opened_at is not None:
            self._since = str(stream.opened_at)
        if not self._is_live:
            self._is_live = True
            self._on_source()
        # Within a stream only the last one comes twice, whatever the engine's clock does.
        self._notified_before_ns = self._notified_until_ns
        decoder = EventDecoder(self._client.source)
        for piece in stream:
            for event in decoder.feed(piece):
                self._notify(event)
        return stream.was_idle

    def _notify(self, event: EngineEvent) -> None:
        """Report an event, unless it was reported before the stream was reopened."""
        last_ns = self._notified_until_ns
        if event.at_ns and (event.at_ns <= self._notified_before_ns or event.at_ns == last_ns):
            return
        if event.at_ns:
            self._notified_until_ns, self._since = event.at_ns, event.since
        self._on_event(event)

    def _handle_loss(self) -> None:
        self._is_live = False
        if not self._stopping.is_set():
            LOG.warning("%s: event stream ended; reconnecting", self._client.source)
            self._on_source()
