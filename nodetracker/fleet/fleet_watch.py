"""Warn of hosts that are down, and of agents that the broker cuts off, for as long as it does."""

from collections.abc import Iterable
from datetime import datetime

from nodetracker.accounting.liveness import (
    find_broker_outage,
    is_cut_off,
    is_first_watcher,
    is_service_up,
)
from nodetracker.fleet.host_down_watch import HostDownWatch
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceRecord
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import WatchStore


class FleetWatch:
    """Checks the services of all hosts.

    Of several conductors, the first by name warns of agents that are cut off.

    Args:
        host: this conductor's name.
    """

    def __init__(self, store: WatchStore, host: str, service_down_time: int) -> None:
        self._store = store
        self._host = host
        self._service_down_time = service_down_time
        self._hosts_down = HostDownWatch(store, service_down_time)
        self._warned: set[str] = set()
        self._may_be_active = True  # a conductor that died may have left some

    def check(self, is_broker_out: bool) -> None:
        """Raise new warnings, and resolve those that are over.

        Raises:
            StoreError: the database operation failed; the next check repeats it.
        """
        down_time = self._service_down_time
        services, now = self._store.list_outage_services(down_time), self._store.now()
        outage = find_broker_outage(services, now, down_time)
        if outage is None and not is_broker_out and self._may_be_active:
            self._store.resolve_warnings(WarningKind.AGENT_UNREACHABLE)
            self._may_be_active, self._warned = False, set()
        if outage is not None and self._is_first(services, now):
            self._warn_of_cut_off(services, now, outage)
        if is_first_watcher(services, self._host, CONDUCTOR_BINARY, now, down_time):
            self._hosts_down.check(services, now, outage)

    def _is_first(self, services: Iterable[ServiceRecord], now: datetime) -> bool:
        """Return whether no live conductor has a name before this one's."""
        conductors = [
            service.host
            for service in services
            if service.binary == CONDUCTOR_BINARY
            and is_service_up(service, now, self._service_down_time)
        ]
        return min(conductors, default=None) == self._host

    def _warn_of_cut_off(
        self, services: Iterable[ServiceRecord], now: datetime, outage: datetime
    ) -> None:
        self._may_be_active = True
        for service in services:
            if service.binary != COMPUTE_BINARY or service.host in self._warned:
                continue
            if is_cut_off(service, now, self._service_down_time, outage):
                self._store.raise_warning(service.host, _describe(outage.isoformat()))
                self._warned.add(service.host)


def _describe(since: str) -> HostWarning:
    return HostWarning(
        WarningKind.AGENT_UNREACHABLE,
        WHOLE_HOST,
        NO_ITEM,
        "the message broker, through which this host's heartbeats come, has delivered nothing "
        f"since {since}; its agent may well be alive",
    )
