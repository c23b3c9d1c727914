"""Run activities at an interval, as timers and periodic tasks of oslo.service.

A timer of a service's thread group runs one activity, such as an agent's heartbeats, or the
periodic tasks of one object, such as those of its manager.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_service import periodic_task

from nodetracker.model.errors import NodetrackerError, StoppingError, find_exhaustion

if TYPE_CHECKING:  # not before a backend is chosen
    from oslo_service.threadgroup import ThreadGroup

LOG = logging.getLogger(__name__)

WHEN_DUE = 1e-6
"""Spacing of all periodic tasks, in seconds: they run whenever their timer calls them.

The timer keeps the interval, as that of the library (4.8.0) cannot be changed or woken, is
shared by all objects of a class, and gets up to 5% longer at random.
"""


class PeriodicTasks(periodic_task.PeriodicTasks):
    """Periodic tasks that one timer runs, one after the other.

    Usually only one, as they wait for each other, and a failure leaves out those that follow.
    """

    def __init__(self) -> None:
        super().__init__(cfg.ConfigOpts())  # type: ignore[no-untyped-call]  # has options for others

    def run_tasks(self) -> None:
        """Run them now; errors are raised, and not logged each time."""
        self.run_periodic_tasks(None, raise_on_error=True)  # type: ignore[no-untyped-call]


def spread_first(splay: float) -> float:
    """Return the length of a loop's first interval, in intervals.

    They are spread over a whole one, as hosts that start together would tick together for ever.

    Args:
        splay: at random, from 0 to 1.

    >>> spread_first(0.0), spread_first(1.0)
    (0.5, 1.5)
    """
    return 0.5 + splay


class Wakeup:
    """Requests ticks of one loop; created before the loop and shared with its requesters."""

    def __init__(self) -> None:
        self._is_set = threading.Event()
        self._has_request = False

    def request(self) -> None:
        """Request a tick now instead of at the end of the interval."""
        self._has_request = True
        self._is_set.set()

    def interrupt(self) -> None:
        """Let the loop check its interval and whether it is to stop, without a tick."""
        self._is_set.set()

    def wait(self, seconds: float | None) -> None:
        """Wait for a request or an interrupt."""
        self._is_set.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        self._is_set.clear()

    @property
    def has_request(self) -> bool:
        """Whether a tick is requested."""
        return self._has_request

    def clear(self) -> None:
        """Forget the request, as its tick starts."""
        self._has_request = False


class Progress:
    """When work last made progress; shared by the work itself and all loops that wait for it.

    Args:
        monotonic: seconds that never go back; the loops' own.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._noted_at = float("-inf")

    @property
    def noted_at(self) -> float:
        """When `note` was last called."""
        return self._noted_at

    def note(self) -> None:
        """Report progress; called at each step whose duration is limited."""
        self._noted_at = self._monotonic()


class PeriodicLoop:
    """Calls a function at an interval until stopped, by a timer; one failure never ends it.

    The timer itself only calls and would end on SystemExit; nobody could wake it.

    Args:
        name: of the thread.
        tick: the function; it runs in this loop's thread, never concurrently.
        interval_seconds: from start to start; a tick that takes longer is
            followed by the next immediately. None = on request only. The first one
            is as long as `spread_first` says, and so are those before it that a request ends.
        splay: from 0 to 1, for `spread_first`.
        on_fatal: called with an error of a type in `fatal`; the loop then ends.
        fatal: errors that end the loop instead of being logged.
        wakeup: requests ticks; None = only `wake` does.
        progress: of the work that a tick does or waits for.
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
        wakeup: Wakeup | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._tick = tick
        self._interval = interval_seconds
        self._on_fatal = on_fatal
        self._fatal = fatal
        self._monotonic = monotonic
        self._wakeup = wakeup or Wakeup()
        self._progress = progress or Progress(monotonic)
        self._stopping = threading.Event()
        self._tick_started_at: float | None = None  # None while it waits for the next tick
        self._waits_since = monotonic()
        self._fraction = spread_first(splay())  # of the interval that it waits for
        self._logged_failure: str | None = None
        self._name = name
        self._has_started = False
        self._ended = threading.Event()

    def start(self, group: "ThreadGroup") -> None:
        """Start a timer of a group; without a request, the first tick comes after the interval."""
        self._waits_since = self._monotonic()
        group.add_dynamic_timer_args(self._beat)
        self._has_started = True

    def wake(self) -> None:
        """Tick now instead of at the end of the interval."""
        self._wakeup.request()

    def change_interval(self, seconds: float | None) -> None:
        """Tick at another interval from now on."""
        if seconds != self._interval:
            self._interval = seconds
            self._wakeup.interrupt()

    def is_making_progress(self, stall_seconds: float) -> bool:
        """Return whether the loop waits for its next tick, or its tick made progress recently."""
        if self._stopping.is_set():
            return True
        if self._ended.is_set():
            return False
        started_at = self._tick_started_at
        if started_at is None:
            return True
        return self._monotonic() - max(started_at, self._progress.noted_at) <= stall_seconds

    def stop(self) -> None:
        """Request the loop's end after a running tick; `join` waits for it."""
        self._stopping.set()
        self._wakeup.interrupt()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the loop's end; return False if a tick still runs then."""
        return not self._has_started or self._ended.wait(max(0.0, timeout_seconds))

    def _beat(self) -> float:
        """Wait for a tick and run it; return 0, as the timer is not to sleep."""
        threading.current_thread().name = self._name
        goes_on = False
        try:
            if not self._wait_for_tick():
                self._fraction = 1.0
            if not self._stopping.is_set():
                self._tick_started_at = self._waits_since = self._monotonic()
                goes_on = self._run_tick()
        finally:
            self._tick_started_at = None
            if not goes_on:
                self._ended.set()
        if not goes_on:
            from oslo_service.loopingcall import LoopingCallDone  # there is a group, so a backend

            raise LoopingCallDone
        return 0.0

    def _wait_for_tick(self) -> bool:
        """Wait for the end of the interval, which may change meanwhile, or for a request.

        Returns:
            Whether a tick was requested.
        """
        while not (self._wakeup.has_request or self._stopping.is_set()):
            interval = self._interval
            due_at = None if interval is None else self._waits_since + interval * self._fraction
            left = None if due_at is None else due_at - self._monotonic()
            if left is not None and left <= 0:
                break
            self._wakeup.wait(left)
        is_requested = self._wakeup.has_request
        self._wakeup.clear()
        return is_requested

    def _run_tick(self) -> bool:
        """Call the function; return False if the loop is to end. Log a lasting failure once."""
        failure: BaseException | None = None
        try:
            self._tick()
        except StoppingError:
            return False
        except self._fatal as error:
            self._on_fatal(error)
            return False
        except BaseException as error:  # also SystemExit: the next tick may succeed
            failure = find_exhaustion(error) or error
        text = None if failure is None else f"{type(failure).__name__}: {failure}"
        if failure is not None and text != self._logged_failure:
            if isinstance(failure, NodetrackerError):  # says what an operator can do about it
                LOG.error("%s failed: %s", self._name, failure)
            else:
                LOG.error("%s failed", self._name, exc_info=failure)
        elif failure is None and self._logged_failure is not None:
            LOG.info("%s work again", self._name)
        self._logged_failure = text
        return True
