"""Listen to an engine's events in a separate thread, and reconnect when the stream ends."""

import logging
import threading
from collections.abc import Callable

from nodetracker.model.errors import DriverUnavailableError, HostDataError, NotFoundError
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.event_stream import EventStream
from nodetracker.virt.docker.events import FILTERS, EngineEvent, EventDecoder

LOG = logging.getLogger(__name__)

IDLE_SECONDS = 15.0
"""The stream is reopened after this long without an event, to detect a frozen engine."""

_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 5.0


class EventListener:
    """Reports an engine's events, and when its event stream is lost and restored.

    Args:
        client: a separate client, so that waiting does not block other calls.
        on_event: called once for each event.
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
        self._notified_until_ns = 0
        self._is_live = False
        self._thread = threading.Thread(target=self._run, name="docker-events", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

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
            except (DriverUnavailableError, HostDataError, NotFoundError, ValueError) as error:
                LOG.debug("%s: cannot read events: %s", self._client.source, error)
                was_idle = False
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
        decoder = EventDecoder()
        for piece in stream:
            for event in decoder.feed(piece):
                self._notify(event)
        return stream.was_idle

    def _notify(self, event: EngineEvent) -> None:
        """Report an event, unless it was reported before the stream was reopened."""
        if event.at_ns and event.at_ns <= self._notified_until_ns:
            return
        if event.at_ns:
            self._notified_until_ns, self._since = event.at_ns, event.since
        self._on_event(event)

    def _handle_loss(self) -> None:
        self._is_live = False
        if not self._stopping.is_set():
            LOG.warning("%s: event stream ended; reconnecting", self._client.source)
            self._on_source()
