"""The driver of this machine itself: all its facts, no guests. It has no options."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodetracker.model.audit import NodeEvent
from nodetracker.model.errors import DriverFeatureError
from nodetracker.model.fact import fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.host import HypervisorInfo
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.virt.machine import MachineDriver
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin


class LocalDriver(MachineDriver):
    """The machine on which the agent runs, or the one whose files are below the roots."""

    def __init__(self, environment: DriverEnvironment) -> None:
        super().__init__(environment)
        self._instances_path = Path(environment.instances_path)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def get_available_nodes(self) -> NodeListing:
        return NodeListing((self._host,))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read all facts in parallel, each with a separate probe."""
        machine = self._start_machine()
        storage = machine.start_storage(self._instances_path)
        return replace(
            machine.snapshot(),
            hypervisor=fresh("local", HypervisorInfo(type="local")),
            storage=storage.fact(),
            guests=fresh("local", GuestListing(has_source=False)),
        )

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        raise DriverFeatureError("the local driver does not support events")


PLUGIN = DriverPlugin("local", options=(), build=lambda environment, _: LocalDriver(environment))
