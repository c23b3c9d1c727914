"""Add monitors' measurements to the readings of a driver whose nodes are this machine."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from nodetracker.model.errors import HostDataError
from nodetracker.model.node import HostSnapshot
from nodetracker.ports import Driver, DriverCapability, Monitor
from nodetracker.virt.probes import Pending, ProbeKey, ProbeRunner


@dataclass(frozen=True, slots=True)
class MonitorSource:
    """One monitor that an operator has configured.

    Attributes:
        metrics: names of all values that it may return.
    """

    name: str
    metrics: frozenset[str]
    build: Callable[[], Monitor]


class MonitoredDriver:
    """A driver that also runs monitors, one probe each, while it reads a node."""

    def __init__(
        self, driver: Driver, sources: tuple[MonitorSource, ...], probes: ProbeRunner
    ) -> None:
        self._driver = driver
        self._sources = sources
        self._probes = probes
        self._lock = threading.Lock()
        self._monitors: dict[tuple[str, str], Monitor] = {}  # by nodename and monitor's name
        # All but the reading of a node is the driver's own.
        self.init_host, self.refresh, self.close = driver.init_host, driver.refresh, driver.close
        self.get_available_nodes, self.events = driver.get_available_nodes, driver.events
        self.keep_names, self.host_power_action = driver.keep_names, driver.host_power_action

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        return self._driver.capabilities

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read one node and run the monitors concurrently; raises as the driver does."""
        pending = [(source, self._start(source, nodename)) for source in self._sources]
        snapshot = self._driver.get_available_resource(nodename)
        measured = dict(snapshot.measured)
        for source, probe in pending:
            values = probe.fact().value
            measured |= dict.fromkeys(source.metrics) if values is None else values
        return replace(snapshot, measured=measured)

    def _start(self, source: MonitorSource, nodename: str) -> Pending[Mapping[str, int]]:
        key = ProbeKey(f"monitor {source.name}", nodename, source.name)
        return self._probes.start(key, lambda: self._read(source, nodename))

    def _read(self, source: MonitorSource, nodename: str) -> Mapping[str, int]:
        with self._lock:
            monitor = self._monitors.get((nodename, source.name))
            if monitor is None:
                monitor = self._monitors[nodename, source.name] = source.build()
        values = monitor.read()
        _check_values(source, values)
        return values


def _check_values(source: MonitorSource, values: Mapping[str, object]) -> None:
    """Check what a monitor returned, as accounting relies on it.

    Raises:
        HostDataError: it has an unknown name, or a value that is not a whole number.
    """
    where = f"monitor {source.name}"
    for name, value in values.items():
        if name not in source.metrics:
            raise HostDataError(where, f"unknown metric {name!r}")
        if not isinstance(value, int):
            raise HostDataError(where, f"{name} is not a whole number")
