"""Threads that do one thing at an interval, such as the agent's audits and heartbeats."""

import logging
import random
import threading
import time
from collections.abc import Callable

from nodetracker.errors import StoppingError

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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tick = tick
        self._interval = interval_seconds
        self._on_fatal = on_fatal
        self._fatal = fatal
        self._splay = splay
        self._monotonic = monotonic
        self._wake = threading.Event()
        self._has_request = False
        self._stopping = threading.Event()
        self._moved_at: float | None = None  # None while it waits for the next tick
        self._told: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first tick comes after one interval."""
        self._thread.start()

    def wake(self) -> None:
        """Tick now instead of at the end of the interval."""
        self._has_request = True
        self._wake.set()

    def change_interval(self, seconds: float | None) -> None:
        """Tick at another interval from now on."""
        if seconds != self._interval:
            self._interval = seconds
            self._wake.set()

    def moved(self) -> None:
        """Note that a running tick moves on, for `is_moving`."""
        if self._moved_at is not None:
            self._moved_at = self._monotonic()

    def is_making_progress(self, stall_seconds: float) -> bool:
        """Tell whether the loop waits for its next tick, or its tick moved on lately."""
        if self._stopping.is_set():
            return True
        if self._thread.ident is not None and not self._thread.is_alive():
            return False
        moved_at = self._moved_at
        return moved_at is None or self._monotonic() - moved_at <= stall_seconds

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
        began_at = self._monotonic()
        fraction = 1 - SPLAY_FRACTION * self._splay()
        while True:
            self._wait_for_tick(began_at, fraction)
            if self._stopping.is_set():
                return
            began_at, fraction = self._monotonic(), 1.0
            self._moved_at = began_at
            try:
                if not self._run_tick():
                    return
            finally:
                self._moved_at = None

    def _wait_for_tick(self, began_at: float, fraction: float) -> None:
        """Wait for the end of the interval, as it is now, or for a request."""
        while not (self._has_request or self._stopping.is_set()):
            interval = self._interval
            left = None if interval is None else began_at + interval * fraction - self._monotonic()
            if left is not None and left <= 0:
                break
            self._wake.wait(left if left is None else min(left, threading.TIMEOUT_MAX))
            self._wake.clear()
        self._has_request = False

    def _run_tick(self) -> bool:
        """Call; return False when the loop is to end. A failure is said once while it lasts."""
        failure: BaseException | None = None
        try:
            self._tick()
        except StoppingError:
            return False
        except self._fatal as error:
            self._on_fatal(error)
            return False
        except BaseException as error:  # also SystemExit: the next tick may do better
            failure = error
        told = None if failure is None else f"{type(failure).__name__}: {failure}"
        if failure is not None and told != self._told:
            LOG.error("%s failed", self._thread.name, exc_info=failure)
        elif failure is None and self._told is not None:
            LOG.info("%s work again", self._thread.name)
        self._told = told
        return True
