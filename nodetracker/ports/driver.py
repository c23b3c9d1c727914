"""What a driver is asked."""

import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from nodetracker.model.event import NodeEvent
from nodetracker.model.node import HostSnapshot, NodeListing


class DriverCapability(enum.Enum):
    """What a driver can do; ask for one of these and never for a driver's name."""

    REMOTE_NODES = "remote_nodes"  # its nodes are not necessarily this machine
    UPTIME = "uptime"
    POWER_ACTIONS = "power_actions"
    EVENTS = "events"
    INSTANCES = "instances"  # its guests are instances alone
    CONTAINERS = "containers"  # its guests are containers alone


POWER_ACTIONS = ("reboot", "shutdown", "startup")


class Driver(Protocol):
    """Facts and guests of the nodes that one hypervisor, engine or file stands for.

    Called from several threads at once. Every call ends within the probe
    budget, whatever the source does.
    """

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """What this driver can do."""

    def init_host(self) -> None:
        """Get ready; called once before anything else.

        Raises:
            ConfigError: the driver's own options cannot be used.
        """

    def get_available_nodes(self) -> NodeListing:
        """Return the nodes that are there now, and which sources did not answer.

        Raises:
            DriverUnavailableError: no source answers; all rows stay.
            ConfigError: two sources give one nodename; the message names both.
        """

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read one node. A probe that fails is a failed fact, not an exception.

        Raises:
            DriverUnavailableError: the node cannot be asked at all.
        """

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Begin to tell what changes, until `close`; called once, after `init_host`.

        An event says which node to read again, never what it has. Events may
        be lost with the source's connection; its loss and return are events
        themselves.

        Args:
            callback: is called from the driver's own threads; it returns at
                once and does not raise.

        Raises:
            DriverFeatureError: this driver tells nothing of its own accord.
        """

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return how long the node has been up.

        Raises:
            DriverFeatureError: this driver cannot tell.
        """

    def host_power_action(self, action: str) -> None:
        """Do ``reboot``, ``shutdown`` or ``startup`` to the host.

        Raises:
            DriverFeatureError: this driver cannot.
        """

    def close(self) -> None:
        """Let go of connections; nothing is called afterwards."""
