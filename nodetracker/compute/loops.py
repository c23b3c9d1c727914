"""The agent's own threads: one that audits, one that beats."""

import logging
import random
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

SPLAY_FRACTION = 0.1
"""Ticks are spread by this much of the interval, so that hosts do not march in step."""


class PeriodicLoop:
    """Calls something at an interval until told to stop; one failure never ends it.

    Args:
        name: of the thread.
        tick: what to call; it runs in this loop's thread, never twice at once.
        interval_seconds: from begin to begin; a tick that takes longer is
            followed by the next at once. None = only when woken.
        on_fatal: is given an error that `fatal` names; the loop then ends.
        fatal: errors that end the loop instead of being logged.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], None],
        interval_seconds: float | None,
        on_fatal: Callable[[BaseException], None],
        fatal: tuple[type[Exception], ...] = (),
        splay: Callable[[], float] = random.random,
    ) -> None:
        self._tick = tick
        self._interval = interval_seconds
        self._on_fatal = on_fatal
        self._fatal = fatal
        self._splay = splay
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first tick comes after one interval."""
        self._thread.start()

    def wake(self) -> None:
        """Tick now instead of at the end of the interval."""
        self._wake.set()

    def stop(self) -> None:
        """Ask the loop to end after a running tick; `join` waits for it."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the loop's end; False when a tick still runs then."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout_seconds))
        return not self._thread.is_alive()

    def _run(self) -> None:
        next_at = time.monotonic() + self._first_delay()
        while True:
            timeout = None if self._interval is None else max(0.0, next_at - time.monotonic())
            self._wake.wait(timeout)
            self._wake.clear()
            if self._stopping.is_set():
                return
            if self._interval is not None:
                next_at = time.monotonic() + self._interval
            try:
                self._tick()
            except self._fatal as error:
                self._on_fatal(error)
                return
            except Exception:  # the next tick may do better
                LOG.exception("%s failed", self._thread.name)

    def _first_delay(self) -> float:
        if self._interval is None:
            return 0.0
        return self._interval * (1 - SPLAY_FRACTION * self._splay())
