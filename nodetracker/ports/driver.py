"""Ports to the drivers (nodes, their facts and guests, events and power) and to monitors."""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from nodetracker.model.audit import NodeEvent
from nodetracker.model.guest import Guest
from nodetracker.model.node import HostSnapshot, KnownNode, NodeListing
from nodetracker.model.numa import NumaTopology


class DriverCapability(enum.Enum):
    """Features of drivers; code checks these and never a driver's name."""

    REMOTE_NODES = "remote_nodes"  # its nodes may be other machines
    POWER_ACTIONS = "power_actions"
    EVENTS = "events"
    INSTANCES = "instances"  # its guests are only instances
    CONTAINERS = "containers"  # its guests are only containers


POWER_ACTIONS = ("reboot", "shutdown", "startup")


class Driver(Protocol):
    """Facts and guests of the nodes of one hypervisor, engine or file.

    Called from several threads concurrently. Every call ends within the probe
    budget, whatever the source does.
    """

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """The features of this driver."""

    def init_host(self) -> None:
        """Prepare the driver; called once before any other method.

        Raises:
            ConfigError: the driver's own options are invalid.
        """

    def get_available_nodes(self) -> NodeListing:
        """Return the nodes that exist now, and the sources that did not answer.

        Raises:
            DriverUnavailableError: no source answers; all rows are kept.
            ConfigError: two sources report the same nodename; the message names both.
        """

    def keep_names(self, known: Sequence[KnownNode]) -> None:
        """Call nodes by the names of their rows, where only their sources' names have changed.

        Args:
            known: nodes of rows that the last listing lacks, while it has others without a row.
        """

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read one node. A probe that fails is a failed fact, not an exception.

        Raises:
            DriverUnavailableError: the node cannot be queried at all.
        """

    def refresh(self) -> None:
        """Let the next reading of each node query its source for all that earlier ones kept."""

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Report changes until `close`; called once, after `init_host`.

        An event names the node to read again, never its state. Events may be
        lost with the source's connection; its loss and return are events
        themselves.

        Args:
            callback: is called in the driver's own threads; it returns
                immediately and does not raise.

        Raises:
            DriverFeatureError: this driver has no events.
        """

    def host_power_action(self, action: str) -> None:
        """Reboot, shut down or start up the host: one of `POWER_ACTIONS`.

        Raises:
            DriverFeatureError: this driver does not support it.
        """

    def close(self) -> None:
        """Close all connections; no method is called afterwards."""


class StartReader(Protocol):
    """Reads what an engine asks before it starts a guest. It asks the engine nothing.

    Attributes:
        hears_ends: the engine reports each guest that has ended; of others only listings do, which
            the engine answers while it waits.
    """

    hears_ends: ClassVar[bool]

    def read(self, question: Mapping[str, Any], topology: NumaTopology) -> Guest | None:
        """Return the guest with all that it takes when it runs, None if none starts.

        Args:
            question: from the engine's hook, see ``docs/admission.md``.
            topology: the node's cells.

        Raises:
            HostDataError: the question is invalid, or about a guest that is not known.
            ClaimRefusedError: it may not start on any host.
        """


class Monitor(Protocol):
    """Measures this machine for the metrics of one of its nodes.

    May be called from several threads concurrently. An error fails the probe
    in which the monitor is read: the row keeps the monitor's last values.
    """

    def read(self) -> Mapping[str, int]:
        """Return the values that are known now, by metric name; others leave the row."""
