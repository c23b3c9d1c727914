"""Read the amounts of all domains in one round trip, past emulators that hang."""

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from nodetracker.model.errors import HostDataError
from nodetracker.model.fact import Fact
from nodetracker.virt.libvirt.types import DomainStatistics
from nodetracker.virt.probes import ProbeKey, ProbeRunner

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

MAX_CONNECTIONS = 4
"""How many connections are used at most, so how many of these calls may hang in libvirtd."""

_PATIENCE_SECONDS = 3.0
_PATIENCE_PER_DOMAIN_SECONDS = 0.05


class BulkClients:
    """Connections for calls that may wait for one guest's emulator, opened when first used.

    Each connection runs one call at a time, so a call that hangs occupies its own.

    Args:
        first: a connection that is open.
        open_: opens another one, and may hang.
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
        timeout = self._probes.timeout_seconds
        patience = min(_PATIENCE_SECONDS + _PATIENCE_PER_DOMAIN_SECONDS * domains, timeout / 2)
        waits = number = 0
        while True:
            source = f"{self._source}, connection {number + 1}" if number else self._source
            pending = self._probes.start(
                ProbeKey(source, nodename, "amounts"), partial(self._list, number)
            )
            fact = pending.fact(patience)
            number += 1
            waits += not pending.is_skipped
            is_late = (waits + 1) * patience > timeout
            if not pending.is_hung or number == MAX_CONNECTIONS or is_late:
                return fact

    def _list(self, number: int) -> list[DomainStatistics]:
        return self._clients.get(number).list_domain_resources()
