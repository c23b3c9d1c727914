"""The driver of this machine itself: all its facts, no guests. It has no options."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from nodetracker.host.system import CacheReader
from nodetracker.model.audit import NodeEvent
from nodetracker.model.errors import DriverFeatureError
from nodetracker.model.fact import fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.host import HypervisorInfo
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.ports import DriverCapability
from nodetracker.virt.machine import MachineProbes, read_uptime
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin


class LocalDriver:
    """The machine on which the agent runs, or the one whose files are below the roots."""

    def __init__(self, environment: DriverEnvironment) -> None:
        self._host = environment.host
        self._roots = environment.roots
        self._instances_path = Path(environment.instances_path)
        self._probes = environment.probes
        self._power = environment.power
        self._caches = CacheReader()

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """Capabilities of this driver; power actions only if they are allowed."""
        allowed = {DriverCapability.POWER_ACTIONS} if self._power.is_allowed else set()
        return frozenset({DriverCapability.UPTIME, *allowed})

    def init_host(self) -> None:
        """Do nothing: files need no connection."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def get_available_nodes(self) -> NodeListing:
        """Return the one node, called after the host."""
        return NodeListing((self._host,))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read all facts in parallel, each with a separate probe."""
        probes = MachineProbes(self._host, self._roots, self._probes, self._caches)
        storage = probes.start_storage(self._instances_path)
        machine = probes.facts()
        return HostSnapshot(
            nodename=nodename,
            hypervisor=fresh("local", HypervisorInfo(type="local")),
            cpu=machine.cpu,
            memory=machine.memory,
            numa=machine.numa,
            storage=storage.fact(),
            pci=machine.pci,
            gpus=machine.gpus,
            system=machine.system,
            guests=fresh("local", GuestListing(has_source=False)),
            netdevs=machine.netdevs,
            mdev_types=machine.mdev_types,
            pci_problems=machine.pci_problems,
        )

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Reject the request: changes are seen by the next audit."""
        raise DriverFeatureError("the local driver does not support events")

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return the time since the kernel booted."""
        return read_uptime(self._roots)

    def host_power_action(self, action: str) -> None:
        """Run a power action on this machine."""
        self._power.act(action)


PLUGIN = DriverPlugin("local", options=(), build=lambda environment, _: LocalDriver(environment))
