"""Listens to an engine's events in a thread of its own, and connects again when they end."""

import logging
import threading
from collections.abc import Callable

from nodetracker.errors import DriverUnavailableError, HostDataError, NotFoundError
from nodetracker.virt.docker.client import EngineClient, EventStream
from nodetracker.virt.docker.events import FILTERS, EngineEvent, EventDecoder

LOG = logging.getLogger(__name__)

QUIET_SECONDS = 15.0
"""After so long without an event it is asked again, as a frozen engine is quiet too."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class EventWatch:
    """Tells an engine's events, and when it was lost and is there again.

    Args:
        client: of its own, so that waiting disturbs no other call.
        on_event: is told each event once.
        on_source: is told when the engine was lost, and when it is there
            again; events may have been lost in between.
    """

    def __init__(
        self,
        client: EngineClient,
        on_event: Callable[[EngineEvent], None],
        on_source: Callable[[], None],
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._client = client
        self._on_event = on_event
        self._on_source = on_source
        self._quiet = quiet_seconds
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: EventStream | None = None
        self._since: str | None = None
        self._told_until_ns = 0
        self._is_live = False
        self._thread = threading.Thread(target=self._run, name="docker-events", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    @property
    def is_live(self) -> bool:
        """Whether it listens now, so that what changes is told."""
        return self._is_live

    def stop(self) -> None:
        """End it; a thread that waits for the engine's answer ends with that."""
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
                was_quiet = self._listen()
            except (DriverUnavailableError, HostDataError, NotFoundError, ValueError) as error:
                LOG.debug("No events of %s: %s", self._client.source, error)
                was_quiet = False
            if was_quiet:
                continue
            if self._is_live:
                pause = _FIRST_PAUSE_SECONDS
                self._lose()
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._client.close()

    def _listen(self) -> bool:
        """Listen until the stream ends; return whether that was because nothing happened."""
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
        return stream.was_quiet

    def _notify(self, event: EngineEvent) -> None:
        """Tell an event, unless it was told before the stream was opened again."""
        if event.at_ns and event.at_ns <= self._told_until_ns:
            return
        if event.at_ns:
            self._told_until_ns, self._since = event.at_ns, event.since
        self._on_event(event)

    def _lose(self) -> None:
        self._is_live = False
        if not self._stopping.is_set():
            LOG.warning("Events of %s have ended; it is asked again", self._client.source)
            self._on_source()
