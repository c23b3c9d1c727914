"""Call agents for requests, only a few at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nodetracker.errors import BusyError, DriverFeatureError
from nodetracker.ports import AgentDirectory, HostAgent

MAX_CALLS = 2
"""Calls to agents at a time: a silent agent keeps a thread for up to a minute."""


class AgentCalls:
    """The agents of all hosts, of which few are called at the same time.

    Args:
        directory: finds them; None = no message broker is configured.
        prepare: called before each call, such as to set the clock of deadlines.
    """

    def __init__(
        self,
        directory: AgentDirectory | None,
        prepare: Callable[[], None] = lambda: None,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._directory = directory
        self._prepare = prepare
        self._turns = threading.BoundedSemaphore(max_calls)

    @contextmanager
    def calling(self, host: str) -> Iterator[HostAgent]:
        """Return the agent of a host for calls within this block.

        Raises:
            DriverFeatureError: no message broker is configured.
            BusyError: enough agents are being called already.
        """
        if self._directory is None:
            raise DriverFeatureError(
                "agents cannot be called: [DEFAULT] transport_url is not set on the API's host"
            )
        if not self._turns.acquire(blocking=False):
            raise BusyError("too many agents are being called at the moment; try again later")
        try:
            self._prepare()
            yield self._directory.agent_of(host)
        finally:
            self._turns.release()
