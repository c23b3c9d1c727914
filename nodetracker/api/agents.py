"""Call agents for requests, only a few at a time."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from nodetracker.model.errors import BusyError, NodetrackerError
from nodetracker.ports import AgentDirectory, HostAgent
from nodetracker.process.workers import Executor

LOG = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CALLS = 2
"""Calls to agents at a time: a silent agent keeps a thread for up to a minute."""

WAIT_SECONDS = 10.0
"""How long a request waits for a call that continues without it."""

TURN_SECONDS = 240.0
"""After which a call counts no more: longer than any waits for its agent."""

_MAX_THREADS = 1000  # never reached: all but a few calls are rejected


class AgentCalls:
    """The agents of all hosts, of which few are called at the same time.

    Args:
        directory: finds them.
        wait_seconds: how long `run` waits.
    """

    def __init__(
        self,
        directory: AgentDirectory,
        max_calls: int = MAX_CALLS,
        wait_seconds: float = WAIT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._wait_seconds = wait_seconds
        self._max_calls = max_calls
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._started: dict[object, float] = {}
        self._executor = Executor("agent-call", _MAX_THREADS)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count this block as one call, such as of placement, for `TURN_SECONDS` at most.

        Raises:
            BusyError: enough agents are being called already.
        """
        call, now = object(), self._monotonic()
        with self._lock:
            started = {c: at for c, at in self._started.items() if now - at < TURN_SECONDS}
            if len(started) >= self._max_calls:
                raise BusyError("too many agents are being called at the moment; try again later")
            self._started = started | {call: now}
        try:
            yield
        finally:
            with self._lock:
                self._started.pop(call, None)

    @contextmanager
    def calling(self, host: str) -> Iterator[HostAgent]:
        """Return the agent of a host for calls within this block; raises as `turn`."""
        with self.turn():
            yield self._directory.agent_of(host)

    def run(self, host: str, call: Callable[[HostAgent], T]) -> T | None:
        """Call the agent of a host in another thread; return None if it takes too long.

        The call continues then, and counts as one until it ends.

        Raises:
            BusyError: as `calling`.
        """
        started = self._executor.start(host, lambda: self._call(host, call))
        return started.result() if started.wait(started.counted_from + self._wait_seconds) else None

    def _call(self, host: str, call: Callable[[HostAgent], T]) -> T:
        with self.calling(host) as agent:
            try:
                return call(agent)
            except NodetrackerError as error:  # nobody may be waiting for it any more
                LOG.info("Agent of host %s: %s", host, error)
                raise
