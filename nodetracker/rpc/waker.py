"""Wake agents over the broker, from a thread that alone waits for it."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nodetracker.model.change import StoreEvent
from nodetracker.model.errors import ExhaustedError, RpcUnavailableError
from nodetracker.ports import WakeableAgent
from nodetracker.process.workers import Call, Executor, start_thread
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.transport import Transport

LOG = logging.getLogger(__name__)

COMPUTE = Interface(WakeableAgent, topic="compute", version="2.0")

MAX_WAITING = 1000
"""Hosts whose wake-up waits for the broker; further ones are discarded."""

DELETE_SECONDS = 10.0


class Waker:
    """Wakes agents when they are called, and when a process's store has changed their rows.

    An agent that learns of a claim audits its node within a second instead of at the end of
    its interval. Nothing depends on it: the next heartbeat finds calls, the next audit the
    rest. Wake-ups of one host that wait are sent as one. Those that the broker does not
    accept are lost.
    """

    def __init__(self, get_transport: Callable[[], Transport]) -> None:
        self._get_transport = get_transport
        self._client: Any = None
        self._waiting: dict[str, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """Why the broker did not accept the last one, None if it did, or without any."""
        return self._error

    def committed(self, event: StoreEvent) -> None:
        """Wake the agents whose nodes or services one call has changed."""
        self.wake(*(host for host, _ in event.places))

    def wake(self, *hosts: str) -> None:
        """Queue the wake-ups of hosts; the first one starts the thread."""
        with self._changed:
            for host in hosts:
                if len(self._waiting) < MAX_WAITING:
                    self._waiting[host] = None
            if self._waiting and self._thread is None:  # late: a WSGI server may fork first
                with suppress(ExhaustedError):
                    self._thread = start_thread("waker", self._run)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                host = next(iter(self._waiting))
                del self._waiting[host]
            problem: str | None = None
            try:
                self._send(host)
            except Exception as error:  # any error of the library and those below it
                is_unknown = type(error).__name__ == "MessageUndeliverable"
                problem = None if is_unknown else f"{type(error).__name__}: {error}"
                LOG.debug("The agent of host %s was not woken: %s", host, error)
            self._error = problem

    def _send(self, host: str) -> None:
        if not COMPUTE.is_name(host):
            return
        if self._client is None:
            transport = self._get_transport()
            library = transport.library
            self._client = library.get_rpc_client(
                transport.rpc,
                library.Target(topic=COMPUTE.topic, version=COMPUTE.version),
                transport_options=library.TransportOptions(at_least_once=True),
            )
        self._client.prepare(server=host, retry=1).cast({}, "wake")


def delete_queue(transport: Transport, name: str) -> None:
    """Delete a queue with its messages, unless an agent listens to it.

    Raises:
        RpcUnavailableError: it may exist still.
    """
    deletion: Call[None] = Executor("delete-queue", 1).start(
        name, lambda: transport.delete_queue(name), DELETE_SECONDS
    )
    if not deletion.wait():
        raise RpcUnavailableError(f"queue {name}: the message broker cannot be reached or hangs")
    if deletion.error is not None:
        error = deletion.error
        raise RpcUnavailableError(f"queue {name}: {type(error).__name__}: {error}")
