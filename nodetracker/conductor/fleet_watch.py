"""Warns of agents that the broker cuts off, for as long as it does."""

from nodetracker.accounting.liveness import find_broker_outage, is_cut_off, is_service_up
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import AgentStore


class FleetWatch:
    """Looks at the services of all hosts while the broker carries nothing.

    Of several conductors the first by name warns.

    Args:
        host: this conductor's name.
    """

    def __init__(self, store: AgentStore, host: str, service_down_time: int) -> None:
        self._store = store
        self._host = host
        self._service_down_time = service_down_time
        self._told: set[str] = set()
        self._may_stand = True  # also what a conductor that died has left

    def look(self, is_broker_out: bool) -> None:
        """Raise what is new, and end it all when the broker is back.

        Raises:
            StoreError: the database did not take it; the next look does.
        """
        if not is_broker_out and not self._may_stand:
            return
        services, now = self._store.list_services(), self._store.now()
        outage = find_broker_outage(services, now, self._service_down_time)
        if outage is None:
            if not is_broker_out:
                self._store.resolve_warnings(WarningKind.AGENT_UNREACHABLE)
                self._may_stand, self._told = False, set()
            return
        conductors = [
            service.host
            for service in services
            if service.binary == CONDUCTOR_BINARY
            and is_service_up(service, now, self._service_down_time)
        ]
        if min(conductors) != self._host:
            return
        self._may_stand = True
        for service in services:
            if service.binary != COMPUTE_BINARY or service.host in self._told:
                continue
            if is_cut_off(service, now, self._service_down_time, outage):
                self._store.raise_warning(service.host, _describe(outage.isoformat()))
                self._told.add(service.host)


def _describe(since: str) -> HostWarning:
    return HostWarning(
        WarningKind.AGENT_UNREACHABLE,
        WHOLE_HOST,
        NO_ITEM,
        f"the message broker, through which this host's heartbeats come, carries nothing since "
        f"{since}; its agent may well be alive",
    )
