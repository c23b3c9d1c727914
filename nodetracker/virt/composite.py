"""Combine several drivers of one host into one driver of one node."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from nodetracker.accounting.audit.merge import merge_readings
from nodetracker.model.errors import ConfigError, DriverUnavailableError
from nodetracker.model.event import ALL_NODES, NodeEvent
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.ports import Driver, DriverCapability
from nodetracker.virt.driver_part import DriverPart
from nodetracker.virt.probes import ProbeRunner

_KINDS = frozenset({DriverCapability.INSTANCES, DriverCapability.CONTAINERS})


class CompositeDriver:
    """Drivers of one machine: the first provides the node's name and facts, all provide guests.

    Args:
        drivers: name and driver, at least two.
        probes: knows the timeout of a probe.
    """

    def __init__(self, drivers: Sequence[tuple[str, Driver]], probes: ProbeRunner) -> None:
        self._parts = [DriverPart(name, driver, probes) for name, driver in drivers]
        self._first = self._parts[0]

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """The first driver's capabilities, and events if any driver sends them."""
        own = self._first.driver.capabilities - _KINDS - {DriverCapability.EVENTS}
        has_events = any(part.has_events for part in self._parts)
        return own | ({DriverCapability.EVENTS} if has_events else set())

    def init_host(self) -> None:
        """Initialize all drivers.

        Raises:
            ConfigError: the first driver's node is not this machine.
        """
        for part in self._parts:
            part.driver.init_host()
        if DriverCapability.REMOTE_NODES in self._first.driver.capabilities:
            raise ConfigError(
                f"[compute] compute_driver: {self._first.name} cannot be the first of several, "
                "as its nodes are not this machine"
            )

    def close(self) -> None:
        """Close all drivers."""
        for part in self._parts:
            part.driver.close()

    def get_available_nodes(self) -> NodeListing:
        """Return the first driver's node and the sources that do not answer.

        The node is listed even while the first driver does not answer.

        Raises:
            DriverUnavailableError: the first does not answer and never did.
            ConfigError: a driver does not have exactly one node.
        """
        for part in self._parts:
            part.start_listing()
        unreachable: list[str] = []
        is_ready = False
        for part in self._parts:
            try:
                listing = part.listing()
                unreachable += listing.unreachable
                is_ready = is_ready or listing.is_ready
            except DriverUnavailableError as error:
                if part is self._first and part.nodename is None:
                    raise
                unreachable.append(str(error))
        known = self._first.nodename
        return NodeListing(() if known is None else (known,), tuple(unreachable), is_ready)

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read all drivers concurrently and merge their readings."""
        for part in self._parts:
            part.start_reading()
        return merge_readings([part.reading(nodename) for part in self._parts])

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Listen to all drivers that send events; each concerns the one node."""

        def notify(event: NodeEvent) -> None:
            callback(replace(event, nodename=self._first.nodename or ALL_NODES))

        for part in self._parts:
            part.listen(notify)

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return the uptime that the first driver reports."""
        return self._first.driver.get_host_uptime(nodename)

    def host_power_action(self, action: str) -> None:
        """Pass the action to the first driver."""
        self._first.driver.host_power_action(action)
