"""Keep a hypervisor connected: bounded attempts, backoff, and events when it breaks or is back.

A session has further connections for calls that may wait for one guest's emulator.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from nodetracker.model.audit import ALL_NODES, EventKind, NodeEvent
from nodetracker.model.errors import DriverUnavailableError, HostDataError, describe_error
from nodetracker.model.fact import Fact
from nodetracker.process.workers import Executor, start_thread
from nodetracker.virt.libvirt.types import (
    DomainStatistics,
    EventHandlers,
    HypervisorEndpoint,
    Identity,
)
from nodetracker.virt.probes import ProbeKey, ProbeRunner

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

MAX_CONNECTIONS = 4
"""How many connections are used at most, so how many of these calls may hang in libvirtd."""

_TIMEOUT_SECONDS = 3.0
_TIMEOUT_PER_DOMAIN_SECONDS = 0.05
LOG = logging.getLogger(__name__)
FIRST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 5.0
_POLL_INTERVAL = 1.0


class BulkClients:
    """Connections for calls that may wait for one guest's emulator, opened when first used.

    Each connection runs one call at a time, so a call that hangs occupies its own.
    """

    def __init__(self, first: "LibvirtClient", open_: "Callable[[], LibvirtClient]") -> None:
        self.open = open_
        self._first = first
        self._others: dict[int, LibvirtClient] = {}
        self._lock = Lock()
        self._is_closed = False

    def get(self, number: int) -> "LibvirtClient":
        """Return a connection by its number from 0; may hang when it has to be opened.

        Raises:
            HostDataError: it cannot be opened, or the session was closed.
        """
        if number == 0:
            return self._first
        with self._lock:
            client = self._others.get(number)
        if client is not None and client.is_alive():
            return client
        client = self.open()
        with self._lock:
            is_closed = self._is_closed
            self._others[number] = client
        if is_closed:
            client.close()
            raise HostDataError(client.source, "the connection is closed")
        return client

    def is_alive(self) -> bool:
        """Return whether the first connection is open, without a call to libvirtd."""
        return self._first.is_alive()

    def end(self) -> "list[LibvirtClient]":
        """Keep no connection open from now on; return those that are to be closed."""
        with self._lock:
            self._is_closed = True
            return [self._first, *self._others.values()]


@dataclass(frozen=True, slots=True)
class Session:
    """One open connection.

    Attributes:
        bulk_clients: further clients, for calls that may wait for one guest's
            emulator, as each client runs one call at a time.
        number: sequence number of the attempt that opened it.
    """

    client: "LibvirtClient"
    bulk_clients: BulkClients
    identity: Identity
    number: int


@dataclass(frozen=True, slots=True)
class ConnectionTimes:
    """Time limits of a connection.

    Attributes:
        open: seconds until an attempt to connect is reported as hung; no other
            attempt starts before it returns, as libvirt cannot cancel it.
        keepalive_interval, keepalive_count: see `LibvirtClient.set_keepalive`.
    """

    open: float
    keepalive_interval: int
    keepalive_count: int


class HypervisorConnection:
    """The connection to one hypervisor, reopened whenever it breaks.

    A dedicated thread opens it. Readers never wait: they get the session, or an
    error with the reason why it is not open.

    Args:
        notify: called with events, with the node's name once it is known.
    """

    def __init__(
        self,
        endpoint: HypervisorEndpoint,
        times: ConnectionTimes,
        notify: Callable[[NodeEvent], None],
        open_: "Callable[[HypervisorEndpoint], LibvirtClient]",
    ) -> None:
        self.endpoint = endpoint
        self._times = times
        self._notify = notify
        self._open = open_
        self._executor = Executor("libvirt-open", 4)
        self._lock = threading.Lock()
        self._first_attempt_done = threading.Event()
        self._wake = threading.Event()
        self._is_closing = False
        self._session: Session | None = None
        self._reason = "is not connected yet"
        self._lost: str | None = None
        self._is_lost = False
        self._hostname: str | None = None
        self._number = 0
        self._changed_domains: set[str] = set()
        self._have_devices_changed = True
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = start_thread("libvirt-connection", self._run)

    def wait_for_first_attempt(self, seconds: float) -> None:
        """Wait until the first attempt has succeeded, failed or timed out."""
        self._first_attempt_done.wait(max(0.0, seconds))

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_POLL_INTERVAL)

    @property
    def nodename(self) -> str | None:
        """The node's name, None until the hypervisor has reported its hostname once.

        It does not change while the agent runs, as rows are found by it.
        """
        return self.endpoint.name or self._hostname

    def keep_name(self, nodename: str) -> None:
        """Call the node by the name of its row from now on, whatever its hostname has become."""
        LOG.warning(
            "%s: the hostname is now %s; the node is still called %s, as in its row",
            self.endpoint.source, self._hostname, nodename,
        )  # fmt: skip
        self._hostname = nodename

    def session(self) -> Session:
        """Return the open session."""
        session = self._session
        if session is None:
            raise DriverUnavailableError(self.endpoint.source, self._reason)
        return session

    @property
    def problem(self) -> str | None:
        """The reason why no session is open, None while one is."""
        return None if self._session is not None else f"{self.endpoint.source}: {self._reason}"

    def pop_changed_domains(self) -> set[str]:
        with self._lock:
            changed, self._changed_domains = self._changed_domains, set()
        return changed

    def requeue_changed_domains(self, uuids: set[str]) -> None:
        """Put back uuids from `pop_changed_domains` whose documents could not be read."""
        with self._lock:
            self._changed_domains |= uuids

    def pop_devices_changed(self) -> bool:
        with self._lock:
            have_changed, self._have_devices_changed = self._have_devices_changed, False
        return have_changed

    def check_alive(self) -> None:
        """Check the connection after a call failed; reopen it if it broke."""
        session = self._session
        if session is not None and not (
            session.client.is_alive() and session.bulk_clients.is_alive()
        ):
            self._mark_lost("the connection broke", session.number)

    # The connection's thread.

    def _run(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not self._is_closing:
            if self._connect():
                backoff = FIRST_BACKOFF_SECONDS
                self._wait_until_lost()
            else:
                self._wake.wait(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)
            self._wake.clear()
        self._drop_session("is closed")

    def _connect(self) -> bool:
        """Try once to open a session; return whether it is open."""
        self._lost = None
        call = self._executor.start(self.endpoint.source, self._open_session)
        if not call.wait(time.monotonic() + self._times.open):
            self._record_failure(f"no answer within {self._times.open:g} s", is_hung=True)
            while not (self._is_closing or call.wait(time.monotonic() + _POLL_INTERVAL)):
                pass
        if not call.is_done:
            return False  # the process ends
        error = call.error
        if error is not None:
            self._record_failure(getattr(error, "reason", describe_error(error)))
            return False
        session = call.result()
        if self.endpoint.name is None and self._hostname not in {None, session.identity.hostname}:
            LOG.error(
                "%s: the hostname is now %s; the node is called %s until the agent restarts",
                self.endpoint.source, session.identity.hostname, self._hostname,
            )  # fmt: skip
        self._hostname = self._hostname or session.identity.hostname
        self._have_devices_changed = True
        self._session, self._is_lost = session, False
        LOG.info("Connected to %s", self.endpoint.source)
        self._first_attempt_done.set()
        self._notify_source()
        return True

    def _open_session(self) -> Session:
        self._number += 1
        number = self._number
        clients: list[LibvirtClient] = []
        try:
            clients.extend(self._open_client() for _ in range(2))
            client, bulk_client = clients
            client.register_events(
                EventHandlers(
                    lambda reason: self._mark_lost(reason, number),
                    self._on_guest_event,
                    self._on_device_event,
                )
            )
            bulk_clients = BulkClients(bulk_client, self._open_client)
            return Session(client, bulk_clients, client.get_identity(), number)
        except BaseException:
            for client in clients:
                client.close()
            raise

    def _open_client(self) -> "LibvirtClient":
        client = self._open(self.endpoint)
        try:
            client.set_keepalive(self._times.keepalive_interval, self._times.keepalive_count)
        except BaseException:
            client.close()
            raise
        return client

    def _wait_until_lost(self) -> None:
        while not self._is_closing and self._lost is None:
            self._wake.wait()
            self._wake.clear()
        if self._lost is not None:
            self._drop_session(self._lost)

    def _drop_session(self, reason: str) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._reason = reason
        # Closing may hang while libvirtd does; nothing waits for it.
        for client in (session.client, *session.bulk_clients.end()):
            self._executor.start(self.endpoint.source, client.close)
        if not self._is_closing:
            self._is_lost = True
            LOG.warning("%s: %s", self.endpoint.source, reason)
            self._notify_source()

    def _record_failure(self, reason: str, is_hung: bool = False) -> None:
        # The loss of a session has been logged, and a hung attempt adds nothing to it.
        is_news = self._reason != reason and not (is_hung and self._is_lost)
        self._reason = reason
        self._first_attempt_done.set()
        if is_news:
            LOG.warning("%s: %s", self.endpoint.source, reason)

    # Events, on libvirt's thread.

    def _mark_lost(self, reason: str, number: int) -> None:
        if number == self._number:  # the event of an older connection may arrive late
            self._lost = reason
            self._wake.set()

    def _on_guest_event(self, kind: EventKind, uuid: str) -> None:
        with self._lock:
            self._changed_domains.add(uuid)
        self._notify(NodeEvent(self.nodename or ALL_NODES, kind, uuid))

    def _on_device_event(self) -> None:
        with self._lock:
            self._have_devices_changed = True
        self._notify(NodeEvent(self.nodename or ALL_NODES, EventKind.CHANGED))

    def _notify_source(self) -> None:
        self._notify(NodeEvent(ALL_NODES, EventKind.SOURCE))


class BulkReader:
    """Reads bulk statistics over a session's connections.

    A call waits for an emulator only if no other call does: libvirt passes over
    a domain whose job is taken, and reports it without sizes. So when a call
    hangs, the next one, over another connection, reports all other domains.
    """

    def __init__(self, source: str, clients: BulkClients, probes: ProbeRunner) -> None:
        self._source = source
        self._clients = clients
        self._probes = probes

    def read(self, nodename: str, domains: int) -> Fact[list[DomainStatistics]]:
        """Return the statistics of all domains, within the time of one probe.

        Args:
            domains: how many there are, which determines how long a call may take.
        """
        limit = self._probes.timeout_seconds
        timeout = min(_TIMEOUT_SECONDS + _TIMEOUT_PER_DOMAIN_SECONDS * domains, limit / 2)
        waits = number = 0
        while True:
            source = f"{self._source}, connection {number + 1}" if number else self._source
            pending = self._probes.start(
                ProbeKey(source, nodename, "amounts"), partial(self._list, number), timeout
            )
            fact = pending.fact()
            number += 1
            waits += not pending.call.is_refused
            is_late = (waits + 1) * timeout > limit
            if not pending.call.is_hung or number == MAX_CONNECTIONS or is_late:
                return fact

    def _list(self, number: int) -> list[DomainStatistics]:
        return self._clients.get(number).list_domain_resources()
